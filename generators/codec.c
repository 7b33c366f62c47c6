#include "generators/codec_internal.h"

#include "harness/base/assert.h"
#include "harness/base/bytes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MAX_RANKS = 65536 }; /* more than any case has */

/* One walk over the fields with two ways to choose: at random, or by an edit of a case. */
struct codec {
  const struct sf_space *space;
  struct sf_draw *draw;       /* NULL: an edit */
  const struct sf_case *from; /* the case that an edit changes */
  const struct sf_edit *edit;
  struct sf_bounds bounds;
  struct sf_case to; /* what was decided so far */
  int64_t swarm;
  enum sf_case_field stuck; /* the field at which the walk failed */
};

/* SCHEDULE and SEED may be any number of their range. */
static bool choose_number(struct codec *codec, int64_t *value, enum sf_case_field field) {
  const struct sf_range range = codec->bounds.at[field];
  const uint64_t bound = (uint64_t)(range.hi - range.lo) + 1, likely = UINT64_C(1) << 31;
  const uint32_t zero_percent = field == SF_CASE_SCHEDULE ? 20 : 0;
  if (codec->draw != NULL) {
    *value = range.lo + (int64_t)sf_draw_number(codec->draw, bound, likely, zero_percent);
    return true;
  }
  *value = sf_drawn_get(codec->from, field);
  if (codec->edit->kind[field] == SF_EDIT_RESET) *value = range.lo;
  if (codec->edit->kind[field] == SF_EDIT_ASSIGN) *value = codec->edit->value[field];
  return *value >= range.lo && *value <= range.hi;
}

/* The value that an edit wants for a field, if the bounds allow it; false: take the simplest one. */
static bool wanted_value(struct codec *codec, int64_t *value, enum sf_case_field field) {
  const enum sf_edit_kind kind = codec->edit->kind[field];
  if (kind == SF_EDIT_RESET) return false;
  *value = kind == SF_EDIT_ASSIGN ? codec->edit->value[field] : sf_drawn_get(codec->from, field);
  if (kind != SF_EDIT_PREFER) return true; /* the bounds hold nothing else */
  if (*value < codec->bounds.at[field].lo || *value > codec->bounds.at[field].hi) return false;
  return sf_bounds_allow(&codec->bounds, field, (struct sf_range){*value, *value});
}

/* The index of the largest value below `value`; of the simplest one if there is none. */
static int32_t next_smaller(const struct sf_domain *domain, int64_t value) {
  int32_t best = -1;
  for (int32_t i = 0; i < domain->count; i++)
    if (domain->values[i] < value && (best < 0 || domain->values[i] > domain->values[best])) best = i;
  return best < 0 ? 0 : best;
}

static bool choose(struct codec *codec, int64_t *value, enum sf_case_field field) {
  struct sf_domain domain;
  if (sf_field_is_number(field)) return choose_number(codec, value, field);
  if (codec->edit != NULL && wanted_value(codec, value, field)) return true;
  sf_domain_create(&domain, field, &codec->to, codec->swarm, &codec->bounds, sf_space_asks(codec->space, field));
  if (domain.count == 0) return false;
  int32_t at = 0;
  if (codec->draw != NULL)
    at = (int32_t)sf_draw_choice(codec->draw, (uint64_t)domain.count, domain.weights);
  else if (codec->edit->kind[field] == SF_EDIT_PREFER)
    at = next_smaller(&domain, *value);
  *value = domain.values[at];
  return true;
}

static bool walk(struct codec *codec) {
  static const uint32_t alike[SF_SWARMS] = {1, 1, 1};
  sf_case_init(&codec->to);
  codec->swarm = codec->draw != NULL ? (int64_t)sf_draw_choice(codec->draw, SF_SWARMS, alike) : 0;
  for (int i = 0; i < SF_CASE_DRAWN; i++) {
    const enum sf_case_field field = (enum sf_case_field)i;
    int64_t value = 0;
    codec->stuck = field;
    if (!choose(codec, &value, field)) return false;
    if (!sf_bounds_narrow(&codec->bounds, field, (struct sf_range){value, value})) return false;
    sf_drawn_put(&codec->to, field, value);
  }
  return true;
}

/* --- decode ------------------------------------------------------------------------------------------------------- */

static bool is_narrowed(const struct sf_space *space, enum sf_case_field field) {
  return space->is_set[field] || (field == SF_CASE_COMPUTE && space->formats_left_out != 0);
}

static void widen(struct sf_space *space, enum sf_case_field field) {
  space->is_set[field] = false;
  if (field == SF_CASE_COMPUTE) space->formats_left_out = 0;
}

static bool is_feasible(const struct sf_space *space) {
  struct sf_bounds bounds;
  sf_bounds_init(&bounds, space);
  return sf_bounds_solve(&bounds);
}

/* Appends the setting, or only its path if it is not set. */
static void append_setting(struct sf_text *out, const struct sf_space *space, enum sf_case_field field) {
  sf_text_append(out, "%s", out->length > 0 ? ", " : "");
  if (space->is_set[field])
    sf_drawn_append(out, field, space->set[field]);
  else
    sf_text_append(out, "%s", sf_case_fields[field].path);
}

/* No case lies in the space: names a smallest set of settings that exclude each other. */
static enum sf_status explain(const struct sf_space *space, struct sf_error *error) {
  struct sf_space core = *space;
  struct sf_text names = {0};
  sf_text_append(&names, "%s", "");
  core.max_ranks = MAX_RANKS;
  const bool ranks_forbid = is_feasible(&core);
  if (ranks_forbid) core.max_ranks = space->max_ranks;
  for (int i = 0; i < SF_CASE_DRAWN; i++) {
    const enum sf_case_field field = (enum sf_case_field)i;
    struct sf_space without = core;
    if (!is_narrowed(&core, field)) continue;
    widen(&without, field);
    if (is_feasible(&without))
      append_setting(&names, &core, field);
    else
      core = without;
  }
  if (ranks_forbid) sf_text_append(&names, "%s--max-ranks %" PRId64, names.length > 0 ? ", " : "", space->max_ranks);
  const enum sf_status status =
      names.failed ? sf_error_set(error, SF_ENOMEM, "out of memory")
                   : sf_error_set(error, SF_EINPUT, "no case has all of these together: %s; leave one out or change it", names.data);
  sf_text_destroy(&names);
  return status;
}

enum sf_status sf_codec_decode(struct sf_case *out, struct sf_draw *draw, const struct sf_space *space, struct sf_error *error) {
  return sf_codec_decode_within(out, draw, space, NULL, error);
}

enum sf_status sf_codec_decode_within(struct sf_case *out, struct sf_draw *draw, const struct sf_space *space,
                                      const struct sf_range limits[SF_CASE_DRAWN], struct sf_error *error) {
  struct codec codec = {.space = space, .draw = draw};
  struct sf_error reason = {0};
  sf_bounds_init(&codec.bounds, space);
  for (int i = 0; limits != NULL && i < SF_CASE_DRAWN; i++) {
    struct sf_range *range = &codec.bounds.at[i];
    if (limits[i].lo > range->lo) range->lo = limits[i].lo;
    if (limits[i].hi < range->hi) range->hi = limits[i].hi;
    if (range->lo > range->hi) return sf_error_set(error, SF_EINPUT, "%s: the limits leave no value", sf_case_fields[i].path);
  }
  if (!sf_bounds_solve(&codec.bounds)) {
    return is_feasible(space) ? sf_error_set(error, SF_EINPUT, "no case fits the limits of this draw: they were made for another space")
                              : explain(space, error);
  }
  if (!walk(&codec)) return sf_error_set(error, SF_EINPUT, "%s: no value fits the fields that are set", sf_case_fields[codec.stuck].path);
  memcpy(codec.to.target, space->target, sizeof codec.to.target);
  memcpy(codec.to.plant, space->plant, sizeof codec.to.plant);
  if (sf_case_validate(&codec.to, &reason) != SF_OK)
    return sf_error_set(error, SF_EINPUT, "no case fits the fields that are set: %.400s", reason.text);
  *out = codec.to;
  return SF_OK;
}

/* --- what a space lacks ------------------------------------------------------------------------------------------- */

static bool is_drawn(enum sf_case_field field, int64_t value, const struct sf_case *c, struct sf_bounds *bounds) {
  struct sf_domain domain;
  if (sf_field_is_number(field)) return true;
  sf_domain_create(&domain, field, c, 0, bounds, sf_space_asks(bounds->space, field));
  for (int32_t i = 0; i < domain.count; i++)
    if (domain.values[i] == value) return true;
  return false;
}

/* Follows the walk that would draw the case. It first allows what the space forbids, so that it can go on to the other fields. */
int32_t sf_codec_undrawn(const char *paths[SF_SPACE_FIELDS_MAX], const struct sf_case *c, const struct sf_space *space) {
  struct sf_space allowing = *space;
  struct sf_bounds bounds;
  int32_t count = 0;
  if (sf_case_ranks(c) > space->max_ranks) paths[count++] = "max_ranks";
  for (int i = 0; i < SF_CASE_DRAWN; i++) {
    const enum sf_case_field field = (enum sf_case_field)i;
    const int64_t value = sf_drawn_get(c, field);
    const bool is_left_out = field == SF_CASE_COMPUTE && space->formats_left_out >> value & 1;
    if (!is_left_out && (!space->is_set[i] || (value >= space->set[i].lo && value <= space->set[i].hi))) continue;
    sf_space_fix_field(&allowing, field, c);
    paths[count++] = sf_case_fields[field].path;
  }
  sf_bounds_init_around(&bounds, &allowing, c);
  (void)sf_bounds_solve(&bounds);
  for (int i = 0; i < SF_CASE_DRAWN; i++) {
    const int64_t value = sf_drawn_get(c, (enum sf_case_field)i);
    if (!is_drawn((enum sf_case_field)i, value, c, &bounds)) paths[count++] = sf_case_fields[i].path;
    (void)sf_bounds_narrow(&bounds, (enum sf_case_field)i, (struct sf_range){value, value});
  }
  return count;
}

/* --- edit --------------------------------------------------------------------------------------------------------- */

bool sf_codec_edit(struct sf_case *out, const struct sf_case *c, const struct sf_space *space, const struct sf_edit *edit) {
  struct codec codec = {.space = space, .from = c, .edit = edit};
  sf_bounds_init_around(&codec.bounds, space, c);
  for (int i = 0; i < SF_CASE_DRAWN; i++) {
    const enum sf_case_field field = (enum sf_case_field)i;
    struct sf_range *range = &codec.bounds.at[field];
    if (edit->kind[field] == SF_EDIT_KEEP) {
      range->lo = range->hi = sf_drawn_get(c, field);
    } else if (edit->kind[field] == SF_EDIT_ASSIGN) {
      if (edit->value[field] < range->lo || edit->value[field] > range->hi) return false;
      range->lo = range->hi = edit->value[field];
    }
  }
  if (!sf_bounds_solve(&codec.bounds) || !walk(&codec)) return false;
  memcpy(codec.to.target, c->target, sizeof codec.to.target);
  memcpy(codec.to.plant, c->plant, sizeof codec.to.plant);
  codec.to.expect = c->expect;
  if (sf_case_validate(&codec.to, NULL) != SF_OK) return false;
  *out = codec.to;
  return true;
}
