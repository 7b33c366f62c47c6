/* Template: linear layers, residual adds, activations. */
#ifndef SF_ORACLES_REFERENCE_LINEAR_H
#define SF_ORACLES_REFERENCE_LINEAR_H

#include "oracles/reference_fp8.h"
#include "oracles/reference_products.h"

struct linear {
  int32_t weight, bias; /* parameters; bias -1 when there is none */
  uint8_t call;         /* of the weight's WGRAD: 1 for a tied head */
  int64_t in, out;
};

static inline struct linear linear_find(const struct run *run, enum sf_module_class cls, int32_t layer) {
  const struct sf_catalog *catalog = run->catalog;
  const bool ahead = cls == SF_MODULE_MTP_OUTPUT_LAYER, is_head = ahead || cls == SF_MODULE_OUTPUT_LAYER;
  const bool tied = is_head && run->c->model.tied;
  struct linear linear = {.call = tied ? 1 : 0};
  if (ahead) linear.call = (uint8_t)(SF_CALL_MTP_HEAD + SF_CALLS_PER_DEPTH * (layer - run->c->model.layers));
  const enum sf_module_class owner = tied ? SF_MODULE_WORD_EMBEDDINGS : is_head ? SF_MODULE_OUTPUT_LAYER : cls;
  linear.weight = sf_catalog_param(catalog, owner, is_head ? -1 : layer, 0);
  linear.bias = is_head ? -1 : sf_catalog_param(catalog, cls, layer, 1);
  SF_ASSERT_LE(0, linear.weight);
  linear.out = catalog->params[linear.weight].shape.rows;
  linear.in = catalog->params[linear.weight].shape.cols;
  return linear;
}

static inline struct factor weight_factor(const struct run *run, enum sf_module_class cls, int32_t layer, const struct linear *linear) {
  return factor_of(run, cls, layer, OPERAND_WEIGHT, run->params[linear->weight].weight, linear->out * linear->in, run->fp8_weight);
}

/* out = round(x W^T + bias); bias_apart: round(round(x W^T) + bias), as a row-parallel layer adds it after its reduction. */
static inline void linear_forward(struct run *run, enum sf_module_class cls, int32_t layer, real *out, const real *x, bool bias_apart) {
  const struct linear linear = linear_find(run, cls, layer);
  const int64_t rows = rows_of(run, cls), cols = linear.out;
  const struct factor a = factor_of(run, cls, layer, OPERAND_INPUT, x, rows * linear.in, run->fp8_input);
  const struct factor w = weight_factor(run, cls, layer, &linear);
  multiply_units(run, run->format, a.unit * w.unit, false, true, rows, cols, linear.in, a.values, linear.in, w.values, linear.in, out,
                 cols);
  if (linear.bias >= 0) {
    if (bias_apart) store(run, act_id(run, cls, layer, SF_KIND_ACT), 1, out, rows * cols, run->format);
    const real *restrict bias = run->params[linear.bias].weight;
    for (int64_t i = 0; i < rows; i++) {
      real *restrict row = out + i * cols;
      for (int64_t j = 0; j < cols; j++) row[j] += bias[j];
    }
  }
  finish_act(run, cls, layer, out, cols);
}

/* x_grad = round(g W); wgrad: g^T x and the column sums of g. */
static inline void linear_backward(struct run *run, enum sf_module_class cls, int32_t layer, real *x_grad, const real *g, const real *x) {
  const struct linear linear = linear_find(run, cls, layer);
  const int64_t rows = rows_of(run, cls), in = linear.in, out = linear.out;
  const struct factor d = factor_of(run, cls, layer, OPERAND_GRAD, g, rows * out, run->fp8_grad);
  const struct factor w = weight_factor(run, cls, layer, &linear);
  multiply_units(run, run->format, d.unit * w.unit, false, false, rows, in, out, d.values, out, w.values, in, x_grad, in);
  finish_act_grad(run, cls, layer, x_grad, in);
  if (is_trained(run, linear.weight)) {
    const struct factor a = factor_of(run, cls, layer, OPERAND_INPUT, x, rows * in, run->fp8_input);
    multiply_units(run, SF_F32, d.unit * a.unit, true, false, out, in, rows, d.values, out, a.values, in, run->wgrad, in);
    finish_wgrad(run, linear.weight, linear.call);
  }
  if (is_trained(run, linear.bias)) {
    sum_rows(run, run->wgrad, g, rows, out);
    finish_wgrad(run, linear.bias, 0);
  }
}

/* run->kept: 1 where the module's branch keeps its element, 0 where it drops it. Returns the factor of what is kept. */
static inline real dropout_load(struct run *run, enum sf_module_class cls, int32_t layer) {
  const struct sf_dropout dropout =
      sf_dropout_for_module(run->catalog, sf_catalog_module(run->catalog, cls, layer), run->step, run->microbatch);
  enum { CHUNK = 512 };
  float chunk[CHUNK];
  for (int64_t first = 0, size; first < run->tokens * run->hidden; first += size) {
    size = run->tokens * run->hidden - first < CHUNK ? run->tokens * run->hidden - first : CHUNK;
    sf_dropout_mask(chunk, &dropout, first, size);
    for (int64_t i = 0; i < size; i++) run->kept[first + i] = (real)chunk[i];
  }
  return (real)(1000.0 / (1000.0 - (double)run->c->train.dropout_milli));
}

/* out = round(x + drop(branch)). The product is in fp32 and may cancel in the sum. */
static inline void residual_drop_forward(struct run *run, enum sf_module_class cls, int32_t layer, real *restrict out,
                                         const real *restrict x, const real *restrict branch) {
  const real factor = dropout_load(run, cls, layer);
  for (int64_t i = 0; i < run->tokens * run->hidden; i++) out[i] = run->kept[i] > 0 ? branch[i] * factor : 0;
  inner_perturb(inner_of(run, act_id(run, cls, layer, SF_KIND_ACT), 0), 0, out, run->tokens * run->hidden);
  for (int64_t i = 0; i < run->tokens * run->hidden; i++) out[i] += x[i];
  finish_act(run, cls, layer, out, run->hidden);
}

static inline void residual_forward(struct run *run, enum sf_module_class cls, int32_t layer, real *restrict out, const real *restrict x,
                                    const real *restrict branch) {
  for (int64_t i = 0; i < run->tokens * run->hidden; i++) out[i] = x[i] + branch[i];
  finish_act(run, cls, layer, out, run->hidden);
}

/* What a branch is given of the stream, or of its gradient: in the compute format. out: room for it, where the formats differ. */
static inline const real *round_stream(const struct run *run, real *out, const real *x) {
  const int64_t count = run->tokens * run->hidden;
  if (run->stream_format == run->format) return x;
  for (int64_t i = 0; i < count; i++) out[i] = x[i];
  round_to(out, count, run->format);
  return out;
}

/* Rounds run->dropped, products of a gradient and the factor of what is kept. Where gradients are given all that may differ is how the
 * product was formed, in fp32: half a unit of the format more would turn casts to fp8 that no candidate turns. */
static inline void store_dropped(struct run *run, struct sf_trace_id id) {
  const int64_t count = run->tokens * run->hidden;
  if (run->c->mode != SF_MODE_ISOLATED) {
    store(run, id, 1, run->dropped, count, run->format);
    return;
  }
  inner_perturb(inner_of(run, id, 1), 0, run->dropped, count);
  round_to(run->dropped, count, run->format);
}

/* The gradient of a branch (linear: its last module) from that of the module's output: round(g), or round(drop(g)). */
static inline const real *branch_grad(struct run *run, enum sf_module_class cls, enum sf_module_class linear, int32_t layer,
                                      const real *g) {
  if (run->c->train.dropout_milli == 0) return round_stream(run, run->rounded, g);
  const real factor = dropout_load(run, cls, layer);
  for (int64_t i = 0; i < run->tokens * run->hidden; i++) run->dropped[i] = run->kept[i] > 0 ? g[i] * factor : 0;
  store_dropped(run, act_id(run, linear, layer, SF_KIND_ACT_GRAD));
  return run->dropped;
}

/* run->stream becomes the gradient before the branch. */
static inline void residual_backward(struct run *run, enum sf_module_class cls, int32_t layer, const real *restrict branch_grad) {
  real *restrict stream = run->stream;
  for (int64_t i = 0; i < run->tokens * run->hidden; i++) stream[i] += branch_grad[i];
  finish_act_grad(run, cls, layer, stream, run->hidden);
}

/* Phi, the probability of at most x; erfc, since 1 + erf loses the left tail. */
static inline real normal_below(real x) { return (real)0.5 * real_erfc(x * (real)-0.70710678118654752440); }
static inline real normal_density(real x) { return (real)0.39894228040143267794 * real_exp((real)-0.5 * x * x); }

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

static inline void swiglu_row(struct inner inner, int64_t i, real *restrict out, const real *restrict gate, int64_t width) {
  const real *restrict up = gate + width;
  for (int64_t j = 0; j < width; j++) out[j] = sigmoid(gate[j]);
  inner_perturb(inner, 2 * i * width, out, width);
  for (int64_t j = 0; j < width; j++) out[j] *= gate[j];
  inner_perturb(inner, (2 * i + 1) * width, out, width);
  for (int64_t j = 0; j < width; j++) out[j] *= up[j];
}

/* A square, and twice a number: nothing between input and result is rounded. */
static inline void relu2_row(real *restrict out, const real *restrict x, int64_t width) {
  for (int64_t j = 0; j < width; j++) out[j] = x[j] < 0 ? 0 : x[j] * x[j];
}

/* The slope's kink hides noise: draws of x that fall below zero look all alike, and what depends on this number alone (a weight's gradient
 * when the neuron answers to one token) seems exact. Noise is as likely upwards, so a rerun's x that is as far from the plain run's as zero
 * is, or half as far, is put above it, at twice its distance: the tail beyond the draws would be all that is seen there. plain: NULL in the
 * plain run and in isolated mode, where x is given. */
static inline real relu2_argument(real x, const float *plain, int64_t j) {
  if (plain == NULL) return x;
  const real from = (real)plain[j], apart = x - from, reach = 2 * (apart < 0 ? -apart : apart);
  return reach > from && reach > -from ? from + reach : x;
}

static inline void relu2_backward_row(real *restrict x_grad, const real *restrict g, const real *restrict x, const float *plain,
                                      int64_t width) {
  for (int64_t j = 0; j < width; j++) {
    const real argument = relu2_argument(x[j], plain, j);
    x_grad[j] = g[j] * (argument < 0 ? 0 : 2 * argument);
  }
}

/* The modules of an MLP, dense or the shared expert, and its width. */
struct mlp_modules {
  enum sf_module_class fc1, activation, fc2;
  int64_t width;
};

static inline struct mlp_modules dense_mlp(const struct run *run) {
  return (struct mlp_modules){SF_MODULE_LINEAR_FC1, SF_MODULE_ACTIVATION, SF_MODULE_LINEAR_FC2, run->c->model.ffn};
}

static inline struct mlp_modules shared_expert(const struct run *run) {
  return (struct mlp_modules){SF_MODULE_SHARED_FC1, SF_MODULE_SHARED_ACTIVATION, SF_MODULE_SHARED_FC2, run->c->moe.shared_ffn};
}

/* What the plain run of a rerun with noise put out as the activation's input; NULL when there is none. */
static inline const float *plain_fc1(const struct run *run, enum sf_module_class fc1, int32_t layer) {
  const struct sf_reference_options *options = run->options;
  if (options->plain == NULL || options->perturb == SF_PERTURB_NONE) return NULL;
  return options->plain(options->plain_ctx, act_id(run, fc1, layer, SF_KIND_ACT));
}

/* x [rows x in]: width, or 2 width with SwiGLU. */
static inline void activate_rows(const struct run *run, struct inner inner, real *out, const real *x, int64_t rows, int64_t width) {
  const int64_t in = run->c->model.activation == SF_ACT_SWIGLU ? 2 * width : width;
  for (int64_t i = 0; i < rows; i++) {
    real *row = out + i * width;
    const real *x_row = x + i * in;
    if (run->c->model.activation == SF_ACT_GELU) gelu_row(inner, i, row, x_row, width);
    if (run->c->model.activation == SF_ACT_SWIGLU) swiglu_row(inner, i, row, x_row, width);
    if (run->c->model.activation == SF_ACT_RELU2) relu2_row(row, x_row, width);
  }
}

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

/* plain: see relu2_argument, rows as x. */
static inline void activate_rows_backward(const struct run *run, struct inner inner, real *x_grad, const real *g, const real *x,
                                          const float *plain, int64_t rows, int64_t width) {
  const int64_t in = run->c->model.activation == SF_ACT_SWIGLU ? 2 * width : width;
  for (int64_t i = 0; i < rows; i++) {
    const real *x_row = x + i * in, *g_row = g + i * width;
    real *row = x_grad + i * in;
    if (run->c->model.activation == SF_ACT_GELU) gelu_backward_row(inner, i, row, g_row, x_row, width);
    if (run->c->model.activation == SF_ACT_SWIGLU) swiglu_backward_row(inner, i, row, g_row, x_row, width);
    if (run->c->model.activation == SF_ACT_RELU2) relu2_backward_row(row, g_row, x_row, plain == NULL ? NULL : plain + i * width, width);
  }
}

static inline void activation_backward(struct run *run, struct mlp_modules mlp, int32_t layer, real *x_grad, const real *g, const real *x) {
  const struct inner inner = inner_of(run, act_id(run, mlp.activation, layer, SF_KIND_ACT_GRAD), 0);
  const float *plain = run->c->model.activation == SF_ACT_RELU2 ? plain_fc1(run, mlp.fc1, layer) : NULL;
  activate_rows_backward(run, inner, x_grad, g, x, plain, run->tokens, mlp.width);
  finish_act_grad(run, mlp.activation, layer, x_grad, run->c->model.activation == SF_ACT_SWIGLU ? 2 * mlp.width : mlp.width);
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
  linear_backward(run, mlp.fc2, layer, run->wide_a, g, acts->activation);
  activation_backward(run, mlp, layer, run->wide_b, run->wide_a, acts->fc1);
  linear_backward(run, mlp.fc1, layer, x_grad, run->wide_b, x);
}

static inline void swap_buffers(real **a, real **b) {
  real *held = *a;
  *a = *b;
  *b = held;
}

#endif
