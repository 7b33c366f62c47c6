#include "harness/worker/choices.h"

#include "harness/base/alloc.h"
#include "harness/base/hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- cases ------------------------------------------------------------------------------------------------------ */

enum sf_status sf_choices_of_case(struct sf_choices *out, const struct sf_description *description, const json_t *c, struct sf_error *error) {
  json_t *complete = NULL;
  const enum sf_status status = sf_description_complete(&complete, description, c, error);
  memset(out, 0, sizeof *out);
  for (int32_t i = 0; status == SF_OK && i < sf_description_field_count(description); i++) {
    out->at[i] = (int32_t)sf_description_find_choice(description, i, sf_case_path_get(complete, sf_description_field_path(description, i)));
  }
  json_decref(complete);
  return status;
}

json_t *sf_choices_case(const struct sf_choices *choices, const struct sf_description *description, bool all) {
  json_t *c = json_object();
  for (int32_t i = 0; c && i < sf_description_field_count(description); i++) {
    if (!all && choices->at[i] == 0) continue;
    json_t *value = sf_description_choice(description, i, choices->at[i]);
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
  if (!equals || equals == assignment || equals - assignment >= (ptrdiff_t)sizeof path) return sf_error_set(error, SF_EINPUT, "\"%.100s\" is not KEY=VALUE", assignment);
  snprintf(path, sizeof path, "%.*s", (int)(equals - assignment), assignment);
  const int32_t field = sf_description_find_field(description, path);
  if (field < 0) return sf_error_set(error, SF_EINPUT, "%s: no such field of %s", path, sf_description_name(description));
  json_t *value = json_loads(equals + 1, JSON_DECODE_ANY, NULL);
  if (!value) value = json_string(equals + 1);
  const int64_t choice = value ? sf_description_find_choice(description, field, value) : -1;
  json_decref(value);
  if (choice < 0) return sf_error_set(error, SF_EINPUT, "%s: %.100s is none of its choices", path, equals + 1);
  space->is_fixed[field] = true;
  space->fixed.at[field] = (int32_t)choice;
  return SF_OK;
}

bool sf_choices_allowed(const struct sf_choices *choices, const struct sf_choice_space *space) {
  json_t *c = sf_choices_case(choices, space->description, true);
  const bool allowed = c && sf_description_ranks(space->description, c) <= space->ranks_max && !sf_description_refusal(space->description, c);
  json_decref(c);
  return allowed;
}

/* --- drawing ---------------------------------------------------------------------------------------------------- */

enum { LAYOUT_ATTEMPTS = 64, PASSES = 2 };

struct draw {
  uint64_t seed, count;
};
static int64_t draw_below(struct draw *draw, int64_t bound) { return (int64_t)(sf_hash_u64(draw->seed, draw->count++) % (uint64_t)bound); }

/* A choice other than the first, where there is one. */
static int32_t draw_choice(struct draw *draw, const struct sf_description *description, int32_t field) {
  const int64_t count = sf_description_choice_count(description, field);
  return count > 1 ? (int32_t)(1 + draw_below(draw, count - 1)) : 0;
}

static int32_t free_fields(int32_t *out, const struct sf_choice_space *space, bool layout) {
  int32_t count = 0;
  for (int32_t i = 0; i < sf_description_field_count(space->description); i++) {
    if (!space->is_fixed[i] && sf_description_field_is_layout(space->description, i) == layout && strcmp(sf_description_field_path(space->description, i), "seed") != 0) out[count++] = i;
  }
  return count;
}

static void shuffle(struct draw *draw, int32_t *fields, int32_t count) {
  for (int32_t i = count - 1; i > 0; i--) {
    const int64_t k = draw_below(draw, i + 1);
    const int32_t held = fields[i];
    fields[i] = fields[k];
    fields[k] = held;
  }
}

/* A drawn share of the fields leaves its first choice, one after the other as far as the rules allow. What a rule forbids is tried once more when
 * all others are there: it may need one of them. */
static void draw_function(struct sf_choices *c, const struct sf_choice_space *space, uint64_t seed) {
  static const int64_t of[] = {24, 12, 6, 3};
  struct draw draw = {seed, 0};
  int32_t fields[SF_DESCRIPTION_FIELDS_MAX], wanted[SF_DESCRIPTION_FIELDS_MAX];
  const int32_t count = free_fields(fields, space, false);
  const int64_t share = of[draw_below(&draw, sizeof of / sizeof of[0])];
  shuffle(&draw, fields, count);
  for (int32_t i = 0; i < count; i++) wanted[i] = draw_below(&draw, share) == 0 ? draw_choice(&draw, space->description, fields[i]) : 0;
  for (int pass = 0; pass < PASSES; pass++) {
    for (int32_t i = 0; i < count; i++) {
      if (wanted[i] == c->at[fields[i]]) continue;
      c->at[fields[i]] = wanted[i];
      if (!sf_choices_allowed(c, space)) c->at[fields[i]] = 0;
    }
  }
}

static int32_t ranks_of(const struct sf_choices *choices, const struct sf_description *description) {
  json_t *c = sf_choices_case(choices, description, true);
  const int32_t ranks = c ? sf_description_ranks(description, c) : 0;
  json_decref(c);
  return ranks;
}

/* Leaves the first choice of some field that the number of ranks depends on, mostly, and of up to three more of the layout: axes bring each other (sequence
 * parallelism needs tensor parallelism). Then others, one by one, as the rules allow. What is left if no such layout is found is the plain one. */
static void draw_layout(struct sf_choices *c, const struct sf_choice_space *space, uint64_t seed) {
  struct draw draw = {seed, 0};
  int32_t fields[SF_DESCRIPTION_FIELDS_MAX], axes[SF_DESCRIPTION_FIELDS_MAX], axis_count = 0;
  const int32_t count = free_fields(fields, space, true);
  for (int32_t i = 0; i < count; i++)
    if (sf_description_field_has_ranks(space->description, fields[i])) axes[axis_count++] = fields[i];
  bool found = false;
  for (int attempt = 0; attempt < LAYOUT_ATTEMPTS && count > 0 && !found; attempt++) {
    struct sf_choices drawn = *c;
    for (int64_t more = draw_below(&draw, 4); more > 0; more--) {
      const int32_t field = fields[draw_below(&draw, count)];
      drawn.at[field] = draw_choice(&draw, space->description, field);
    }
    if (axis_count > 0 && draw_below(&draw, 4) != 0) { /* an axis that is fixed may be enough */
      const int32_t axis = axes[draw_below(&draw, axis_count)];
      drawn.at[axis] = draw_choice(&draw, space->description, axis);
    }
    found = sf_choices_allowed(&drawn, space) && ranks_of(&drawn, space->description) > 1;
    if (found) *c = drawn;
  }
  const int64_t share = 3 + draw_below(&draw, 8);
  shuffle(&draw, fields, count);
  for (int32_t i = 0; i < count && found; i++) {
    struct sf_choices drawn = *c;
    if (drawn.at[fields[i]] != 0 || draw_below(&draw, share) != 0) continue;
    drawn.at[fields[i]] = draw_choice(&draw, space->description, fields[i]);
    if (sf_choices_allowed(&drawn, space)) *c = drawn;
  }
}

enum sf_status sf_choices_draw(struct sf_choices *out, const struct sf_choice_space *space, uint64_t function, uint64_t layout, struct sf_error *error) {
  memset(out, 0, sizeof *out);
  for (int32_t i = 0; i < sf_description_field_count(space->description); i++) {
    if (space->is_fixed[i]) out->at[i] = space->fixed.at[i];
  }
  /* What is fixed may need a layout that is drawn. */
  struct sf_choices placed = *out;
  if (!sf_choices_allowed(&placed, space)) draw_layout(&placed, space, 0);
  if (!sf_choices_allowed(&placed, space)) return sf_error_set(error, SF_EINPUT, "what is fixed does not go together: the worker supports no such case on at most %d ranks", space->ranks_max);
  const struct sf_choices plain = *out;
  *out = placed;
  draw_function(out, space, function);
  struct sf_choices drawn = *out;
  for (int32_t i = 0; i < sf_description_field_count(space->description); i++) {
    if (sf_description_field_is_layout(space->description, i)) drawn.at[i] = plain.at[i];
  }
  draw_layout(&drawn, space, layout);
  if (sf_choices_allowed(&drawn, space)) *out = drawn;
  return SF_OK;
}
