#include "generators/codec_internal.h"

#include "harness/base/assert.h"
#include "harness/base/bytes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MAX_RANKS = 65536 }; /* more than any case has */

/* One walk, two ways to choose: choices are drawn, or an edit changes a case. */
struct codec {
  const struct sf_space *space;
  struct sf_draw *draw;       /* NULL: an edit */
  const struct sf_case *from; /* of an edit */
  const struct sf_edit *edit;
  struct sf_bounds bounds;
  struct sf_case to; /* what was decided so far */
  int64_t swarm;
  enum sf_walk stuck; /* the place at which the walk failed */
};

/* SCHEDULE and SEED: any number of their range. */
static bool choose_number(struct codec *codec, int64_t *value, enum sf_walk place) {
  const struct sf_range range = codec->bounds.at[place];
  const uint64_t bound = (uint64_t)(range.hi - range.lo) + 1, likely = UINT64_C(1) << 31;
  const uint32_t zero_percent = place == SF_WALK_SCHEDULE ? 20 : 0;
  if (codec->draw != NULL) {
    *value = range.lo + (int64_t)sf_draw_number(codec->draw, bound, likely, zero_percent);
    return true;
  }
  *value = sf_walk_get(codec->from, codec->space, place);
  if (codec->edit->kind[place] == SF_EDIT_RESET) *value = range.lo;
  if (codec->edit->kind[place] == SF_EDIT_ASSIGN) *value = codec->edit->value[place];
  return *value >= range.lo && *value <= range.hi;
}

/* The value that an edit wants at a place and the bounds allow; false when the simplest is to be taken. */
static bool wanted_value(struct codec *codec, int64_t *value, enum sf_walk place) {
  const enum sf_edit_kind kind = codec->edit->kind[place];
  if (kind == SF_EDIT_RESET) return false;
  *value = kind == SF_EDIT_ASSIGN ? codec->edit->value[place] : sf_walk_get(codec->from, codec->space, place);
  if (kind != SF_EDIT_PREFER) return true; /* the bounds hold nothing else */
  if (*value < codec->bounds.at[place].lo || *value > codec->bounds.at[place].hi) return false;
  return sf_bounds_allow(&codec->bounds, place, (struct sf_range){*value, *value});
}

/* The largest value below `value`; the simplest when there is none. */
static int32_t next_smaller(const struct sf_domain *domain, int64_t value) {
  int32_t best = -1;
  for (int32_t i = 0; i < domain->count; i++)
    if (domain->values[i] < value && (best < 0 || domain->values[i] > domain->values[best])) best = i;
  return best < 0 ? 0 : best;
}

static bool choose(struct codec *codec, int64_t *value, enum sf_walk place) {
  struct sf_domain domain;
  if (sf_walk_is_number(place)) return choose_number(codec, value, place);
  if (codec->edit != NULL && wanted_value(codec, value, place)) return true;
  sf_domain_create(&domain, place, &codec->to, codec->swarm, &codec->bounds, sf_space_asks(codec->space, place));
  if (domain.count == 0) return false;
  int32_t at = 0;
  if (codec->draw != NULL)
    at = (int32_t)sf_draw_choice(codec->draw, (uint64_t)domain.count, domain.weights);
  else if (codec->edit->kind[place] == SF_EDIT_PREFER)
    at = next_smaller(&domain, *value);
  *value = domain.values[at];
  return true;
}

static bool walk(struct codec *codec) {
  sf_case_init(&codec->to);
  codec->swarm = 0;
  for (int i = 0; i < SF_WALK_COUNT; i++) {
    const enum sf_walk place = (enum sf_walk)i;
    int64_t value = 0;
    codec->stuck = place;
    if (!choose(codec, &value, place)) return false;
    if (!sf_bounds_narrow(&codec->bounds, place, (struct sf_range){value, value})) return false;
    if (place == SF_WALK_SWARM) codec->swarm = value;
    sf_walk_put(&codec->to, codec->space, place, value);
  }
  return true;
}

/* --- decode ------------------------------------------------------------------------------------------------------- */

static bool is_narrowed(const struct sf_space *space, enum sf_walk place) {
  return space->is_set[place] || (place == SF_WALK_COMPUTE && space->formats_left_out != 0);
}

static void widen(struct sf_space *space, enum sf_walk place) {
  space->is_set[place] = false;
  if (place == SF_WALK_COMPUTE) space->formats_left_out = 0;
}

static bool is_feasible(const struct sf_space *space) {
  struct sf_bounds bounds;
  sf_bounds_init(&bounds, space);
  return sf_bounds_solve(&bounds);
}

/* The setting, or where it is not set its path alone. */
static void append_setting(struct sf_text *out, const struct sf_space *space, enum sf_walk place) {
  sf_text_append(out, "%s", out->length > 0 ? ", " : "");
  if (space->is_set[place])
    sf_walk_append(out, place, space->set[place]);
  else
    sf_text_append(out, "%s", sf_walk_path(place));
}

/* No case lies in the space: names a smallest set of settings that no case has together. */
static enum sf_status explain(const struct sf_space *space, struct sf_error *error) {
  struct sf_space core = *space;
  struct sf_text names = {0};
  sf_text_append(&names, "%s", "");
  core.max_ranks = MAX_RANKS;
  const bool ranks_forbid = is_feasible(&core);
  if (ranks_forbid) core.max_ranks = space->max_ranks;
  for (int i = SF_WALK_SWARM + 1; i < SF_WALK_COUNT; i++) {
    const enum sf_walk place = (enum sf_walk)i;
    struct sf_space without = core;
    if (!is_narrowed(&core, place)) continue;
    widen(&without, place);
    if (is_feasible(&without))
      append_setting(&names, &core, place);
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
                                      const struct sf_range limits[SF_WALK_COUNT], struct sf_error *error) {
  struct codec codec = {.space = space, .draw = draw};
  struct sf_error reason = {0};
  sf_bounds_init(&codec.bounds, space);
  for (int i = SF_WALK_SWARM + 1; limits != NULL && i < SF_WALK_COUNT; i++) {
    struct sf_range *range = &codec.bounds.at[i];
    if (limits[i].lo > range->lo) range->lo = limits[i].lo;
    if (limits[i].hi < range->hi) range->hi = limits[i].hi;
    if (range->lo > range->hi) return sf_error_set(error, SF_EINPUT, "%s: the limits leave no value", sf_walk_path((enum sf_walk)i));
  }
  if (!sf_bounds_solve(&codec.bounds)) {
    return is_feasible(space) ? sf_error_set(error, SF_EINPUT, "no case fits the limits of this draw: they were made for another space")
                              : explain(space, error);
  }
  if (!walk(&codec)) return sf_error_set(error, SF_EINPUT, "%s: no value fits the fields that are set", sf_walk_path(codec.stuck));
  memcpy(codec.to.target, space->target, sizeof codec.to.target);
  memcpy(codec.to.plant, space->plant, sizeof codec.to.plant);
  if (sf_case_validate(&codec.to, &reason) != SF_OK)
    return sf_error_set(error, SF_EINPUT, "no case fits the fields that are set: %.400s", reason.text);
  *out = codec.to;
  return SF_OK;
}

/* --- what a space lacks ------------------------------------------------------------------------------------------- */

static bool is_drawn(enum sf_walk place, int64_t value, const struct sf_case *c, struct sf_bounds *bounds) {
  struct sf_domain domain;
  if (sf_walk_is_number(place)) return true;
  sf_domain_create(&domain, place, c, 0, bounds, sf_space_asks(bounds->space, place));
  for (int32_t i = 0; i < domain.count; i++)
    if (domain.values[i] == value) return true;
  return false;
}

/* The walk that draws the case. What the space forbids is allowed first, so that the rest can be asked for. */
int32_t sf_codec_undrawn(const char *paths[SF_SPACE_FIELDS_MAX], const struct sf_case *c, const struct sf_space *space) {
  struct sf_space allowing = *space;
  struct sf_bounds bounds;
  int32_t count = 0;
  if (sf_case_ranks(c) > space->max_ranks) paths[count++] = "max_ranks";
  for (int i = SF_WALK_SWARM + 1; i < SF_WALK_COUNT; i++) {
    const enum sf_walk place = (enum sf_walk)i;
    const int64_t value = sf_walk_get(c, space, place);
    const bool is_left_out = place == SF_WALK_COMPUTE && space->formats_left_out >> value & 1;
    if (!is_left_out && (!space->is_set[i] || (value >= space->set[i].lo && value <= space->set[i].hi))) continue;
    sf_space_fix(&allowing, sf_walk_path(place), c);
    paths[count++] = sf_walk_path(place);
  }
  sf_bounds_init_around(&bounds, &allowing, c);
  (void)sf_bounds_solve(&bounds);
  for (int i = SF_WALK_SWARM + 1; i < SF_WALK_COUNT; i++) {
    const int64_t value = sf_walk_get(c, space, (enum sf_walk)i);
    if (!is_drawn((enum sf_walk)i, value, c, &bounds)) paths[count++] = sf_walk_path((enum sf_walk)i);
    (void)sf_bounds_narrow(&bounds, (enum sf_walk)i, (struct sf_range){value, value});
  }
  return count;
}

/* --- edit --------------------------------------------------------------------------------------------------------- */

bool sf_codec_edit(struct sf_case *out, const struct sf_case *c, const struct sf_space *space, const struct sf_edit *edit) {
  struct codec codec = {.space = space, .from = c, .edit = edit};
  sf_bounds_init_around(&codec.bounds, space, c);
  for (int i = SF_WALK_SWARM + 1; i < SF_WALK_COUNT; i++) {
    const enum sf_walk place = (enum sf_walk)i;
    struct sf_range *range = &codec.bounds.at[place];
    if (edit->kind[place] == SF_EDIT_KEEP) {
      range->lo = range->hi = sf_walk_get(c, space, place);
    } else if (edit->kind[place] == SF_EDIT_ASSIGN) {
      if (edit->value[place] < range->lo || edit->value[place] > range->hi) return false;
      range->lo = range->hi = edit->value[place];
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
