#include "harness/base/hash.h"
#include "harness/worker/choices.h"

#include <string.h>

enum { REPAIRS_MAX = 16, ATTEMPTS = 32 };
enum kind { FUNCTION = 1, LAYOUT = 2 };

struct drawing {
  const struct sf_choice_space *space;
  const struct sf_description *description;
  uint64_t seed, count; /* state of the stream of numbers */
  int kinds;            /* kinds of fields that may change */
  struct sf_choices now;
  bool is_kept[SF_DESCRIPTION_FIELDS_MAX]; /* drawn on purpose, or needed by such a field */
};

static struct drawing begin(const struct sf_choice_space *space, uint64_t seed, int kinds, const struct sf_choices *from) {
  return (struct drawing){.space = space, .description = space->description, .seed = seed, .kinds = kinds, .now = *from};
}

static int64_t below(struct drawing *d, int64_t bound) { return (int64_t)(sf_hash_u64(d->seed, d->count++) % (uint64_t)bound); }

static int kind_of(const struct drawing *d, int32_t field) {
  return sf_description_field_is_layout(d->description, field) ? LAYOUT : FUNCTION;
}

static bool is_free(const struct drawing *d, int32_t field) {
  return !d->space->is_fixed[field] && (d->kinds & kind_of(d, field)) &&
         strcmp(sf_description_field_path(d->description, field), "seed") != 0;
}

static int32_t free_fields(int32_t *out, const struct drawing *d, bool axes_only) {
  int32_t count = 0;
  for (int32_t i = 0; i < sf_description_field_count(d->description); i++)
    if (is_free(d, i) && (!axes_only || sf_description_field_has_ranks(d->description, i))) out[count++] = i;
  return count;
}

static void shuffle(struct drawing *d, int32_t *fields, int32_t count) {
  for (int32_t i = count - 1; i > 0; i--) {
    const int64_t k = below(d, i + 1);
    const int32_t held = fields[i];
    fields[i] = fields[k];
    fields[k] = held;
  }
}

/* --- mending ---------------------------------------------------------------------------------------------------- */

/* The place of the first rule that refuses the choices; -1 if none does. */
static int32_t first_refusal(const struct drawing *d) {
  for (int32_t i = 0; i < sf_description_rule_count(d->description); i++) {
    const struct sf_conditions rule = sf_description_rule(d->description, i);
    bool refused = true;
    for (int32_t k = 0; refused && k < rule.count; k++) refused = sf_condition_holds(&rule.items[k], d->now.at);
    if (refused) return i;
  }
  return -1;
}

/* Sets the condition's field to a choice that breaks the condition, mostly the plain one; false if there is none. */
static bool leave(struct drawing *d, const struct sf_condition *condition) {
  struct sf_choices next = d->now;
  int32_t *const at = &next.at[condition->field];
  const int64_t count = sf_description_choice_count(d->description, condition->field), first = below(d, 2) ? 0 : below(d, count);
  const int64_t tries = count < 64 ? count : 64;
  for (int64_t i = 0; i < tries; i++) {
    *at = (int32_t)((first + i) % count);
    if (sf_condition_holds(condition, next.at)) continue;
    d->now = next;
    return true;
  }
  return false;
}

/* Sets a field of the rule that is not kept to another choice. */
static bool mend_rule(struct drawing *d, int32_t rule) {
  const struct sf_conditions conditions = sf_description_rule(d->description, rule);
  const int64_t first = conditions.count ? below(d, conditions.count) : 0;
  for (int32_t i = 0; i < conditions.count; i++) {
    const struct sf_condition *condition = &conditions.items[(first + i) % conditions.count];
    if (is_free(d, condition->field) && !d->is_kept[condition->field] && leave(d, condition)) return true;
  }
  return false;
}

/* Draws what a field needs together with it. If that is impossible, sets the field back to plain, unless it is kept. */
static bool mend_need(struct drawing *d, int32_t field, const struct sf_condition *needed) {
  if (needed->count && is_free(d, needed->field) && !d->is_kept[needed->field]) {
    d->now.at[needed->field] = needed->choices[below(d, needed->count)];
    d->is_kept[needed->field] = d->is_kept[field];
    return true;
  }
  if (d->is_kept[field]) return false;
  d->now.at[field] = 0;
  return true;
}

/* The first unmet need of a field that may change; NULL if there is none. */
static const struct sf_condition *first_need(const struct drawing *d, int32_t *field) {
  for (*field = 0; *field < sf_description_field_count(d->description); ++*field) {
    if (d->now.at[*field] == 0 || !is_free(d, *field)) continue;
    const struct sf_conditions needs = sf_description_needs(d->description, *field);
    for (int32_t k = 0; k < needs.count; k++)
      if (!sf_condition_holds(&needs.items[k], d->now.at)) return &needs.items[k];
  }
  return NULL;
}

/* Sets an axis that is not kept back to one rank. */
static bool mend_ranks(struct drawing *d) {
  int32_t axes[SF_DESCRIPTION_FIELDS_MAX];
  const int32_t count = free_fields(axes, d, true);
  for (int32_t i = 0; i < count; i++) {
    if (d->is_kept[axes[i]] || d->now.at[axes[i]] == 0) continue;
    d->now.at[axes[i]] = 0;
    return true;
  }
  return false;
}

/* Mends the case in a few changes; true if it is then allowed, and everything drawn has what it needs. */
static bool mend(struct drawing *d) {
  for (int step = 0; step < REPAIRS_MAX; step++) {
    int32_t field;
    const struct sf_condition *needed = first_need(d, &field);
    const int32_t rule = needed ? -1 : first_refusal(d);
    const bool too_many = sf_description_ranks_at(d->description, d->now.at) > d->space->ranks_max;
    if (!needed && rule < 0 && !too_many) return true;
    if (!(needed ? mend_need(d, field, needed) : rule >= 0 ? mend_rule(d, rule) : mend_ranks(d))) return false;
  }
  return false;
}

/* Sets the field to the choice, and other fields to what goes with it; else changes nothing. */
static bool want(struct drawing *d, int32_t field, int32_t choice) {
  const struct drawing before = *d;
  d->now.at[field] = choice;
  d->is_kept[field] = true;
  if (mend(d)) return true;
  const uint64_t count = d->count;
  *d = before;
  d->count = count;
  return false;
}

/* Sets the field to a choice other than the first, if there is one. */
static bool want_any(struct drawing *d, int32_t field) {
  const int64_t count = sf_description_choice_count(d->description, field);
  return count > 1 && !d->is_kept[field] && want(d, field, (int32_t)(1 + below(d, count - 1)));
}

/* --- what is computed, who computes ----------------------------------------------------------------------------- */

/* Fields of the function that need each other, or the same one, are one group: group[i] is the group's smallest field. */
static void find_groups(int32_t *group, const struct sf_description *description) {
  const int32_t count = sf_description_field_count(description);
  for (int32_t i = 0; i < count; i++) group[i] = i;
  for (int32_t i = 0; i < count; i++) {
    const struct sf_conditions needs = sf_description_needs(description, i);
    for (int32_t k = 0; k < needs.count && !sf_description_field_is_layout(description, i); k++) {
      const int32_t a = group[i], b = group[needs.items[k].field], low = a < b ? a : b, high = a < b ? b : a;
      for (int32_t at = 0; at < count; at++) group[at] = group[at] == high ? low : group[at];
    }
  }
}

/* Draws at least one field of each group that is switched on, and a few of a large group. */
static void draw_function(struct drawing *d, uint64_t density) {
  static const int64_t of[SF_CHOICES_DENSITIES] = {16, 8, 5, 3};
  enum { OF_GROUP_MAX = 6 };
  int32_t fields[SF_DESCRIPTION_FIELDS_MAX], group[SF_DESCRIPTION_FIELDS_MAX];
  int64_t wanted[SF_DESCRIPTION_FIELDS_MAX];
  const int32_t count = free_fields(fields, d, false);
  find_groups(group, d->description);
  for (int32_t i = 0; i < sf_description_field_count(d->description); i++) {
    const bool is_on = below(d, of[density]) == 0;
    wanted[i] = is_on ? 1 + below(d, OF_GROUP_MAX) : 0;
  }
  shuffle(d, fields, count);
  for (int32_t i = 0; i < count; i++)
    if (wanted[group[fields[i]]]-- > 0) (void)want_any(d, fields[i]);
}

/* Draws an axis first (the one whose turn it is, or the next possible one), then other fields of the layout. False: it found no layout of
 * more than one rank. */
static bool draw_layout(struct drawing *d, int64_t turn) {
  static const int64_t of[] = {2, 4, 8};
  int32_t fields[SF_DESCRIPTION_FIELDS_MAX], axes[SF_DESCRIPTION_FIELDS_MAX];
  const int32_t count = free_fields(fields, d, false), axis_count = free_fields(axes, d, true);
  const struct drawing plain = *d;
  bool found = false;
  for (int64_t attempt = 0; attempt < ATTEMPTS && !found; attempt++) {
    const uint64_t drawn = d->count;
    *d = plain;
    d->count = drawn;
    found = (axis_count ? want_any(d, axes[(turn + attempt) % axis_count]) : mend(d)) || mend(d);
    found = found && sf_description_ranks_at(d->description, d->now.at) > 1;
  }
  const int64_t share = of[below(d, sizeof of / sizeof of[0])];
  shuffle(d, fields, count);
  for (int32_t i = 0; i < count && found; i++)
    if (below(d, share) == 0) (void)want_any(d, fields[i]);
  return found;
}

uint64_t sf_choices_axes(const struct sf_choices *function, const struct sf_choice_space *space) {
  const struct drawing plain = begin(space, 0, LAYOUT, function);
  int32_t axes[SF_DESCRIPTION_FIELDS_MAX];
  const int32_t count = free_fields(axes, &plain, true);
  uint64_t possible = 0;
  for (int32_t i = 0; i < count && i < 64; i++) {
    struct drawing d = plain;
    for (int32_t attempt = 0; attempt < 4 && !(possible >> i & 1); attempt++)
      if (want_any(&d, axes[i])) possible |= UINT64_C(1) << i;
  }
  return possible;
}

/* Finds choices that contain the fixed ones; these may need others, of the function or of a layout. */
static bool place_fixed(struct sf_choices *out, const struct sf_choice_space *space) {
  for (uint64_t attempt = 0; attempt < ATTEMPTS; attempt++) {
    struct drawing d = begin(space, attempt, FUNCTION | LAYOUT, out);
    if (!mend(&d)) continue;
    *out = d.now;
    return true;
  }
  return false;
}

/* Keeps the function, and sets the layout to its fixed choices. */
static void without_layout(struct sf_choices *c, const struct sf_choice_space *space) {
  for (int32_t i = 0; i < sf_description_field_count(space->description); i++)
    if (sf_description_field_is_layout(space->description, i)) c->at[i] = space->is_fixed[i] ? space->fixed.at[i] : 0;
}

/* Draws until the function is one that more than one rank can compute. */
static void draw_cuttable(struct sf_choices *out, const struct sf_choice_space *space, uint64_t function, const struct sf_choices *placed) {
  bool cuttable = false;
  for (uint64_t attempt = 0; attempt < ATTEMPTS && !cuttable; attempt++) {
    struct drawing d = begin(space, attempt ? sf_hash_u64(function, attempt) : function, FUNCTION, placed);
    draw_function(&d, function % SF_CHOICES_DENSITIES);
    *out = d.now;
    without_layout(&d.now, space);
    cuttable = sf_choices_axes(&d.now, space) || sf_description_ranks_at(space->description, d.now.at) > 1;
  }
}

enum sf_status sf_choices_draw(struct sf_choices *out, const struct sf_choice_space *space, uint64_t function, int64_t place,
                               uint64_t redraw, struct sf_error *error) {
  struct sf_choices placed = {{0}};
  for (int32_t i = 0; i < sf_description_field_count(space->description); i++)
    if (space->is_fixed[i]) placed.at[i] = space->fixed.at[i];
  if (!place_fixed(&placed, space))
    return sf_error_set(error, SF_EINPUT, "what is fixed does not go together: the worker supports no such case on at most %d ranks",
                        space->ranks_max);
  draw_cuttable(out, space, function, &placed);
  struct sf_choices cut = *out;
  without_layout(&cut, space);
  struct drawing d = begin(space, sf_hash_u64(sf_hash_u64(function, (uint64_t)place + 1), redraw), LAYOUT, &cut);
  if (draw_layout(&d, (int64_t)(sf_hash_u64(function, 0) >> 40) + place + (int64_t)redraw)) *out = d.now;
  return SF_OK;
}
