/* What the files of the codec and the shrinker share. */
#ifndef SF_GENERATORS_CODEC_INTERNAL_H
#define SF_GENERATORS_CODEC_INTERNAL_H

#include "generators/codec.h"
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
_Static_assert((int)SF_CASE_DRAWN <= (int)SF_SPACE_FIELDS_MAX, "a row has every field");

/* Whether it is a field of the layout that reloading goes on with; and the first layout's same field, other fields as they are. */
static inline bool sf_layout_is_second(enum sf_case_field field) { return field >= SF_CASE_SECOND_TP && field <= SF_CASE_SECOND_OVERLAP; }
static inline enum sf_case_field sf_layout_first(enum sf_case_field field) {
  return sf_layout_is_second(field) ? (enum sf_case_field)(field - SF_CASE_SECOND_TP + SF_CASE_TP) : field;
}

enum sf_field_kind sf_field_kind(enum sf_case_field field); /* of its row in fields.def */

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

/* Of the table's kind, see table.h. */
void sf_layers_domain(struct sf_domain *out, int32_t field, const int64_t *row, int64_t swarm, struct sf_bounds *bounds);
int32_t sf_layers_bins(struct sf_range out[SF_BINS_MAX], const struct sf_table *table, int32_t field);
void sf_layers_follow(struct sf_edit *edit, const int64_t *row);
/* Fewer ranks, then layers, then fields that are not at their simplest, then smaller sizes: a total order. */
bool sf_layers_is_simpler(const struct sf_table *table, const int64_t *a, const int64_t *b);
extern const struct sf_shrink_pass sf_layers_passes[];
/* Of the passes, see table.h. */
int32_t sf_layers_pass_fields(int32_t *out, const struct sf_table *table, const int64_t *row, int32_t which);
/* Place of a value among those that the generator draws at a feature's field; SF_DOMAIN_MAX when it never does. */
int32_t sf_domain_rank(enum sf_case_field field, int64_t value);
/* The row of any case, valid or not. Returns true. */
bool sf_layers_row(int64_t *row, const struct sf_table *table, const struct sf_case *c);

/* sf_space_fix of a field. */
void sf_space_fix_field(struct sf_space *space, enum sf_case_field field, const struct sf_case *c);
/* Whether values outside of the generator's own were asked for. */
static inline bool sf_space_asks(const struct sf_space *space, enum sf_case_field field) {
  return space->is_set[field] && !space->is_limited[field];
}

#endif
