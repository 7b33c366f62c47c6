/* Passes: dimensions one by one; all smaller shapes, smallest first, if they are few; then everything but the shape. A shape may fail only
 * for some values, so shapes are tried with several seeds. */
#include "harness/run/opfuzz/op_shrink.h"

enum { SEEDS = 12, SHAPES_MAX = 400, LOWER_STEPS = 4 };

static bool is_dim(int32_t field) { return field >= SF_OP_DIM && field < SF_OP_ATTR; }

/* Whether another value of the field may need other data to fail. */
static bool is_seeded(int32_t field) { return field != SF_OP_SEED && field != SF_OP_IN_PLACE && field < SF_OP_START; }

static int32_t list_present(int32_t *out, int32_t count, const struct sf_op *op, int32_t from, int32_t end) {
  for (int32_t i = from; i < end; i++)
    if (sf_op_field_present(op, i)) out[count++] = i;
  return count;
}

/* The dimensions, or all other fields, in the order in which they are lowered. */
static int32_t list_fields(int32_t out[SF_OP_FIELDS], const struct sf_op_entry *entry, bool dims) {
  int32_t count = 0;
  for (int32_t i = 0; i < (dims ? entry->op->dim_count : entry->op->attr_count); i++) out[count++] = (dims ? SF_OP_DIM : SF_OP_ATTR) + i;
  if (dims) return count;
  count = list_present(out, count, entry->op, SF_OP_START, SF_OP_FIELDS);
  out[count++] = SF_OP_IN_PLACE;
  out[count++] = SF_OP_SPECIAL;
  count = list_present(out, count, entry->op, SF_OP_VALUES, SF_OP_START);
  if (entry->declared < 0) {
    out[count++] = SF_OP_STORE;
    out[count++] = SF_OP_INPUTS;
  }
  out[count++] = SF_OP_SEED;
  return count;
}

/* Lowers one number: to its smallest value, the next, half way, by one. False if that is not smaller. */
static bool lower(struct sf_op_case *c, const struct sf_op_entry *entry, int32_t field, int64_t how) {
  const int64_t least = sf_op_field_min(entry, field), value = c->field[field],
                step = is_dim(field) ? entry->dim_multiple[field - SF_OP_DIM] : 1;
  const int64_t values[LOWER_STEPS] = {least, least + step, least + (value - least) / step / 2 * step, value - step};
  if (values[how] < least || values[how] >= value) return false;
  c->field[field] = values[how];
  return true;
}

/* How many values dimension i of the case and smaller ones have. */
static int64_t values_of(const struct sf_op_case *c, const struct sf_op_entry *entry, int32_t i) {
  return (c->field[SF_OP_DIM + i] - sf_op_field_min(entry, SF_OP_DIM + i)) / entry->dim_multiple[i] + 1;
}

/* Writes the dimensions of shape number k of those that are no larger than the whole one; returns the sum of their places. */
static int64_t shape_at(struct sf_op_case *out, const struct sf_op_case *whole, const struct sf_op_entry *entry, int64_t k) {
  int64_t sum = 0;
  for (int32_t i = 0; i < entry->op->dim_count; i++) {
    const int64_t values = values_of(whole, entry, i), place = k % values;
    out->field[SF_OP_DIM + i] = sf_op_field_min(entry, SF_OP_DIM + i) + place * entry->dim_multiple[i];
    sum += place;
    k /= values;
  }
  return sum;
}

/* The smaller shape of that number, by the sum of its dimensions' places. False where there is none, or where they are too many. */
static bool take_shape(struct sf_op_case *c, const struct sf_op_entry *entry, int64_t number) {
  const struct sf_op_case whole = *c;
  int64_t of_sum[SHAPES_MAX] = {0}, count = 1, sum = 0;
  for (int32_t i = 0; i < entry->op->dim_count && count <= SHAPES_MAX; i++) count *= values_of(c, entry, i);
  if (count > SHAPES_MAX || number >= count - 1) return false; /* the last one is the whole */
  for (int64_t k = 0; k < count; k++) of_sum[shape_at(c, &whole, entry, k)]++;
  while (number >= of_sum[sum]) number -= of_sum[sum++];
  for (int64_t k = 0; number >= 0; k++) number -= shape_at(c, &whole, entry, k) == sum;
  return true;
}

enum { PASS_DIMS, PASS_SHAPES, PASS_OTHERS, PASSES };

static bool candidate(const void *ctx, struct sf_case *out, bool *usable, const struct sf_case *in, int pass, int64_t step) {
  const struct sf_op_shrinking *of = ctx;
  const int64_t seeds = of->is_slow ? 1 : SEEDS, at = step / seeds, seed = step % seeds;
  struct sf_op_case c;
  int32_t fields[SF_OP_FIELDS], field = SF_OP_DIM;
  *usable = false;
  if (sf_op_case_of(&c, in, of->target, NULL) != SF_OK) return false;
  const struct sf_op_entry *entry = &of->target->entries[c.entry];
  if (pass == PASS_SHAPES) {
    if (!take_shape(&c, entry, at)) return false;
  } else {
    if (at >= LOWER_STEPS * list_fields(fields, entry, pass == PASS_DIMS)) return false;
    field = fields[at / LOWER_STEPS];
    if (!lower(&c, entry, field, at % LOWER_STEPS)) return true;
  }
  if (seed > 0 && !is_seeded(field)) return true;
  if (seed > 0) c.field[SF_OP_SEED] = seed - 1;
  *usable = sf_op_case_valid(of->target, &c, NULL, NULL);
  if (*usable) sf_op_case_put(out, of->target, &c);
  return true;
}

struct sf_shrink_passes sf_op_shrink_passes(const struct sf_op_shrinking *of) {
  return (struct sf_shrink_passes){.count = PASSES, .candidate = candidate, .ctx = of};
}
