/* What the files of the codec and the shrinker share. */
#ifndef SF_GENERATORS_CODEC_INTERNAL_H
#define SF_GENERATORS_CODEC_INTERNAL_H

#include "generators/codec.h"
#include "harness/base/bytes.h"
#include "harness/space/solver.h"
#include "harness/spec/case_rules.h"

/* How drawing and shrinking treat a field (harness/spec/fields.def). */
enum sf_field_kind {
  SF_KIND_OF_CHOICE,
  SF_KIND_OF_FEATURE,
  SF_KIND_OF_COUNT,
  SF_KIND_OF_RARE_COUNT,
  SF_KIND_OF_SIZE,
  SF_KIND_OF_AXIS,
  SF_KIND_OF_NUMBER
};
_Static_assert(SF_CASE_SECOND_OVERLAP - SF_CASE_SECOND_TP == SF_CASE_OVERLAP - SF_CASE_TP, "the second layout is drawn as the first");
_Static_assert((int)SF_CASE_DRAWN <= (int)SF_SPACE_FIELDS_MAX, "a space has every field");

/* Whether it is a field of the layout that reloading goes on with; and the first layout's same field, other fields as they are. */
static inline bool sf_layout_is_second(enum sf_case_field field) { return field >= SF_CASE_SECOND_TP && field <= SF_CASE_SECOND_OVERLAP; }
static inline enum sf_case_field sf_layout_first(enum sf_case_field field) {
  return sf_layout_is_second(field) ? (enum sf_case_field)(field - SF_CASE_SECOND_TP + SF_CASE_TP) : field;
}

enum sf_field_kind sf_field_kind(enum sf_case_field field);  /* of its row in fields.def */

/* The value of a field in a case; an order's is its number among the permutations of the axes (0: the default). */
int64_t sf_drawn_get(const struct sf_case *c, enum sf_case_field field);
/* Writes such a value into the case. */
void sf_drawn_put(struct sf_case *c, enum sf_case_field field, int64_t value);

enum { SF_ORDER_COUNT = 120 };
/* Permutations of the axes, numbered in lexicographic order of sf_axis: number to text, and back (-1 for a text that is none). */
void sf_order_text(char out[SF_ORDER_TEXT], int64_t number); /* "tp-cp-ep-dp-pp" is 0; asserts that the number is one */
int64_t sf_order_number(const char *text);
/* Appends a setting as --set takes it: "layout.tp=2..8", "layout.cp_comm=ring". */
void sf_drawn_append(struct sf_text *out, enum sf_case_field field, struct sf_range range);

/* What each field may still become: decided fields are single values. */
struct sf_bounds {
  const struct sf_space *space; /* borrowed */
  struct sf_range at[SF_CASE_DRAWN];
  int64_t max_ranks;
  bool may_train_nothing;  /* a case where every parameter is frozen was asked for, field by field */
  struct sf_solver solver; /* of what stands above, once solved */
};
/* As wide as the space: the values that are set in it, and elsewhere every value that a file may give. */
void sf_bounds_init(struct sf_bounds *bounds, const struct sf_space *space);
/* The same, as wide as the case needs them: its world, and that nothing of it is trained. */
void sf_bounds_init_around(struct sf_bounds *bounds, const struct sf_space *space, const struct sf_case *c);
/* Whether a valid case, with something to train, lies within the bounds. Prepares them for the questions below. */
bool sf_bounds_solve(struct sf_bounds *bounds);
/* Whether one of them has the field within this range. The second also narrows the bounds to it, whatever it answers. */
bool sf_bounds_allow(struct sf_bounds *bounds, enum sf_case_field field, struct sf_range range);
bool sf_bounds_narrow(struct sf_bounds *bounds, enum sf_case_field field, struct sf_range range);

/* The values of a field that are feasible within the bounds, simplest first, with the weights of random draws. */
enum { SF_DOMAIN_MAX = 192, SF_SWARMS = 3 };
struct sf_domain {
  int32_t count;
  int64_t values[SF_DOMAIN_MAX];
  uint32_t weights[SF_DOMAIN_MAX];
};
/* c holds what was decided before; swarm is how features are tilted (0 to SF_SWARMS - 1); is_asked: sf_space_asks of the field.
 * Empty when nothing is feasible. */
void sf_domain_create(struct sf_domain *out, enum sf_case_field field, const struct sf_case *c, int64_t swarm, struct sf_bounds *bounds,
                      bool is_asked);
/* Place of a value among those that the generator draws at a feature's field; SF_DOMAIN_MAX when it never does. */
int32_t sf_domain_rank(enum sf_case_field field, int64_t value);

enum { SF_BINS_MAX = 16 };
/* The classes of a field's values for covering, within range: each value of a field that has few, the small ones and the rest of a number.
 * Ascending and disjoint; none for fields whose values have no classes. Returns how many. */
int32_t sf_domain_bins(struct sf_range out[SF_BINS_MAX], enum sf_case_field field, struct sf_range range, int64_t max_ranks);

/* sf_codec_decode, with every field within limits[field] too. */
enum sf_status sf_codec_decode_within(struct sf_case *out, struct sf_draw *draw, const struct sf_space *space,
                                      const struct sf_range limits[SF_CASE_DRAWN], struct sf_error *error) SF_MUST_USE;

/* SCHEDULE and SEED are numbers of 63 bits rather than an index into a domain. */
static inline bool sf_field_is_number(enum sf_case_field field) { return sf_field_kind(field) == SF_KIND_OF_NUMBER; }

/* How an edit treats a field: keep its value; keep it if the other edits allow, else take the next smaller value that they allow,
 * so that a feature stays on if it can; take the simplest; or take `value`. */
enum sf_edit_kind { SF_EDIT_KEEP, SF_EDIT_PREFER, SF_EDIT_RESET, SF_EDIT_ASSIGN };
struct sf_edit {
  enum sf_edit_kind kind[SF_CASE_DRAWN];
  int64_t value[SF_CASE_DRAWN];
};
/* The case that an edit makes of c, in the space; false when there is none. */
bool sf_codec_edit(struct sf_case *out, const struct sf_case *c, const struct sf_space *space, const struct sf_edit *edit);

/* sf_space_fix of a field. */
void sf_space_fix_field(struct sf_space *space, enum sf_case_field field, const struct sf_case *c);
/* Whether values outside of the generator's own were asked for. */
static inline bool sf_space_asks(const struct sf_space *space, enum sf_case_field field) {
  return space->is_set[field] && !space->is_limited[field];
}

#endif
