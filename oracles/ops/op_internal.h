/* What the groups of the table share. */
#ifndef SF_ORACLES_OPS_OP_INTERNAL_H
#define SF_ORACLES_OPS_OP_INTERNAL_H

#include "oracles/ops/op.h"

/* The name of an operation that is a family by itself. */
#define SF_OP_ALONE(text) .name = text, .family = text
/* Members of an entry of the table, and how many there are. What they do not name is zero. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#define SF_OP_LIST(list, count, type, ...) .list = {__VA_ARGS__}, .count = sizeof((type[]){__VA_ARGS__}) / sizeof(type)
#define SF_OP_OPERANDS(...) SF_OP_LIST(operands, operand_count, struct sf_op_operand, __VA_ARGS__)
#define SF_OP_DIMS(...) SF_OP_LIST(dims, dim_count, const char *, __VA_ARGS__)
#define SF_OP_ATTRS(...) SF_OP_LIST(attrs, attr_count, struct sf_op_attr, __VA_ARGS__)

/* Sizes of operands: a vector that only cases with all of the attributes (bits) have. */
#define SF_OP_MATRIX(rows_, cols_)                                                                                                         \
  { .rows = rows_, .cols = cols_ }
#define SF_OP_VECTOR(length)                                                                                                               \
  { .rows = SF_OP_ONE, .cols = length }
#define SF_OP_VECTOR_WITH(length, attrs_)                                                                                                  \
  { .rows = SF_OP_ONE, .cols = length, .only_with = attrs_ }

/* An element of a float operand, exactly; rows lie one after the other. */
static inline struct sf_num sf_op_in(const struct sf_op_view *view, int operand, int64_t index) {
  return sf_num((double)view->at[operand].x[index]);
}
/* Rows times columns of an operand. */
static inline int64_t sf_op_elements(const struct sf_op_view *view, int operand) { return view->at[operand].rows * view->at[operand].cols; }

/* What one operation in fp32 gives: the exact result rounded once (twice by way of fp64, which gives the same: 53 >= 2 * 24 + 2). */
static inline struct sf_num sf_op_once(double exact) { return sf_num((double)(float)exact); }

/* The largest and smallest partial product of factors that may be multiplied in any order: each factor above 1 makes the one grow, each
 * below 1 the other shrink. What is zero, infinite or NaN from the beginning is so in any order. */
struct sf_op_reach {
  double most, least;
};
#define SF_OP_REACH_ONE ((struct sf_op_reach){1, 1})
/* The reach with one more factor; begin with SF_OP_REACH_ONE. */
static inline struct sf_op_reach sf_op_reach(struct sf_op_reach reach, double factor) {
  const double size = fabs(factor);
  if (size > 1 && size < INFINITY) reach.most *= size;
  if (size < 1 && size > 0) reach.least *= size;
  return reach;
}
/* Of a sum of such products. */
static inline struct sf_op_reach sf_op_reach_sum(struct sf_op_reach sum, struct sf_op_reach term) {
  return (struct sf_op_reach){sum.most + term.most, fmin(sum.least, term.least)};
}
/* A result that so many products in any order may go into. From SF_NUM_RANGE on one of them may overflow, and what is in range or infinite
 * in one order may be infinite or NaN in another; NaN comes of inputs alone. What a subnormal product has lost, the factors that follow
 * make larger; one that has become zero makes NaN of infinity. */
static inline struct sf_num sf_op_in_any_order(struct sf_num result, int products, struct sf_op_reach reach) {
  if (isnan(result.v)) return result;
  if (reach.most >= SF_NUM_RANGE || (isinf(result.v) && reach.least < 2 * SF_NUM_TINY)) return sf_num_unknown();
  return sf_num_plain(result) ? (struct sf_num){result.v, result.e + products * SF_NUM_TINY * reach.most} : result;
}

/* The same of one product, which is infinite in every order where it is in one, unless a factor is zero. */
static inline struct sf_num sf_op_product_in_any_order(struct sf_num result, int products, struct sf_op_reach reach) {
  return fabs(result.v) < SF_NUM_RANGE ? sf_op_in_any_order(result, products, reach) : result;
}

/* Factors that are powers of two, not, zero and negative. */
extern const float sf_op_factors[6];

#endif
