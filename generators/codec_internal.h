/* What the files of the codec and the shrinker share. */
#ifndef SF_GENERATORS_CODEC_INTERNAL_H
#define SF_GENERATORS_CODEC_INTERNAL_H

#include "generators/codec.h"
#include "harness/base/bytes.h"
#include "harness/space/solver.h"
#include "harness/spec/case_rules.h"

/* The walk: every field that is drawn, in this order. SWARM is no field: it only tilts the weights of the features, so that rare ones meet.
 */
enum sf_walk {
  SF_WALK_SWARM,
#define FIELD(place, ...) SF_WALK_##place,
#include "harness/spec/fields.def"
  SF_WALK_COUNT
};
enum sf_walk_kind {
  SF_WALK_KIND_CHOICE,
  SF_WALK_KIND_FEATURE,
  SF_WALK_KIND_COUNT,
  SF_WALK_KIND_RARE_COUNT,
  SF_WALK_KIND_SIZE,
  SF_WALK_KIND_AXIS,
  SF_WALK_KIND_NUMBER
};
_Static_assert(SF_WALK_SECOND_OVERLAP - SF_WALK_SECOND_TP == SF_WALK_OVERLAP - SF_WALK_TP, "the second layout is walked as the first");
_Static_assert((int)SF_WALK_COUNT <= (int)SF_SPACE_FIELDS_MAX, "every place of the walk has one in a space");

/* Places of the layout that reloading goes on with, and the first layout's place of the same field. */
static inline bool sf_walk_is_second(enum sf_walk place) { return place >= SF_WALK_SECOND_TP && place <= SF_WALK_SECOND_OVERLAP; }
static inline enum sf_walk sf_walk_first(enum sf_walk place) {
  return sf_walk_is_second(place) ? (enum sf_walk)(place - SF_WALK_SECOND_TP + SF_WALK_TP) : place;
}

const char *sf_walk_path(enum sf_walk place); /* "swarm" for SF_WALK_SWARM */
enum sf_walk_kind sf_walk_kind(enum sf_walk place);

/* The value of a place in a case; the order's is its number among the permutations of the axes (0: the default). */
int64_t sf_walk_get(const struct sf_case *c, const struct sf_space *space, enum sf_walk place);
void sf_walk_put(struct sf_case *c, const struct sf_space *space, enum sf_walk place, int64_t value);

/* Permutations of the axes in lexicographic order of sf_axis; -1 for a text that is none. */
enum { SF_ORDER_COUNT = 120 };
void sf_order_text(char out[SF_ORDER_TEXT], int64_t number);
/* Appends a setting as --set takes it: "layout.tp=2..8", "layout.cp_comm=ring". */
void sf_walk_append(struct sf_text *out, enum sf_walk place, struct sf_range range);
int64_t sf_order_number(const char *text);

/* What each place may still become: decided places are single values. */
struct sf_bounds {
  const struct sf_space *space; /* borrowed */
  struct sf_range at[SF_WALK_COUNT];
  int64_t max_ranks;
  bool may_train_nothing;  /* a case where every parameter is frozen was asked for, field by field */
  struct sf_solver solver; /* of what stands above, once solved */
};
void sf_bounds_init(struct sf_bounds *bounds, const struct sf_space *space);
/* The same, as wide as the case needs them: its world, and that nothing of it is trained. */
void sf_bounds_init_around(struct sf_bounds *bounds, const struct sf_space *space, const struct sf_case *c);
/* Whether a valid case, with something to train, lies within the bounds. Prepares them for the questions below. */
bool sf_bounds_solve(struct sf_bounds *bounds);
/* Whether one of them has the place within this range; and makes it so. */
bool sf_bounds_allow(struct sf_bounds *bounds, enum sf_walk place, struct sf_range range);
bool sf_bounds_narrow(struct sf_bounds *bounds, enum sf_walk place, struct sf_range range);

/* The values of a place that are feasible within the bounds, simplest first, with the weights of random draws. */
enum { SF_DOMAIN_MAX = 192 };
struct sf_domain {
  int32_t count;
  int64_t values[SF_DOMAIN_MAX];
  uint32_t weights[SF_DOMAIN_MAX];
};
/* c holds what was decided before; swarm is the choice at SF_WALK_SWARM. Empty when nothing is feasible. */
void sf_domain_create(struct sf_domain *out, enum sf_walk place, const struct sf_case *c, int64_t swarm, struct sf_bounds *bounds,
                      bool is_asked);
/* Place of a value among those that the generator draws at a feature's place; SF_DOMAIN_MAX when it never does. */
int32_t sf_domain_rank(enum sf_walk place, int64_t value);

/* The classes of a place's values for covering, within range: each value of a place that has few, the small ones and the rest of a number.
 * Ascending and disjoint; none for places whose values have no classes. */
enum { SF_LEVELS_MAX = 16 };
int32_t sf_domain_levels(struct sf_range out[SF_LEVELS_MAX], enum sf_walk place, struct sf_range range, int64_t max_ranks);

/* sf_codec_decode, with every place within limits[place] too. */
enum sf_status sf_codec_decode_within(struct sf_case *out, struct sf_draw *draw, const struct sf_space *space,
                                      const struct sf_range limits[SF_WALK_COUNT], struct sf_error *error) SF_MUST_USE;

/* SCHEDULE and SEED are numbers of 63 bits rather than an index into a domain. */
static inline bool sf_walk_is_number(enum sf_walk place) { return sf_walk_kind(place) == SF_WALK_KIND_NUMBER && place != SF_WALK_SWARM; }

/* How an edit treats a place: keep its value; keep it if the other edits allow, else take the next smaller value that they allow,
 * so that a feature stays on if it can; take the simplest; or take `value`. */
enum sf_edit_kind { SF_EDIT_KEEP, SF_EDIT_PREFER, SF_EDIT_RESET, SF_EDIT_ASSIGN };
struct sf_edit {
  enum sf_edit_kind kind[SF_WALK_COUNT];
  int64_t value[SF_WALK_COUNT];
};
/* The case that an edit makes of c, in the space; false when there is none. */
bool sf_codec_edit(struct sf_case *out, const struct sf_case *c, const struct sf_space *space, const struct sf_edit *edit);

/* Whether values outside of the generator's own were asked for. */
static inline bool sf_space_asks(const struct sf_space *space, enum sf_walk place) {
  return space->is_set[place] && !space->is_limited[place];
}

#endif
