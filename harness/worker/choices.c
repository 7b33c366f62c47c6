#include "harness/worker/choices.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

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
