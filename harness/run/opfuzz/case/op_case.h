/* Cases of operation fuzzing: what is drawn, what a file holds, what shrinking edits. A case is a row of whole numbers with names; 0 is the
 * simplest of each but for a dimension's smallest size. Case i of a campaign is a function of (seed, target, i) alone. */
#ifndef SF_RUN_OP_CASE_H
#define SF_RUN_OP_CASE_H

#include "harness/spec/case.h"
#include "oracles/ops/op.h"

enum {
  SF_OP_SEED,
  SF_OP_STORE,    /* enum sf_dtype of what is stored */
  SF_OP_INPUTS,   /* enum sf_dtype whose grid the inputs lie on; of a plugin the same format, or fp32 for a cast */
  SF_OP_SPECIAL,  /* of enum sf_op_special: what some elements of the inputs are replaced by */
  SF_OP_IN_PLACE, /* outputs share the memory of their input */
  SF_OP_DIM,
  SF_OP_ATTR = SF_OP_DIM + SF_OP_DIMS_MAX,
  SF_OP_VALUES = SF_OP_ATTR + SF_OP_ATTRS_MAX,     /* per operand: enum sf_op_values */
  SF_OP_START = SF_OP_VALUES + SF_OP_OPERANDS_MAX, /* per operand: elements that its data begins after an aligned address */
  SF_OP_PAD = SF_OP_START + SF_OP_OPERANDS_MAX,    /* per operand: elements between rows; of plugins above SF_OP_PAD_MAX: rows far apart */
  SF_OP_FIELDS = SF_OP_PAD + SF_OP_OPERANDS_MAX
};
/* Rows that lie so far apart that the second one's index does not fit into a signed number of 32 bits, nor the third one's into an unsigned
 * one. */
#define SF_OP_FAR_PAD (INT64_C(1) << 31)
enum { SF_OP_FAR_ROWS = 4, SF_OP_FAR_SPREAD = 64 };
enum { SF_OP_START_MAX = 15, SF_OP_PAD_MAX = 300, SF_OP_ENTRIES_MAX = 128, SF_OP_PATH = SF_TARGET_TEXT - 16, SF_OP_DIM_LIMIT = 1 << 20 };

#define SF_OP_SPECIAL_MAP(X)                                                                                                               \
  X(SF_OP_PLAIN, "none")                                                                                                                   \
  X(SF_OP_TINY, "tiny") X(SF_OP_HUGE, "huge") X(SF_OP_INFINITE, "infinite") X(SF_OP_NAN, "nan") X(SF_OP_MIXED, "mixed")
enum sf_op_special { SF_OP_SPECIAL_MAP(SF_OP_CONSTANT) SF_OP_SPECIAL_COUNT };
/* The first six are enum sf_value_dist. INTEGERS -4..4, TIES five values, SMALL normal 2^-10, LARGE normal 2^12, FAR 1000 + normal, MASKED
 * normal with one in four -10000 or -infinity (scores only). */
#define SF_OP_MORE_VALUES_MAP(X)                                                                                                           \
  X(SF_OP_INTEGERS, "integers")                                                                                                            \
  X(SF_OP_TIES, "ties") X(SF_OP_SMALL, "small") X(SF_OP_LARGE, "large") X(SF_OP_FAR, "far") X(SF_OP_MASKED, "masked")
enum sf_op_values { SF_OP_NORMAL, SF_OP_LAST_DIST = SF_DIST_COUNT - 1, SF_OP_MORE_VALUES_MAP(SF_OP_CONSTANT) SF_OP_VALUES_COUNT };

struct sf_op_case {
  int32_t entry; /* of the target */
  int64_t field[SF_OP_FIELDS];
};

/* One operation of a target and what it takes of it. */
struct sf_op_entry {
  const struct sf_op *op;
  int32_t declared; /* number of the plugin's declaration; -1: the device's */
  bool backward;    /* its function of that name */
  uint32_t stores;
  bool strided, unaligned, in_place;
  int64_t attr_fixed[SF_OP_ATTRS_MAX]; /* -1: free */
  int64_t dim_max[SF_OP_DIMS_MAX], dim_multiple[SF_OP_DIMS_MAX];
};

struct sf_op_target {
  char name[SF_TARGET_TEXT]; /* "op:gelu_fwd", "plugin:/path/lib.so" */
  char path[SF_OP_PATH];     /* of the plugin; empty: the device */
  int32_t entry_count;
  struct sf_op_entry entries[SF_OP_ENTRIES_MAX];
  int64_t max_elements; /* of all operands of a case together, at least 64 */
};

/* The operation that the case calls. */
static inline const struct sf_op *sf_op_of(const struct sf_op_target *target, const struct sf_op_case *c) {
  return target->entries[c->entry].op;
}

/* Whether the operation has this field of a case (its place in `field`). */
bool sf_op_field_present(const struct sf_op *op, int32_t field);
/* The name of a field of an operation, "values.x"; false when the operation has no such field. */
bool sf_op_field_name(char *out, size_t size, const struct sf_op *op, int32_t field);
/* The word that a field's number is written by, "bf16"; NULL: it is written as a number. */
const char *sf_op_value_name(int32_t field, int64_t value);
/* least, least + step, .. most; none: most is below least. */
struct sf_op_range {
  int64_t least, most, step;
};
/* Values of a field of the entry's cases; none where the operation has no such field. Formats may have gaps. */
struct sf_op_range sf_op_field_range(const struct sf_op_entry *entry, int32_t field);
/* Whether the target takes the case. shapes: SF_OP_OPERANDS_MAX, or NULL. */
bool sf_op_case_valid(const struct sf_op_target *target, const struct sf_op_case *c, struct sf_op_shape *shapes, struct sf_error *error);
/* Case `index` of the campaign `seed`: valid for the target, and not too large. */
void sf_op_case_draw(struct sf_op_case *out, const struct sf_op_target *target, uint64_t seed, uint64_t index);
int64_t sf_op_case_elements(const struct sf_op *op, const struct sf_op_shape *shapes); /* of all operands */

/* The case as one of a campaign or a file: target, operation and all fields by their names. */
void sf_op_case_put(struct sf_case *out, const struct sf_op_target *target, const struct sf_op_case *c);
/* The row of a case of an operation that the target takes. An omitted field has its smallest value. SF_EINPUT, SF_ENOMEM. */
enum sf_status sf_op_case_of(struct sf_op_case *out, const struct sf_case *c, const struct sf_op_target *target,
                             struct sf_error *error) SF_MUST_USE;

#endif
