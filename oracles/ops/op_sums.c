/* Matrix products and sums, bounded for any order of their terms. */
#include "oracles/ops/op_internal.h"

enum { ROWS, COLS, COUNT = 0, M = 0, N, K }; /* dimensions */

static const float alphas[4] = {1.0f, 0.125f, -0.3f, 0.0f};

/* One element: the sum of alpha a b, and of c when accumulating, in any order. A product that is scaled at its end must itself stay in
 * range. */
static struct sf_num gemm_element(const struct sf_op_view *view, int64_t row, int64_t col) {
  const int64_t m = view->dims[0], n = view->dims[1], k = view->dims[2];
  const float *a = view->at[0].x + (view->attrs[0] ? row : row * k), *b = view->at[1].x + (view->attrs[1] ? col * k : col);
  const int64_t a_step = view->attrs[0] ? m : 1, b_step = view->attrs[1] ? 1 : n;
  const double alpha = sf_op_real(view, 3);
  struct sf_num_sum sum = {0};
  for (int64_t p = 0; p < k; p++) sf_num_sum_add(&sum, sf_num_mul(sf_num((double)a[p * a_step]), sf_num((double)b[p * b_step])));
  struct sf_num product = sf_num_sum_of(&sum);
  if (alpha != 1 && k > 0) product = sf_num_mul(sf_num(alpha), product);
  if (view->attrs[2] == 0) return product;
  const double before = (double)view->at[2].x[row * n + col];
  product = sf_num_add(product, sf_num(before));
  /* If the sum begins with c, every one of its k roundings may be of c's size, and its partial sums too. */
  if (!isnan(product.v) && isfinite(before) && fabs(before) + fabs(alpha) * sum.size >= SF_NUM_RANGE) return sf_num_unknown();
  if (sf_num_plain(product)) product.e += (double)k * SF_NUM_U * (fabs(before) + fabs(alpha) * sum.size);
  return product;
}

static void gemm(struct sf_op_view *view) {
  const int64_t n = view->dims[1];
  for (int64_t i = 0; i < view->dims[0]; i++)
    for (int64_t j = 0; j < n; j++) view->at[2].want[i * n + j] = gemm_element(view, i, j);
}

static void col_sum(struct sf_op_view *view) {
  for (int64_t j = 0; j < view->dims[1]; j++) {
    struct sf_num_sum sum = {0};
    sf_num_sum_add(&sum, sf_op_in(view, 1, j));
    for (int64_t r = 0; r < view->dims[0]; r++) sf_num_sum_add(&sum, sf_op_in(view, 0, r * view->dims[1] + j));
    view->at[1].want[j] = sf_num_sum_of(&sum);
  }
}

static void amax(struct sf_op_view *view) {
  double most = 0;
  for (int64_t i = 0; i < view->dims[0]; i++) {
    const double size = fabs((double)view->at[0].x[i]);
    most = size > most || isnan(size) ? size : most;
    if (isnan(most)) break;
  }
  view->at[1].want[0] = sf_num(most);
}

/* Squares of floats are exact in fp64; both sums make at most one rounding of 2^-53 for each term. */
static void sum_squares(struct sf_op_view *view) {
  double sum = 0;
  for (int64_t i = 0; i < view->dims[0]; i++) sum += (double)view->at[0].x[i] * (double)view->at[0].x[i];
  view->at[1].want[0] = (struct sf_num){sum, isfinite(sum) ? 2 * (double)view->dims[0] * 0x1p-53 * sum : 0};
}

const struct sf_op sf_ops_sums[] = {
    {SF_OP_ALONE("gemm"),
     .stores = SF_OP_STORES_ALL,
     SF_OP_OPERANDS({"a", SF_OP_IN, SF_OP_INPUT, .strided = true},
                    {"b", SF_OP_IN, SF_OP_INPUT, .strided = true},
                    {"c", SF_OP_INOUT, SF_OP_STORED, .strided = true}),
     SF_OP_DIMS("m", "n", "k"),
     SF_OP_ATTRS({"trans_a", 1}, {"trans_b", 1}, {"accumulate", 1}, {"alpha", 3, alphas}),
     .sizes = {{M, K, .turned_with = 1 << 0}, {K, N, .turned_with = 1 << 1}, SF_OP_MATRIX(M, N)},
     .formula =
         "c = alpha op(a) op(b), with accumulate c = c + alpha op(a) op(b); op is the transposed matrix with trans_a, trans_b\n"
         "Without accumulate what c held is not read, be it NaN; with k = 0 c becomes 0, with accumulate it stays. alpha is a factor like "
         "any other: 0 times infinity is NaN.\n"
         "Sums are fp32 in any order; c is rounded once, to the case's format.",
     .reference = gemm,
     .product = true},
    {SF_OP_ALONE("col_sum"),
     .stores = SF_OP_STORES_ALL,
     SF_OP_OPERANDS({"x", SF_OP_IN, SF_OP_INPUT}, {"out", SF_OP_INOUT, SF_OP_FLOAT}),
     SF_OP_DIMS("rows", "cols"),
     .sizes = {SF_OP_MATRIX(ROWS, COLS), SF_OP_VECTOR(COLS)},
     .formula = "out[j] = out[j] + sum_i x[i,j]",
     .reference = col_sum},
    {SF_OP_ALONE("amax"),
     .stores = SF_OP_STORES_ALL,
     SF_OP_OPERANDS({"x", SF_OP_IN, SF_OP_INPUT}, {"amax", SF_OP_OUT, SF_OP_FLOAT}),
     SF_OP_DIMS("count"),
     .sizes = {SF_OP_VECTOR(COUNT), SF_OP_VECTOR(SF_OP_ONE)},
     .formula = "amax = max |x|; 0 of no elements, NaN when there is one",
     .reference = amax},
    {SF_OP_ALONE("sum_squares"),
     .stores = SF_OP_STORES_ALL,
     SF_OP_OPERANDS({"x", SF_OP_IN, SF_OP_INPUT}, {"sum", SF_OP_OUT, SF_OP_DOUBLE}),
     SF_OP_DIMS("count"),
     .sizes = {SF_OP_VECTOR(COUNT), SF_OP_VECTOR(SF_OP_ONE)},
     .formula = "sum = sum x^2, in fp64",
     .reference = sum_squares},
    {0},
};
