/* Template: LayerNorm and RMSNorm. */
#ifndef SF_ORACLES_REFERENCE_NORM_H
#define SF_ORACLES_REFERENCE_NORM_H

#include "oracles/reference/reference_products.h"

struct moments {
  real mean, rstd;
};

/* What a norm computes on its way to its output, and to its input's gradient. */
struct norm_inner {
  struct inner statistics, normalized, weighted;
};

/* Streams of the three roundings inside of a norm. */
static inline struct norm_inner norm_inner_of(const struct run *run, struct sf_trace_id id) {
  return (struct norm_inner){inner_of(run, id, 0), inner_of(run, id, 1), inner_of(run, id, 2)};
}

/* A sum is rounded on its way, where it may be as large as its terms: where they cancel, that is more than a rounding of the result. */
static inline real rounded_mean(struct inner inner, int64_t first, const real *restrict x, int64_t n) {
  const real mean = row_sum(x, n) / (real)n, own = mean < 0 ? -mean : mean;
  if (!inner.on) return mean;
  real part = 0;
  for (int64_t j = 0; j < n; j++) part += (x[j] < 0 ? -x[j] : x[j]) / (real)(2 * n);
  const real size = part > own ? part : own;
  return mean + (inner_number(inner, first, size) - size);
}

/* Whether the mean of a row is subtracted: by LayerNorm. */
static inline bool subtracts_mean(const struct run *run) {
  return run->c->model.norm == SF_NORM_LAYER ? !has_slip(run, SF_SLIP_NO_MEAN) : has_slip(run, SF_SLIP_MEAN_TOO);
}

/* normalized [n] = (x - mean) rstd, row `i` of the tensor; RMSNorm: mean 0 and rstd of the mean square. Returns rstd. */
static inline real normalize_row(const struct run *run, const struct norm_inner *inner, int64_t i, int64_t n, real *restrict normalized,
                                 const real *restrict x) {
  const real mean = subtracts_mean(run) ? rounded_mean(inner->statistics, 4 * i, x, n) : 0;
  for (int64_t j = 0; j < n; j++) normalized[j] = x[j] - mean;
  const real variance = row_dot(normalized, normalized, n) / (real)(n - (n > 1 && has_slip(run, SF_SLIP_SAMPLE_VARIANCE)));
  const real epsilon = has_slip(run, SF_SLIP_EPSILON_NONE) ? 0 : has_slip(run, SF_SLIP_EPSILON_SMALL) ? (real)1e-6 : (real)1e-5;
  const real rstd = inner_number(inner->statistics, 4 * i + 1, 1 / real_sqrt(variance + epsilon));
  for (int64_t j = 0; j < n; j++) normalized[j] *= rstd;
  inner_perturb(inner->normalized, i * n, normalized, n);
  return rstd;
}

/* out [n] = norm(x) weight + bias; bias: NULL when there is none. */
static inline void norm_forward_row(const struct run *run, const struct norm_inner *inner, int64_t i, int64_t n, real *restrict out,
                                    const real *restrict x, const real *restrict weight, const real *restrict bias) {
  normalize_row(run, inner, i, n, out, x);
  for (int64_t j = 0; j < n; j++) out[j] *= weight[j];
  inner_perturb(inner->weighted, i * n, out, n);
  for (int64_t j = 0; bias != NULL && j < n; j++) out[j] += bias[j];
}

/* Row by row; n: columns of the class's weight. */
static inline void norm_forward(struct run *run, enum sf_module_class cls, int32_t layer, real *out, const real *x) {
  const int32_t weight_param = sf_catalog_param(run->catalog, cls, layer, 0), bias_param = sf_catalog_param(run->catalog, cls, layer, 1);
  const int64_t n = run->catalog->params[weight_param].shape.cols;
  const real *bias = bias_param < 0 ? NULL : run->params[bias_param].weight;
  const struct norm_inner inner = norm_inner_of(run, act_id(run, cls, layer, SF_KIND_ACT));
  for (int64_t i = 0; i < run->tokens; i++)
    norm_forward_row(run, &inner, i, n, out + i * n, x + i * n, run->params[weight_param].weight, bias);
  finish_act(run, cls, layer, out, n);
}

/* Row i: with e = g w and y = (x - mean) rstd, x_grad = rstd (e - mean(e) - y mean(e y)); RMSNorm without mean(e).
 * weighted becomes g y. */
static inline void norm_backward_row(const struct run *run, const struct norm_inner *inner, int64_t i, int64_t n, real *restrict x_grad,
                                     real *restrict weighted, const real *restrict g, const real *x, const real *restrict weight) {
  const real rstd = normalize_row(run, inner, i, n, weighted, x);
  for (int64_t j = 0; j < n; j++) x_grad[j] = g[j] * weight[j];
  inner_perturb(inner->weighted, i * n, x_grad, n);
  const real slope = inner_number(inner->statistics, 4 * i + 2, row_dot(x_grad, weighted, n) / (real)n);
  const real mean = subtracts_mean(run) ? inner_number(inner->statistics, 4 * i + 3, row_sum(x_grad, n) / (real)n) : 0;
  for (int64_t j = 0; j < n; j++) {
    x_grad[j] = rstd * (x_grad[j] - mean - weighted[j] * slope);
    weighted[j] *= g[j];
  }
}

/* x: the norm's input. Also the gradients of weight and bias. */
static inline void norm_backward(struct run *run, enum sf_module_class cls, int32_t layer, real *x_grad, const real *g, const real *x) {
  const int32_t weight_param = sf_catalog_param(run->catalog, cls, layer, 0), bias_param = sf_catalog_param(run->catalog, cls, layer, 1);
  const int64_t n = run->catalog->params[weight_param].shape.cols;
  real *weighted = run->scratch.wide_a;
  const struct norm_inner inner = norm_inner_of(run, act_id(run, cls, layer, SF_KIND_ACT_GRAD));
  for (int64_t i = 0; i < run->tokens; i++)
    norm_backward_row(run, &inner, i, n, x_grad + i * n, weighted + i * n, g + i * n, x + i * n, run->params[weight_param].weight);
  finish_act_grad(run, cls, layer, x_grad, n);
  if (is_trained(run, weight_param)) {
    sum_rows(&run->noise, run->scratch.wgrad, weighted, run->tokens, n);
    finish_wgrad(run, weight_param, 0);
  }
  if (is_trained(run, bias_param)) {
    sum_rows(&run->noise, run->scratch.wgrad, g, run->tokens, n);
    finish_wgrad(run, bias_param, 0);
  }
}

#endif
