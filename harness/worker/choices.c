#include "harness/worker/choices.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- cases ------------------------------------------------------------------------------------------------------ */

enum sf_status sf_choices_of_case(int64_t *row, const struct sf_description *description, const json_t *c, struct sf_error *error) {
  json_t *complete = NULL;
  const enum sf_status status = sf_description_complete(&complete, description, c, error);
  if (status == SF_OK) sf_description_row(row, description, complete);
  json_decref(complete);
  return status;
}

json_t *sf_choices_case(const int64_t *row, const struct sf_description *description, bool all) {
  json_t *c = json_object();
  for (int32_t i = 0; c && i < sf_description_field_count(description); i++) {
    if (!all && row[i] == 0) continue;
    json_t *value = sf_description_choice(description, i, row[i]);
    const bool set = value && sf_case_path_set(c, sf_description_field_path(description, i), value);
    json_decref(value);
    if (set) continue;
    json_decref(c);
    return NULL;
  }
  return c;
}

/* --- the space -------------------------------------------------------------------------------------------------- */

enum sf_status sf_choice_space_set(struct sf_choice_space *space, const char *assignment, struct sf_error *error) {
  const struct sf_description *description = space->description;
  const char *equals = strchr(assignment, '=');
  char path[128];
  if (!equals || equals == assignment || equals - assignment >= (ptrdiff_t)sizeof path)
    return sf_error_set(error, SF_EINPUT, "\"%.100s\" is not KEY=VALUE", assignment);
  snprintf(path, sizeof path, "%.*s", (int)(equals - assignment), assignment);
  const int32_t field = sf_description_find_field(description, path);
  if (field < 0) return sf_description_unknown(description, path, error);
  json_t *value = json_loads(equals + 1, JSON_DECODE_ANY, NULL);
  if (!value) value = json_string(equals + 1);
  const int64_t choice = value ? sf_description_find_choice(description, field, value) : -1;
  json_decref(value);
  if (choice < 0) return sf_error_set(error, SF_EINPUT, "%s: %.100s is none of its choices", path, equals + 1);
  space->is_fixed[field] = true;
  space->fixed[field] = (int32_t)choice;
  return SF_OK;
}
