/* Draws cases, and says which cases a target takes. */
#include "harness/run/opfuzz/case/op_case.h"

#include "harness/base/assert.h"
#include "harness/base/pcg.h"

#include <inttypes.h>
#include <string.h>

static int64_t below(struct sf_pcg *pcg, int64_t bound) { return (int64_t)sf_pcg_below(pcg, (uint64_t)bound); }

/* Sizes around the widths of vectors and tiles, and primes. */
static const int64_t edges[] = {7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 127, 128, 129, 255, 256, 257};
static const int64_t primes[] = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 53, 61, 67, 97, 131, 251};
enum {
  EDGES = sizeof edges / sizeof edges[0],
  PRIMES = sizeof primes / sizeof primes[0],
  TALL_ONE_IN = 192,
  FAR_ONE_IN = 96,
  TALL = 65535
};

static int64_t draw_size(struct sf_pcg *pcg, int64_t max) {
  const int64_t kind = below(pcg, 100);
  int64_t size = kind < 3    ? 0
                 : kind < 15 ? 1
                 : kind < 45 ? 1 + below(pcg, 8)
                 : kind < 60 ? primes[below(pcg, PRIMES)]
                 : kind < 85 ? edges[below(pcg, EDGES)]
                             : below(pcg, 300);
  return size > max ? below(pcg, max + 1) : size;
}

/* Fits a size into the target's limits: rounds it up to a multiple, or down if that is too large. */
static int64_t fit_dim(const struct sf_op_entry *entry, int32_t dim, int64_t size) {
  const int64_t multiple = entry->dim_multiple[dim], max = entry->dim_max[dim], least = sf_op_field_range(entry, SF_OP_DIM + dim).least;
  if (size > max) size = max;
  size = (size + multiple - 1) / multiple * multiple;
  if (size > max) size -= multiple;
  return size < least ? least : size;
}

int64_t sf_op_case_elements(const struct sf_op *op, const struct sf_op_shape *shapes) {
  int64_t count = 0;
  for (int32_t i = 0; i < op->operand_count; i++) count += shapes[i].rows * shapes[i].cols;
  return count;
}

/* The cost of a case: its elements, or for products the multiplications, eight of which count as one. */
static int64_t cost(const struct sf_op *op, const struct sf_op_shape *shapes, const int64_t *dims) {
  int64_t product = 1;
  for (int32_t i = 0; i < op->dim_count; i++) product *= dims[i];
  const int64_t elements = sf_op_case_elements(op, shapes);
  return op->product && product / 8 > elements ? product / 8 : elements;
}

/* Halves the largest dimension until the case is small enough; false when none can be halved. */
static bool fit_cost(const struct sf_op_target *target, const struct sf_op_entry *entry, struct sf_op_case *c) {
  const struct sf_op *op = entry->op;
  for (int tries = 0; tries < 64; tries++) {
    struct sf_op_shape shapes[SF_OP_OPERANDS_MAX];
    int64_t *dims = c->field + SF_OP_DIM;
    if (!sf_op_shapes(shapes, op, dims, c->field + SF_OP_ATTR)) return false;
    if (cost(op, shapes, dims) <= target->max_elements) return true;
    int32_t largest = 0;
    for (int32_t i = 1; i < op->dim_count; i++)
      if (dims[i] > dims[largest]) largest = i;
    dims[largest] = fit_dim(entry, largest, dims[largest] / 2);
  }
  return false;
}

static void draw_dims(struct sf_op_case *c, const struct sf_op_target *target, const struct sf_op_entry *entry, struct sf_pcg *pcg) {
  const struct sf_op *op = entry->op;
  const bool tall = below(pcg, TALL_ONE_IN) == 0 && target->max_elements > 4 * TALL;
  const int64_t tall_dim = below(pcg, op->dim_count);
  for (int32_t i = 0; i < op->dim_count; i++) {
    const int64_t size = !tall ? draw_size(pcg, SF_OP_DIM_LIMIT) : i == tall_dim ? TALL + below(pcg, 4) : 1 + below(pcg, 2);
    c->field[SF_OP_DIM + i] = fit_dim(entry, i, size);
  }
}

static void draw_attrs(struct sf_op_case *c, const struct sf_op_entry *entry, struct sf_pcg *pcg) {
  const struct sf_op *op = entry->op;
  for (int32_t i = 0; i < op->attr_count; i++) {
    const int64_t max = op->attrs[i].max;
    const int64_t value = op->attrs[i].size ? (below(pcg, 2) ? draw_size(pcg, max) : 0) : below(pcg, max + 1);
    c->field[SF_OP_ATTR + i] = entry->attr_fixed[i] >= 0 ? entry->attr_fixed[i] : value;
  }
}

static int64_t draw_dtype(struct sf_pcg *pcg, uint32_t set) {
  int64_t at = below(pcg, __builtin_popcount(set)), dtype = 0;
  for (;; dtype++)
    if ((set >> dtype & 1) && at-- == 0) return dtype;
}

static void draw_memory(struct sf_op_case *c, const struct sf_op_entry *entry, struct sf_pcg *pcg) {
  const struct sf_op *op = entry->op;
  const bool odd = entry->unaligned && below(pcg, 2), apart = entry->strided && below(pcg, 2);
  bool may_share = false;
  for (int32_t i = 0; i < op->operand_count; i++) {
    const struct sf_op_operand *operand = &op->operands[i];
    if (odd) c->field[SF_OP_START + i] = below(pcg, SF_OP_START_MAX + 1);
    if (apart && operand->strided) c->field[SF_OP_PAD + i] = below(pcg, 4) ? below(pcg, 20) : below(pcg, SF_OP_PAD_MAX + 1);
    may_share |= operand->in_place > 0;
    const int64_t kinds = operand->fill == SF_OP_SCORE ? SF_OP_VALUES_COUNT : SF_OP_MASKED;
    if (operand->role != SF_OP_OUT && (operand->fill == SF_OP_ANY || operand->fill == SF_OP_SCORE))
      c->field[SF_OP_VALUES + i] = below(pcg, 3) ? below(pcg, kinds) : 0;
  }
  c->field[SF_OP_IN_PLACE] = may_share && entry->in_place && below(pcg, 3) == 0;
}

/* Puts the rows of one operand far apart, in some small cases. */
static void draw_far(struct sf_op_case *c, const struct sf_op_entry *entry, struct sf_pcg *pcg) {
  const struct sf_op *op = entry->op;
  if (entry->declared < 0 || !entry->strided || below(pcg, FAR_ONE_IN) != 0) return;
  const int32_t from = (int32_t)below(pcg, op->operand_count);
  for (int32_t k = 0; k < op->operand_count; k++) {
    const int32_t i = (from + k) % op->operand_count;
    if (!op->operands[i].strided) continue;
    for (int32_t dim = 0; dim < op->dim_count; dim++) c->field[SF_OP_DIM + dim] = fit_dim(entry, dim, 1 + below(pcg, SF_OP_FAR_ROWS));
    c->field[SF_OP_PAD + i] = SF_OP_FAR_PAD + below(pcg, SF_OP_FAR_SPREAD);
    return;
  }
}

static void draw_once(struct sf_op_case *c, const struct sf_op_target *target, struct sf_pcg *pcg) {
  memset(c, 0, sizeof *c);
  c->entry = (int32_t)below(pcg, target->entry_count);
  const struct sf_op_entry *entry = &target->entries[c->entry];
  const struct sf_op *op = entry->op;
  c->field[SF_OP_SEED] = below(pcg, 1 << 30);
  c->field[SF_OP_STORE] = draw_dtype(pcg, entry->stores);
  c->field[SF_OP_INPUTS] = op->casts ? SF_F32 : entry->declared >= 0 ? c->field[SF_OP_STORE] : draw_dtype(pcg, SF_OP_STORES_ALL);
  if (below(pcg, 2)) c->field[SF_OP_SPECIAL] = below(pcg, SF_OP_SPECIAL_COUNT);
  draw_dims(c, target, entry, pcg);
  draw_attrs(c, entry, pcg);
  draw_memory(c, entry, pcg);
  draw_far(c, entry, pcg);
  if (c->field[SF_OP_IN_PLACE] && entry->declared >= 0 && c->field[SF_OP_INPUTS] != c->field[SF_OP_STORE]) c->field[SF_OP_IN_PLACE] = 0;
}

void sf_op_case_draw(struct sf_op_case *out, const struct sf_op_target *target, uint64_t seed, uint64_t index) {
  struct sf_pcg pcg = sf_pcg_create(seed, index);
  for (int tries = 0; tries < 1000; tries++) {
    draw_once(out, target, &pcg);
    if (fit_cost(target, &target->entries[out->entry], out) && sf_op_case_valid(target, out, NULL, NULL)) return;
  }
  SF_ASSERT(!"a target has cases: sf_op_target_make drew one");
}

static struct sf_op_range up_to(int64_t most) { return (struct sf_op_range){0, most, 1}; }

struct sf_op_range sf_op_field_range(const struct sf_op_entry *entry, int32_t field) {
  const struct sf_op *op = entry->op;
  const int32_t dim = field - SF_OP_DIM, attr = field - SF_OP_ATTR;
  if (!sf_op_field_present(op, field)) return up_to(-1);
  if (field == SF_OP_SEED) return up_to(INT64_MAX);
  if (field == SF_OP_STORE) return (struct sf_op_range){__builtin_ctz(entry->stores), SF_DTYPE_COUNT - 1, 1};
  if (field == SF_OP_INPUTS) return up_to(SF_DTYPE_COUNT - 1);
  if (field == SF_OP_SPECIAL) return up_to(SF_OP_SPECIAL_COUNT - 1);
  if (field == SF_OP_IN_PLACE) return up_to(entry->in_place);
  if (field < SF_OP_ATTR) {
    const int64_t step = entry->dim_multiple[dim];
    return (struct sf_op_range){(op->dim_min[dim] + step - 1) / step * step, entry->dim_max[dim], step};
  }
  if (field < SF_OP_VALUES) {
    const int64_t fixed = entry->attr_fixed[attr];
    return fixed >= 0 ? (struct sf_op_range){fixed, fixed, 1} : up_to(op->attrs[attr].max);
  }
  if (field < SF_OP_START) return up_to(op->operands[field - SF_OP_VALUES].fill == SF_OP_SCORE ? SF_OP_MASKED : SF_OP_MASKED - 1);
  if (field < SF_OP_PAD) return up_to(entry->unaligned ? SF_OP_START_MAX : 0);
  if (!entry->strided || !op->operands[field - SF_OP_PAD].strided) return up_to(0);
  /* A product of the device passes its strides to libraries that count in 32 bits. */
  return up_to(entry->declared >= 0 ? SF_OP_FAR_PAD + SF_OP_FAR_SPREAD : SF_OP_PAD_MAX);
}

static bool formats_valid(const struct sf_op_entry *entry, const struct sf_op_case *c, struct sf_error *error) {
  const struct sf_op *op = entry->op;
  const int64_t store = c->field[SF_OP_STORE], inputs = c->field[SF_OP_INPUTS];
  const char *wrong = NULL;
  if (!(entry->stores >> store & 1)) wrong = "store: the target does not store this format";
  else if (op->casts && inputs != SF_F32) wrong = "inputs: a cast reads fp32";
  else if (!op->casts && entry->declared >= 0 && inputs != store) wrong = "inputs: a plugin reads the format that it stores";
  else if (!(SF_OP_STORES_ALL >> inputs & 1)) wrong = "inputs: fp32, bf16 or fp16";
  else if (c->field[SF_OP_IN_PLACE] && entry->declared >= 0 && inputs != store) wrong = "in_place: the formats differ";
  if (wrong) sf_error_set(error, SF_EINPUT, "%s", wrong);
  return !wrong;
}

bool sf_op_case_valid(const struct sf_op_target *target, const struct sf_op_case *c, struct sf_op_shape *shapes, struct sf_error *error) {
  struct sf_op_shape own[SF_OP_OPERANDS_MAX];
  const struct sf_op_entry *entry = &target->entries[c->entry];
  const struct sf_op *op = entry->op;
  for (int32_t i = 0; i < SF_OP_FIELDS; i++) {
    const struct sf_op_range range = sf_op_field_range(entry, i);
    const int64_t value = c->field[i], least = i == SF_OP_STORE ? 0 : range.least;
    if (range.most < range.least) continue;
    const bool uneven = value % range.step != 0, is_fixed = i >= SF_OP_ATTR && i < SF_OP_VALUES && range.least == range.most;
    if (value >= least && value <= range.most && !uneven) continue;
    char name[64];
    sf_op_field_name(name, sizeof name, op, i);
    if (uneven) sf_error_set(error, SF_EINPUT, "%s: %" PRId64 " is no multiple of %" PRId64, name, value, range.step);
    else if (is_fixed) sf_error_set(error, SF_EINPUT, "%s: the target takes %" PRId64 " only", name, range.least);
    else sf_error_set(error, SF_EINPUT, "%s: %" PRId64 " is not within %" PRId64 " and %" PRId64, name, value, least, range.most);
    return false;
  }
  if (!formats_valid(entry, c, error)) return false;
  if (!sf_op_shapes(own, op, c->field + SF_OP_DIM, c->field + SF_OP_ATTR)) {
    sf_error_set(error, SF_EINPUT, "%s has no such shape", op->name);
    return false;
  }
  if (sf_op_case_elements(op, own) > target->max_elements) {
    sf_error_set(error, SF_EINPUT, "%" PRId64 " elements, at most %" PRId64, sf_op_case_elements(op, own), target->max_elements);
    return false;
  }
  if (shapes) memcpy(shapes, own, sizeof own);
  return true;
}
