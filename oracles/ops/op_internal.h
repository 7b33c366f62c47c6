/* What the groups of the table share. */
#ifndef SF_ORACLES_OPS_OP_INTERNAL_H
#define SF_ORACLES_OPS_OP_INTERNAL_H

#include "oracles/ops/op.h"

#define SF_OP_SHAPE(rows_, cols_) ((struct sf_op_shape){rows_, cols_})
static inline struct sf_op_shape sf_op_when(bool present, int64_t rows, int64_t cols) {
  return present ? (struct sf_op_shape){rows, cols} : (struct sf_op_shape){0, 0};
}

static inline struct sf_num sf_op_in(const struct sf_op_view *view, int operand, int64_t index) {
  return sf_num((double)view->at[operand].x[index]);
}
static inline int64_t sf_op_elements(const struct sf_op_view *view, int operand) { return view->at[operand].rows * view->at[operand].cols; }

/* What one operation in fp32 gives: the exact result rounded once (twice by way of fp64, which gives the same: 53 >= 2 * 24 + 2). */
static inline struct sf_num sf_op_once(double exact) { return sf_num((double)(float)exact); }

/* Factors that are powers of two, not, zero and negative. */
extern const float sf_op_factors[6];

/* count elements in one row, or rows x cols, for the first `operands` operands. */
bool sf_op_shape_vector(struct sf_op_shape *out, int operands, int64_t count);
/* Shapes of operations of two and three vectors of dims[0] elements. */
bool sf_op_vectors_2(struct sf_op_shape *out, const int64_t *dims, const int64_t *attrs);
bool sf_op_vectors_3(struct sf_op_shape *out, const int64_t *dims, const int64_t *attrs);
bool sf_op_shape_matrix(struct sf_op_shape *out, int operands, int64_t rows, int64_t cols);

#endif
