/* Judging the outputs of an operation by its reference. An element is right when it lies between what storing makes of both ends of its
 * error interval: rounding is monotone, so nothing else can come from a computation within the bound, and neither overflow, saturation nor
 * subnormal numbers need a rule of their own. NaN must be NaN, infinity the same infinity. Elements with an infinite bound are not judged.
 */
#ifndef SF_ORACLES_OPS_JUDGE_H
#define SF_ORACLES_OPS_JUDGE_H

#include "oracles/ops/op.h"

/* Nearest number of the format, ties to even; fp8 saturates. Written apart from harness/spec/dtype.h. */
double sf_op_stored(double x, enum sf_dtype dtype);

/* One output: rows x cols values as they were found. */
struct sf_op_result {
  const double *got;
  const struct sf_num *want;
  int64_t rows, cols;
  enum sf_dtype dtype; /* what it is stored in; SF_F64 too */
  bool bits;           /* zeros have a sign */
};

/* Whether got, an element stored as dtype, is what want allows; true where its bound is infinite. bits: a zero must have want's sign where
 * want is exact. */
bool sf_op_element_right(double got, struct sf_num want, enum sf_dtype dtype, bool bits);
/* Index of the first wrong element, -1 when all are right. judged: number of elements that were judged; added to. */
int64_t sf_op_first_wrong(const struct sf_op_result *result, int64_t *judged);

/* How far off, over the elements that are finite on both sides. */
struct sf_op_error {
  int64_t wrong, wrong_rows;
  double relative;              /* ||got - want|| / ||want|| */
  double row_relative;          /* the largest of a row */
  int64_t row;                  /* which row that is; -1: none */
  double ulps;                  /* the largest distance in units in the last place of the wanted value */
  int64_t worst;                /* its element; -1: none */
};
/* wrong: of all elements, those that are not right; wrong_rows: rows that have one. */
struct sf_op_error sf_op_measure(const struct sf_op_result *result);

#endif
