/* LayerNorm and RMSNorm over rows, epsilon 1e-5 under the root. */
#include "oracles/ops/op_internal.h"

enum { ROWS, COLS }; /* dimensions */

enum { RMS, LAYER }; /* attribute `norm` */

static struct sf_num row_mean(const float *x, int64_t cols) {
  struct sf_num_sum sum = {0};
  for (int64_t j = 0; j < cols; j++) sf_num_sum_add(&sum, sf_num((double)x[j]));
  return sf_num_mean_of(&sum, cols);
}

/* 1 / sqrt(mean((x - mean)^2) + epsilon).
 * A mean that is off by d moves the mean of squares by d^2 alone, since the distances from the true mean cancel; each distance rounds once,
 * its square twice in all. */
static struct sf_num row_rstd(const float *x, struct sf_num mean, int64_t cols) {
  struct sf_num_sum squares = {0};
  const bool plain = sf_num_plain(mean);
  const struct sf_num centre = plain ? sf_num(mean.v) : mean;
  for (int64_t j = 0; j < cols; j++) {
    const struct sf_num distance = sf_num_sub(sf_num((double)x[j]), centre);
    sf_num_sum_add(&squares, sf_num_mul(distance, distance));
  }
  struct sf_num variance = sf_num_mean_of(&squares, cols);
  if (plain) variance.e += mean.e * mean.e * (1 + ((double)cols + 3) * SF_NUM_U);
  const struct sf_num root = sf_num_sqrt(sf_num_add(variance, sf_num((double)1e-5f)));
  return sf_num_div(sf_num(1), root);
}

static void fwd(struct sf_op_view *view) {
  const int64_t cols = view->dims[1];
  const bool shifted = view->at[2].cols > 0;
  for (int64_t r = 0; r < view->dims[0]; r++) {
    const float *x = view->at[0].x + r * cols;
    const struct sf_num mean = view->attrs[0] == LAYER ? row_mean(x, cols) : sf_num(0), rstd = row_rstd(x, mean, cols);
    view->at[4].want[2 * r] = mean;
    view->at[4].want[2 * r + 1] = rstd;
    for (int64_t j = 0; j < cols; j++) {
      const struct sf_num distance = sf_num_sub(sf_num((double)x[j]), mean);
      const struct sf_num y = sf_num_mul(sf_num_mul(distance, rstd), sf_op_in(view, 1, j));
      view->at[3].want[r * cols + j] = shifted ? sf_num_add(y, sf_op_in(view, 2, j)) : y;
    }
  }
}

/* Means are 0 where the norm has none; 1 / deviation is above 0. */
static void bwd_prepare(struct sf_op_view *view) {
  float *stats = view->at[2].x;
  for (int64_t r = 0; r < view->dims[0]; r++) {
    if (view->attrs[0] == RMS) stats[2 * r] = 0;
    stats[2 * r + 1] = 0.0625f + 4 * fabsf(stats[2 * r + 1]);
  }
}

static struct sf_num distance(const struct sf_op_view *view, int64_t row, int64_t col) {
  return sf_num_sub(sf_op_in(view, 1, row * view->dims[1] + col), sf_op_in(view, 2, 2 * row));
}

/* (x - mean) rstd, with a given mean and deviation. */
static struct sf_num normalised(const struct sf_op_view *view, int64_t row, int64_t col) {
  return sf_num_mul(distance(view, row, col), sf_op_in(view, 2, 2 * row + 1));
}

/* Kernels multiply dy, w, x - mean and the deviation in any order, the last outside of the sums or in its third power, and divide by the
 * row's length late. */
static struct sf_op_reach row_reach(const struct sf_op_view *view, int64_t row) {
  const int64_t cols = view->dims[1];
  struct sf_op_reach sum = {0, 1};
  for (int64_t j = 0; j < cols; j++) {
    const struct sf_op_reach g = sf_op_reach(sf_op_reach(SF_OP_REACH_ONE, (double)view->at[0].x[row * cols + j]), (double)view->at[3].x[j]);
    sum = sf_op_reach_sum(sum, sf_op_reach(g, distance(view, row, j).v));
  }
  sum.most *= 3 * (double)cols; /* dx is cols times a sum of three */
  for (int times = 0; times < 3; times++) sum = sf_op_reach(sum, (double)view->at[2].x[2 * row + 1]);
  return sum;
}

static void bwd_row(struct sf_op_view *view, int64_t row) {
  const int64_t cols = view->dims[1];
  const struct sf_op_reach reach = row_reach(view, row);
  struct sf_num_sum sum = {0}, dot = {0};
  for (int64_t j = 0; j < cols; j++) {
    const struct sf_num g = sf_num_mul(sf_op_in(view, 0, row * cols + j), sf_op_in(view, 3, j));
    sf_num_sum_add(&sum, g);
    sf_num_sum_add(&dot, sf_num_mul(g, normalised(view, row, j)));
  }
  const struct sf_num g_mean = view->attrs[0] == LAYER ? sf_num_mean_of(&sum, cols) : sf_num(0), g_dot = sf_num_mean_of(&dot, cols);
  for (int64_t j = 0; j < cols; j++) {
    const struct sf_num g = sf_num_mul(sf_op_in(view, 0, row * cols + j), sf_op_in(view, 3, j));
    const struct sf_num rest = sf_num_sub(sf_num_sub(g, g_mean), sf_num_mul(normalised(view, row, j), g_dot));
    const struct sf_num dx = sf_num_mul(rest, sf_op_in(view, 2, 2 * row + 1));
    view->at[4].want[row * cols + j] = sf_op_in_any_order(dx, 8, sf_op_reach(reach, distance(view, row, j).v));
  }
}

static void bwd_weights(struct sf_op_view *view, int64_t col) {
  const int64_t cols = view->dims[1];
  struct sf_num_sum weight = {0}, bias = {0};
  struct sf_op_reach reach = {0, 1};
  if (view->attrs[1]) sf_num_sum_add(&weight, sf_op_in(view, 5, col));
  if (view->attrs[2]) sf_num_sum_add(&bias, sf_op_in(view, 6, col));
  for (int64_t r = 0; r < view->dims[0]; r++) {
    const struct sf_num grad = sf_op_in(view, 0, r * cols + col);
    if (view->attrs[2]) sf_num_sum_add(&bias, grad);
    if (!view->attrs[1]) continue;
    sf_num_sum_add(&weight, sf_num_mul(grad, normalised(view, r, col)));
    const struct sf_op_reach pair = sf_op_reach(sf_op_reach(SF_OP_REACH_ONE, grad.v), distance(view, r, col).v);
    reach = sf_op_reach_sum(reach, sf_op_reach(pair, (double)view->at[2].x[2 * r + 1]));
  }
  if (view->attrs[1]) view->at[5].want[col] = sf_op_in_any_order(sf_num_sum_of(&weight), 2, reach);
  if (view->attrs[2]) view->at[6].want[col] = sf_num_sum_of(&bias);
}

static void bwd(struct sf_op_view *view) {
  for (int64_t r = 0; r < view->dims[0]; r++) bwd_row(view, r);
  for (int64_t j = 0; j < view->dims[1]; j++) bwd_weights(view, j);
}

const struct sf_op sf_ops_norm[] = {
    {.name = "norm_fwd",
     .family = "norm",
     .stores = SF_OP_STORES_ALL,
     SF_OP_OPERANDS({"x", SF_OP_IN, SF_OP_INPUT},
                    {"w", SF_OP_IN, SF_OP_INPUT},
                    {"b", SF_OP_IN, SF_OP_INPUT},
                    {"y", SF_OP_OUT, SF_OP_STORED},
                    {"stats", SF_OP_OUT, SF_OP_FLOAT}),
     SF_OP_DIMS("rows", "cols"),
     .dim_min = {0, 1},
     SF_OP_ATTRS({"norm", 1}, {"bias", 1}),
     .sizes = {SF_OP_MATRIX(ROWS, COLS), SF_OP_VECTOR(COLS), SF_OP_VECTOR_WITH(COLS, 1 << 0 | 1 << 1), SF_OP_MATRIX(ROWS, COLS),
               SF_OP_MATRIX(ROWS, SF_OP_TWO)},
     .formula =
         "norm 1 (LayerNorm): mean = mean_j x, rstd = 1 / sqrt(mean_j (x - mean)^2 + 1e-5), y = (x - mean) rstd w + b\n"
         "norm 0 (RMSNorm):   mean = 0, rstd = 1 / sqrt(mean_j x^2 + 1e-5), y = x rstd w\n"
         "epsilon 1e-5 stands under the root; the variance is divided by cols. stats holds mean, rstd of each row, in fp32; RMSNorm's "
         "mean is written as 0.\n"
         "y is rounded once: x rstd is not rounded before it meets w.",
     .reference = fwd},
    {.name = "norm_bwd",
     .family = "norm",
     .backward = true,
     .stores = SF_OP_STORES_ALL,
     SF_OP_OPERANDS({"dy", SF_OP_IN, SF_OP_INPUT},
                    {"x", SF_OP_IN, SF_OP_INPUT},
                    {"stats", SF_OP_IN, SF_OP_FLOAT, SF_OP_UNIT},
                    {"w", SF_OP_IN, SF_OP_INPUT},
                    {"dx", SF_OP_OUT, SF_OP_STORED},
                    {"dw", SF_OP_INOUT, SF_OP_FLOAT},
                    {"db", SF_OP_INOUT, SF_OP_FLOAT}),
     SF_OP_DIMS("rows", "cols"),
     .dim_min = {0, 1},
     SF_OP_ATTRS({"norm", 1}, {"dw", 1}, {"db", 1}),
     .sizes = {SF_OP_MATRIX(ROWS, COLS), SF_OP_MATRIX(ROWS, COLS), SF_OP_MATRIX(ROWS, SF_OP_TWO), SF_OP_VECTOR(COLS),
               SF_OP_MATRIX(ROWS, COLS), SF_OP_VECTOR_WITH(COLS, 1 << 1), SF_OP_VECTOR_WITH(COLS, 1 << 2)},
     .formula =
         "g = dy w, h = (x - mean) rstd, with mean and rstd from stats\n"
         "norm 1 (LayerNorm): dx = rstd (g - mean_j g - h mean_j (g h))\n"
         "norm 0 (RMSNorm):   dx = rstd (g - h mean_j (g h)), with a mean of 0 in stats\n"
         "dw[j] = dw[j] + sum_i dy h, db[j] = db[j] + sum_i dy: they accumulate. Without attribute dw or db that operand is left out.\n"
         "stats need not be those of x: use them, do not compute them again.",
     .prepare = bwd_prepare,
     .reference = bwd},
    {0},
};
