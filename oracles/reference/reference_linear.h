/* Template: linear layers, residual adds. */
#ifndef SF_ORACLES_REFERENCE_LINEAR_H
#define SF_ORACLES_REFERENCE_LINEAR_H

#include "oracles/reference/reference_fp8.h"
#include "oracles/reference/reference_products.h"

struct linear {
  int32_t weight, bias; /* parameters; bias -1 when there is none */
  uint8_t call;         /* of the weight's WGRAD: 1 for a tied head */
  int64_t in, out;
};

/* Weight and bias (-1: none) of the class in this layer; the output layer's may be the word embedding's. */
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

/* The weight as it is multiplied: itself, or its fp8 cast. */
static inline struct factor weight_factor(const struct run *run, enum sf_module_class cls, int32_t layer, const struct linear *linear) {
  return factor_of(run, cls, layer, OPERAND_WEIGHT, run->params[linear->weight].weight, linear->out * linear->in, run->fp8.weight);
}

/* out = round(x W^T + bias); bias_apart: round(round(x W^T) + bias), as a row-parallel layer adds it after its reduction. */
static inline void linear_forward(struct run *run, enum sf_module_class cls, int32_t layer, real *out, const real *x, bool bias_apart) {
  const struct linear linear = linear_find(run, cls, layer);
  const int64_t rows = rows_of(run, cls), cols = linear.out;
  const struct factor a = factor_of(run, cls, layer, OPERAND_INPUT, x, rows * linear.in, run->fp8.input);
  const struct factor w = weight_factor(run, cls, layer, &linear);
  if (is_needless(run, act_id(run, cls, layer, SF_KIND_ACT)))
    leave_out(run, out, rows * cols);
  else
    multiply_units(&run->noise, run->format, a.unit * w.unit, out, cols, straight(a.values, rows, linear.in, linear.in),
                   turned(w.values, linear.in, cols, linear.in));
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
  const struct factor d = factor_of(run, cls, layer, OPERAND_GRAD, g, rows * out, run->fp8.grad);
  const struct factor w = weight_factor(run, cls, layer, &linear);
  if (is_needless(run, act_id(run, cls, layer, SF_KIND_ACT_GRAD)))
    leave_out(run, x_grad, rows * in);
  else
    multiply_units(&run->noise, run->format, d.unit * w.unit, x_grad, in, straight(d.values, rows, out, out),
                   straight(w.values, out, in, in));
  finish_act_grad(run, cls, layer, x_grad, in);
  if (is_trained(run, linear.weight)) {
    const struct factor a = factor_of(run, cls, layer, OPERAND_INPUT, x, rows * in, run->fp8.input);
    if (!leaves_out_wgrad(run, linear.weight, linear.call))
      multiply_units(&run->noise, SF_F32, d.unit * a.unit, run->scratch.wgrad, in, turned(d.values, out, rows, out),
                     straight(a.values, rows, in, in));
    finish_wgrad(run, linear.weight, linear.call);
  }
  if (is_trained(run, linear.bias)) {
    sum_rows(&run->noise, run->scratch.wgrad, g, rows, out);
    finish_wgrad(run, linear.bias, 0);
  }
}

/* run->scratch.kept: 1 where the module's branch keeps its element, 0 where it drops it. Returns the factor of what is kept. */
static inline real dropout_load(struct run *run, enum sf_module_class cls, int32_t layer) {
  const struct moment of = moment_of(run, SF_DATA_DROPOUT);
  const struct sf_supposed *supposed = run->options->supposed;
  const int32_t own = sf_catalog_module(run->catalog, cls, layer),
                module = supposed != NULL && supposed->has_dropout_of ? supposed->dropout_of : own;
  const struct sf_dropout dropout = sf_dropout_for_module(run->catalog, module, of.step, of.microbatch);
  enum { CHUNK = 512 };
  float chunk[CHUNK];
  for (int64_t first = 0, size; first < run->tokens * run->hidden; first += size) {
    size = run->tokens * run->hidden - first < CHUNK ? run->tokens * run->hidden - first : CHUNK;
    sf_dropout_mask(chunk, &dropout, first, size);
    for (int64_t i = 0; i < size; i++) run->scratch.kept[first + i] = (real)chunk[i];
  }
  order_data(run, SF_DATA_DROPOUT, run->scratch.kept, (size_t)run->hidden * sizeof(real));
  return has_slip(run, SF_SLIP_DROPOUT_BARE) ? 1 : (real)(1000.0 / (1000.0 - (double)run->c->train.dropout_milli));
}

/* out = round(x + drop(branch)). The product is in fp32 and may cancel in the sum. */
static inline void residual_drop_forward(struct run *run, enum sf_module_class cls, int32_t layer, real *restrict out,
                                         const real *restrict x, const real *restrict branch) {
  const real factor = dropout_load(run, cls, layer);
  for (int64_t i = 0; i < run->tokens * run->hidden; i++) out[i] = run->scratch.kept[i] > 0 ? branch[i] * factor : 0;
  inner_perturb(inner_of(run, act_id(run, cls, layer, SF_KIND_ACT), 0), 0, out, run->tokens * run->hidden);
  for (int64_t i = 0; i < run->tokens * run->hidden; i++) out[i] += x[i];
  finish_act(run, cls, layer, out, run->hidden);
}

/* out = round(x + branch), in the stream's format. */
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

/* Rounds run->scratch.dropped, products of a gradient and the factor of what is kept. All that may differ is how the product was formed, in
 * fp32: half a unit of the format more would turn casts to fp8 that no candidate turns. */
static inline void store_dropped(struct run *run, struct sf_trace_id id) {
  const int64_t count = run->tokens * run->hidden;
  inner_perturb(inner_of(run, id, 1), 0, run->scratch.dropped, count);
  round_to(run->scratch.dropped, count, run->format);
}

/* The gradient of a branch (linear: its last module) from that of the module's output: round(g), or round(drop(g)). */
static inline const real *branch_grad(struct run *run, enum sf_module_class cls, enum sf_module_class linear, int32_t layer,
                                      const real *g) {
  if (run->c->train.dropout_milli == 0) return round_stream(run, run->scratch.rounded, g);
  const real factor = dropout_load(run, cls, layer);
  for (int64_t i = 0; i < run->tokens * run->hidden; i++) run->scratch.dropped[i] = run->scratch.kept[i] > 0 ? g[i] * factor : 0;
  store_dropped(run, act_id(run, linear, layer, SF_KIND_ACT_GRAD));
  return run->scratch.dropped;
}

/* run->scratch.stream becomes the gradient before the branch. */
static inline void residual_backward(struct run *run, enum sf_module_class cls, int32_t layer, const real *restrict branch_grad) {
  real *restrict stream = run->scratch.stream;
  for (int64_t i = 0; i < run->tokens * run->hidden; i++) stream[i] += branch_grad[i];
  finish_act_grad(run, cls, layer, stream, run->hidden);
}

#endif
