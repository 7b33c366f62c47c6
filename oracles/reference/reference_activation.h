/* Template: activations, and the MLP that has one between two linear layers. */
#ifndef SF_ORACLES_REFERENCE_ACTIVATION_H
#define SF_ORACLES_REFERENCE_ACTIVATION_H

#include "oracles/reference/reference_linear.h"

/* Phi, the probability of at most x; erfc, since 1 + erf loses the left tail. */
static inline real normal_below(real x) { return (real)0.5 * real_erfc(x * (real)-0.70710678118654752440); }
static inline real normal_density(real x) { return (real)0.39894228040143267794 * real_exp((real)-0.5 * x * x); } /* phi */

/* The logistic function. */
static inline real sigmoid(real x) { return 1 / (1 + real_exp(-x)); }

/* E3 moves Phi by itself, and in the place of (1 + erf) / 2, as most kernels have it: the left tail has the rounding of a number near 1. */
static inline void perturb_below(struct inner inner, int64_t first, real *below, int64_t count) {
  enum { CHUNK = 256 };
  real above[CHUNK];
  inner_perturb(inner, first, below, count);
  for (int64_t from = 0, some; inner.on && from < count; from += some) {
    some = count - from < CHUNK ? count - from : CHUNK;
    for (int64_t j = 0; j < some; j++) above[j] = 1 - below[from + j];
    inner_perturb(inner, first + count + from, above, some);
    for (int64_t j = 0; j < some; j++) below[from + j] = 1 - above[j];
  }
}

/* The argument of Phi and its density is perturbed too: x / sqrt(2) and x^2 / 2 are rounded, and in the tail their functions change by x^2
 * times what their arguments do. */
static inline void gelu_row(struct inner inner, int64_t i, real *restrict out, const real *restrict x, int64_t width) {
  for (int64_t j = 0; j < width; j++) out[j] = x[j];
  inner_perturb(inner, 3 * i * width, out, width);
  for (int64_t j = 0; j < width; j++) out[j] = normal_below(out[j]);
  perturb_below(inner, (3 * i + 1) * width, out, width);
  for (int64_t j = 0; j < width; j++) out[j] *= x[j];
}

/* gate: [gate; up], 2 width numbers of row i; out = gate sigmoid(gate) up. inner: of sigmoid and of its product with the gate. */
static inline void swiglu_row(struct inner inner, int64_t i, real *restrict out, const real *restrict gate, int64_t width) {
  const real *restrict up = gate + width;
  for (int64_t j = 0; j < width; j++) out[j] = sigmoid(gate[j]);
  inner_perturb(inner, 2 * i * width, out, width);
  for (int64_t j = 0; j < width; j++) out[j] *= gate[j];
  inner_perturb(inner, (2 * i + 1) * width, out, width);
  for (int64_t j = 0; j < width; j++) out[j] *= up[j];
}

/* A square, and twice a number: nothing between input and result is rounded. */
static inline void relu2_row(struct inner inner, int64_t i, real *restrict out, const real *restrict x, int64_t width) {
  (void)inner, (void)i;
  for (int64_t j = 0; j < width; j++) out[j] = x[j] < 0 ? 0 : x[j] * x[j];
}

/* x_grad = 2 g max(x, 0). */
static inline void relu2_backward_row(struct inner inner, int64_t i, real *restrict x_grad, const real *restrict g, const real *restrict x,
                                      int64_t width) {
  (void)inner, (void)i;
  for (int64_t j = 0; j < width; j++) x_grad[j] = g[j] * (x[j] < 0 ? 0 : 2 * x[j]);
}

/* The modules of an MLP, dense or the shared expert, and its width. */
struct mlp_modules {
  enum sf_module_class fc1, activation, fc2;
  int64_t width;
};

/* Of a decoder layer without experts. */
static inline struct mlp_modules dense_mlp(const struct run *run) {
  return (struct mlp_modules){SF_MODULE_LINEAR_FC1, SF_MODULE_ACTIVATION, SF_MODULE_LINEAR_FC2, run->c->model.ffn};
}

/* Of the expert that every token goes through. */
static inline struct mlp_modules shared_expert(const struct run *run) {
  return (struct mlp_modules){SF_MODULE_SHARED_FC1, SF_MODULE_SHARED_ACTIVATION, SF_MODULE_SHARED_FC2, run->c->moe.shared_ffn};
}

/* Approximations that are often taken for GELU, x sigmoid(linear x + cubic x^3), and their slopes: suppositions of the diagnosis. With
 * tanh: x (1 + tanh(u)) / 2 = x sigmoid(2 u). */
struct gelu_like {
  real linear, cubic;
};
/* The approximation that stands for GELU in this run; linear 0: none. */
static inline struct gelu_like supposed_gelu(const struct run *run) {
  const real tanh_linear = (real)1.59576912160573071176;
  if (run->c->model.activation != SF_ACT_GELU) return (struct gelu_like){0};
  if (has_slip(run, SF_SLIP_GELU_TANH)) return (struct gelu_like){tanh_linear, tanh_linear * (real)0.044715};
  return (struct gelu_like){has_slip(run, SF_SLIP_GELU_QUICK) ? (real)1.702 : 0, 0};
}
/* The approximation at x. */
static inline real gelu_like_at(const struct gelu_like *like, real x) { return x * sigmoid(like->linear * x + like->cubic * x * x * x); }
/* The approximation's slope at x. */
static inline real gelu_like_slope(const struct gelu_like *like, real x) {
  const real s = sigmoid(like->linear * x + like->cubic * x * x * x);
  return s + x * s * (1 - s) * (like->linear + 3 * like->cubic * x * x);
}

/* x [rows x in]: width, or twice that of a gated activation. */
static inline void activate_rows(const struct run *run, struct inner inner, real *out, const real *x, int64_t rows, int64_t width) {
  const int64_t in = sf_case_fc1_parts(run->c) * width;
  const struct gelu_like like = supposed_gelu(run);
  if (like.linear != 0) {
    for (int64_t i = 0; i < rows * width; i++) out[i] = gelu_like_at(&like, x[i]);
    return;
  }
#define ROW(constant, text, name, parts)                                                                                                   \
  case constant:                                                                                                                           \
    name##_row(inner, i, out + i * width, x + i * in, width);                                                                              \
    break;
  for (int64_t i = 0; i < rows; i++) switch (run->c->model.activation) {
      SF_ACTIVATION_MAP(ROW)
    }
#undef ROW
}

/* x: output of fc1; out [tokens x width]. */
static inline void activation_forward(struct run *run, struct mlp_modules mlp, int32_t layer, real *out, const real *x) {
  activate_rows(run, inner_of(run, act_id(run, mlp.activation, layer, SF_KIND_ACT), 0), out, x, run->tokens, mlp.width);
  finish_act(run, mlp.activation, layer, out, mlp.width);
}

/* The slope has two terms of either sign; each is perturbed by itself. */
static inline void gelu_backward_row(struct inner inner, int64_t i, real *restrict x_grad, const real *restrict g, const real *restrict x,
                                     int64_t width) {
  enum { CHUNK = 256 };
  real below[CHUNK], turning[CHUNK];
  for (int64_t first = 0, count; first < width; first += count) {
    count = width - first < CHUNK ? width - first : CHUNK;
    const int64_t at = 5 * i * width + first;
    for (int64_t j = 0; j < count; j++) below[j] = turning[j] = x[first + j];
    inner_perturb(inner, at, below, count);
    inner_perturb(inner, at + width, turning, count);
    for (int64_t j = 0; j < count; j++) below[j] = normal_below(below[j]);
    for (int64_t j = 0; j < count; j++) turning[j] = x[first + j] * normal_density(turning[j]);
    inner_perturb(inner, at + 2 * width, turning, count);
    perturb_below(inner, 5 * i * width + 3 * width + 2 * first, below, count);
    for (int64_t j = 0; j < count; j++) x_grad[first + j] = g[first + j] * (below[j] + turning[j]);
  }
}

/* gate_grad: [gate; up], from g [width]. inner: of sigmoid and of its slope's second term. */
static inline void swiglu_backward_row(struct inner inner, int64_t i, real *gate_grad, const real *restrict g, const real *restrict gate,
                                       int64_t width) {
  const real *restrict up = gate + width;
  real *s = gate_grad + width, *turning = gate_grad; /* where the gradients go */
  for (int64_t j = 0; j < width; j++) s[j] = sigmoid(gate[j]);
  inner_perturb(inner, 2 * i * width, s, width);
  for (int64_t j = 0; j < width; j++) turning[j] = gate[j] * s[j] * sigmoid(-gate[j]);
  inner_perturb(inner, (2 * i + 1) * width, turning, width);
  for (int64_t j = 0; j < width; j++) {
    gate_grad[j] = g[j] * up[j] * (s[j] + turning[j]);
    s[j] = g[j] * gate[j] * s[j];
  }
}

/* g [rows x width]; x, x_grad as x of activate_rows. */
static inline void activate_rows_backward(const struct run *run, struct inner inner, real *x_grad, const real *g, const real *x,
                                          int64_t rows, int64_t width) {
  const int64_t in = sf_case_fc1_parts(run->c) * width;
  const struct gelu_like like = supposed_gelu(run);
  if (like.linear != 0) {
    for (int64_t i = 0; i < rows * width; i++) x_grad[i] = g[i] * gelu_like_slope(&like, x[i]);
    return;
  }
#define ROW(constant, text, name, parts)                                                                                                   \
  case constant:                                                                                                                           \
    name##_backward_row(inner, i, x_grad + i * in, g + i * width, x + i * in, width);                                                      \
    break;
  for (int64_t i = 0; i < rows; i++) switch (run->c->model.activation) {
      SF_ACTIVATION_MAP(ROW)
    }
#undef ROW
}

/* g [tokens x width]; x, x_grad as fc1's output. */
static inline void activation_backward(struct run *run, struct mlp_modules mlp, int32_t layer, real *x_grad, const real *g, const real *x) {
  const struct inner inner = inner_of(run, act_id(run, mlp.activation, layer, SF_KIND_ACT_GRAD), 0);
  activate_rows_backward(run, inner, x_grad, g, x, run->tokens, mlp.width);
  finish_act_grad(run, mlp.activation, layer, x_grad, sf_case_fc1_parts(run->c) * mlp.width);
}

/* x: [tokens x hidden], what mlp_modules.fc1 reads. */
static inline void dense_mlp_forward(struct run *run, struct mlp_modules mlp, int32_t layer, const struct mlp_acts *acts, const real *x) {
  linear_forward(run, mlp.fc1, layer, acts->fc1, x, false);
  activation_forward(run, mlp, layer, acts->activation, acts->fc1);
  linear_forward(run, mlp.fc2, layer, acts->fc2, acts->activation, true);
}

/* x_grad: of x; g: of the output. */
static inline void dense_mlp_backward(struct run *run, struct mlp_modules mlp, int32_t layer, real *x_grad, const struct mlp_acts *acts,
                                      const real *g, const real *x) {
  linear_backward(run, mlp.fc2, layer, run->scratch.wide_a, g, acts->activation);
  activation_backward(run, mlp, layer, run->scratch.wide_b, run->scratch.wide_a, acts->fc1);
  linear_backward(run, mlp.fc1, layer, x_grad, run->scratch.wide_b, x);
}

/* Exchanges two buffers of the run. */
static inline void swap_buffers(real **a, real **b) {
  real *held = *a;
  *a = *b;
  *b = held;
}

#endif
