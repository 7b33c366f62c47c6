/* GELU, SwiGLU, squared ReLU. The normal distribution and the logistic function count as primitives with an error of their own, like the
 * exponential: the device promises 7.3 u (vec_math.h), relative in both tails. */
#include "oracles/ops/op_internal.h"

enum { ROWS, COLS, COUNT = 0 }; /* dimensions */

static const double primitive = 8 * SF_NUM_U;

/* Phi(x). Computed as 1 + erf, the sum rounds at the size of 1, and erf itself to an ulp of at most 1: 2 u in half of it. */
static struct sf_num cumulative(double x, bool plain_tails) {
  if (isnan(x)) return sf_num(NAN);
  const double v = 0.5 * erfc(-x * M_SQRT1_2);
  return (struct sf_num){v, primitive * v + 8 * SF_NUM_TINY + (plain_tails ? 2 * SF_NUM_U : 0)};
}

/* x phi(x). If exp(-x^2 / 2) takes a rounded square, the exponent's error is u x^2 / 2, twice. */
static struct sf_num weighted_density(double x, bool plain_tails) {
  if (isnan(x) || isinf(x)) return isnan(x) ? sf_num(NAN) : sf_num_unknown();
  const double square = x * x, v = x * exp(-0.5 * square) * 0.39894228040143268;
  return (struct sf_num){v, (primitive + (plain_tails ? square * SF_NUM_U : 0)) * fabs(v) + 8 * (1 + fabs(x)) * SF_NUM_TINY};
}

static void gelu_fwd(struct sf_op_view *view) {
  for (int64_t i = 0; i < view->dims[0]; i++) {
    const struct sf_num x = sf_op_in(view, 0, i);
    view->at[1].want[i] = sf_num_mul(x, cumulative(x.v, view->plain_tails));
  }
}

static void gelu_bwd(struct sf_op_view *view) {
  for (int64_t i = 0; i < view->dims[0]; i++) {
    const double x = (double)view->at[1].x[i];
    const struct sf_num slope = sf_num_add(cumulative(x, view->plain_tails), weighted_density(x, view->plain_tails));
    view->at[2].want[i] = sf_num_mul(sf_op_in(view, 0, i), slope);
  }
}

struct logistic {
  struct sf_num value, rest; /* rest: one minus value */
};
static struct logistic logistic(struct sf_num x, bool plain_tails) {
  const struct sf_num e = sf_num_exp(sf_num(-fabs(x.v))), near_one = sf_num_div(sf_num(1), sf_num_add(sf_num(1), e));
  struct sf_num near_zero = sf_num_mul(e, near_one);
  /* 1 / (1 + exp(-x)) is 0 once the exponential overflows; 1 minus it rounds at the size of 1. */
  if (plain_tails && sf_num_plain(near_zero)) near_zero.e += 4 * SF_NUM_U * (x.v < 0 ? near_zero.v : 1) + 0x1p-126;
  return x.v < 0 ? (struct logistic){near_zero, near_one} : (struct logistic){near_one, near_zero};
}

static void swiglu_fwd(struct sf_op_view *view) {
  const int64_t cols = view->dims[1];
  for (int64_t r = 0; r < view->dims[0]; r++)
    for (int64_t j = 0; j < cols; j++) {
      const struct sf_num gate = sf_op_in(view, 0, 2 * r * cols + j), up = sf_op_in(view, 0, 2 * r * cols + cols + j);
      const struct sf_num y = sf_num_mul(sf_num_mul(gate, logistic(gate, view->plain_tails).value), up);
      view->at[1].want[r * cols + j] = sf_op_product_in_any_order(y, 2, sf_op_reach(sf_op_reach(SF_OP_REACH_ONE, gate.v), up.v));
    }
}

static void swiglu_bwd(struct sf_op_view *view) {
  const int64_t cols = view->dims[1];
  for (int64_t r = 0; r < view->dims[0]; r++)
    for (int64_t j = 0; j < cols; j++) {
      const int64_t gate_at = 2 * r * cols + j, up_at = gate_at + cols;
      const struct sf_num gate = sf_op_in(view, 1, gate_at), up = sf_op_in(view, 1, up_at), grad = sf_op_in(view, 0, r * cols + j);
      const struct logistic l = logistic(gate, view->plain_tails);
      const struct sf_num slope = sf_num_mul(l.value, sf_num_add(sf_num(1), sf_num_mul(gate, l.rest)));
      view->at[2].want[gate_at] = sf_num_mul(sf_num_mul(grad, up), slope);
      const struct sf_num up_grad = sf_num_mul(grad, sf_num_mul(gate, l.value));
      view->at[2].want[up_at] = sf_op_product_in_any_order(up_grad, 2, sf_op_reach(sf_op_reach(SF_OP_REACH_ONE, grad.v), gate.v));
    }
}

static double positive_part(float x) { return x < 0.0f ? 0.0 : (double)x; }

static void relu2_fwd(struct sf_op_view *view) {
  for (int64_t i = 0; i < view->dims[0]; i++) {
    const double x = positive_part(view->at[0].x[i]);
    view->at[1].want[i] = sf_num_mul(sf_num(x), sf_num(x));
  }
}

static void relu2_bwd(struct sf_op_view *view) {
  for (int64_t i = 0; i < view->dims[0]; i++) {
    const struct sf_num grad = sf_op_in(view, 0, i), x = sf_num(positive_part(view->at[1].x[i]));
    const struct sf_op_reach reach = sf_op_reach(sf_op_reach((struct sf_op_reach){2, 1}, grad.v), x.v);
    view->at[2].want[i] = sf_op_product_in_any_order(sf_num_mul(grad, sf_num(2 * x.v)), 2, reach);
  }
}

const struct sf_op sf_ops_activation[] = {
    {.name = "gelu_fwd", .family = "gelu", .stores = SF_OP_STORES_ALL,
     SF_OP_OPERANDS({"x", SF_OP_IN, SF_OP_INPUT}, {"y", SF_OP_OUT, SF_OP_STORED}), SF_OP_DIMS("count"),
     .sizes = {SF_OP_VECTOR(COUNT), SF_OP_VECTOR(COUNT)},
     .formula = "y = x Phi(x), Phi(x) = (1 + erf(x / sqrt 2)) / 2: the exact GELU, not the one with tanh",
     .reference = gelu_fwd},
    {.name = "gelu_bwd", .family = "gelu", .backward = true, .stores = SF_OP_STORES_ALL,
     SF_OP_OPERANDS({"dy", SF_OP_IN, SF_OP_INPUT}, {"x", SF_OP_IN, SF_OP_INPUT}, {"dx", SF_OP_OUT, SF_OP_STORED}), SF_OP_DIMS("count"),
     .sizes = {SF_OP_VECTOR(COUNT), SF_OP_VECTOR(COUNT), SF_OP_VECTOR(COUNT)},
     .formula = "dx = dy (Phi(x) + x phi(x)), phi(x) = exp(-x^2 / 2) / sqrt(2 pi)",
     .reference = gelu_bwd},
    {.name = "swiglu_fwd", .family = "swiglu", .stores = SF_OP_STORES_ALL,
     SF_OP_OPERANDS({"x", SF_OP_IN, SF_OP_INPUT}, {"y", SF_OP_OUT, SF_OP_STORED}), SF_OP_DIMS("rows", "cols"),
     .sizes = {SF_OP_MATRIX(ROWS, SF_OP_TWICE + COLS), SF_OP_MATRIX(ROWS, COLS)},
     .formula = "y[i,j] = silu(gate) up, gate = x[i,j], up = x[i,cols+j]: halves, not pairs; silu(z) = z / (1 + exp(-z))",
     .reference = swiglu_fwd},
    {.name = "swiglu_bwd", .family = "swiglu", .backward = true, .stores = SF_OP_STORES_ALL,
     SF_OP_OPERANDS({"dy", SF_OP_IN, SF_OP_INPUT}, {"x", SF_OP_IN, SF_OP_INPUT}, {"dx", SF_OP_OUT, SF_OP_STORED}),
     SF_OP_DIMS("rows", "cols"),
     .sizes = {SF_OP_MATRIX(ROWS, COLS), SF_OP_MATRIX(ROWS, SF_OP_TWICE + COLS), SF_OP_MATRIX(ROWS, SF_OP_TWICE + COLS)},
     .formula = "dx[i,j] = dy up s (1 + gate (1 - s)), dx[i,cols+j] = dy gate s, s = 1 / (1 + exp(-gate)), gate and up as forward",
     .reference = swiglu_bwd},
    {.name = "relu2_fwd", .family = "relu2", .stores = SF_OP_STORES_ALL,
     SF_OP_OPERANDS({"x", SF_OP_IN, SF_OP_INPUT}, {"y", SF_OP_OUT, SF_OP_STORED}), SF_OP_DIMS("count"),
     .sizes = {SF_OP_VECTOR(COUNT), SF_OP_VECTOR(COUNT)},
     .formula = "y = max(x, 0)^2; NaN stays NaN",
     .reference = relu2_fwd},
    {.name = "relu2_bwd", .family = "relu2", .backward = true, .stores = SF_OP_STORES_ALL,
     SF_OP_OPERANDS({"dy", SF_OP_IN, SF_OP_INPUT}, {"x", SF_OP_IN, SF_OP_INPUT}, {"dx", SF_OP_OUT, SF_OP_STORED}), SF_OP_DIMS("count"),
     .sizes = {SF_OP_VECTOR(COUNT), SF_OP_VECTOR(COUNT), SF_OP_VECTOR(COUNT)},
     .formula = "dx = dy 2 max(x, 0)",
     .reference = relu2_bwd},
    {0},
};
