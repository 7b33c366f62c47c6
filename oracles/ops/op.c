#include "oracles/ops/op.h"

#include "harness/base/assert.h"

#include <string.h>

static const struct sf_op *const groups[] = {sf_ops_elementwise, sf_ops_sums,  sf_ops_norm,          sf_ops_softmax, sf_ops_block_softmax,
                                             sf_ops_activation,  sf_ops_rows,  sf_ops_cross_entropy, sf_ops_update};
enum { GROUPS = sizeof groups / sizeof groups[0] };

int32_t sf_op_count(void) {
  int32_t count = 0;
  for (int g = 0; g < GROUPS; g++)
    for (const struct sf_op *op = groups[g]; op->name; op++) count++;
  return count;
}

const struct sf_op *sf_op_at(int32_t index) {
  for (int g = 0; g < GROUPS; g++)
    for (const struct sf_op *op = groups[g]; op->name; op++)
      if (index-- == 0) return op;
  SF_ASSERT(!"an operation of the table");
  return NULL;
}

const struct sf_op *sf_op_find(const char *name) {
  for (int g = 0; g < GROUPS; g++)
    for (const struct sf_op *op = groups[g]; op->name; op++)
      if (strcmp(op->name, name) == 0) return op;
  return NULL;
}

/* --- shapes -------------------------------------------------------------------------------------------------------- */

bool sf_op_shapes(struct sf_op_shape *out, const struct sf_op *op, const int64_t *dims, const int64_t *attrs) {
  int64_t lengths[SF_OP_POSITIONS + 1] = {[SF_OP_ONE] = 1, [SF_OP_TWO] = 2};
  uint32_t with = 0;
  for (int32_t i = 0; i < op->dim_count; i++) lengths[i] = dims[i], lengths[SF_OP_TWICE + i] = 2 * dims[i];
  for (int32_t i = 0; i < op->attr_count; i++) with |= (uint32_t)(attrs[i] != 0) << i;
  for (int32_t i = 0; i < op->operand_count; i++) {
    const struct sf_op_size *size = &op->sizes[i];
    if (size->rows == SF_OP_POSITIONS) lengths[SF_OP_POSITIONS] = attrs[1] + (dims[0] + attrs[0]) / (attrs[0] + 1);
    const int64_t rows = lengths[size->rows], cols = lengths[size->cols];
    out[i] = (size->turned_with & with) != 0 ? (struct sf_op_shape){cols, rows} : (struct sf_op_shape){rows, cols};
    if ((size->only_with & ~with) != 0) out[i] = (struct sf_op_shape){0, 0};
  }
  return (op->wide_with & with) == 0 || dims[0] <= dims[1];
}

static void append_length(struct sf_text *out, const struct sf_op *op, int8_t length) {
  if (length == SF_OP_POSITIONS)
    sf_text_append(out, "first+ceil(%s/(repeat+1))", op->dims[0]);
  else if (length >= SF_OP_ONE)
    sf_text_append(out, "%d", length == SF_OP_ONE ? 1 : 2);
  else
    sf_text_append(out, "%s%s", length >= SF_OP_TWICE ? "2*" : "", op->dims[length % SF_OP_DIMS_MAX]);
}

static void append_matrix(struct sf_text *out, const struct sf_op *op, int8_t rows, int8_t cols) {
  if (rows != SF_OP_ONE) {
    append_length(out, op, rows);
    sf_text_append(out, " x ");
  }
  append_length(out, op, cols);
}

static void append_condition(struct sf_text *out, const struct sf_op *op, uint8_t attrs) {
  if (attrs != 0) sf_text_append(out, " if");
  for (int32_t i = 0; i < op->attr_count; i++)
    if ((attrs >> i & 1) != 0) sf_text_append(out, " %s", op->attrs[i].name);
}

void sf_op_size_append(struct sf_text *out, const struct sf_op *op, int32_t operand) {
  const struct sf_op_size *size = &op->sizes[operand];
  if (size->turned_with != 0) {
    append_matrix(out, op, size->cols, size->rows);
    append_condition(out, op, size->turned_with);
    sf_text_append(out, ", else ");
  }
  append_matrix(out, op, size->rows, size->cols);
  append_condition(out, op, size->only_with);
}
