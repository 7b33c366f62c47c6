/* Template: LayerNorm and RMSNorm. */
#ifndef SF_ORACLES_REFERENCE_NORM_H
#define SF_ORACLES_REFERENCE_NORM_H

#include "oracles/reference_products.h"

struct moments {
  real mean, rstd;
};

/* What a norm computes on its way to its output, and to its input's gradient. */
struct norm_inner {
  struct inner statistics, normalized, weighted;
};

static inline struct norm_inner norm_inner_of(const struct run *run, struct sf_trace_id id) {
  return (struct norm_inner){inner_of(run, id, 0), inner_of(run, id, 1), inner_of(run, id, 2)};
}

/* normalized = (x - mean) rstd, row `i` of the tensor; RMSNorm: mean 0 and rstd of the mean square. Returns rstd. */
static inline real normalize_row(const struct run *run, const struct norm_inner *inner, int64_t i, real *restrict normalized,
                                 const real *restrict x) {
  const int64_t n = run->hidden;
  const bool layer = run->c->model.norm == SF_NORM_LAYER;
  const real mean = layer ? inner_number(inner->statistics, 4 * i, row_sum(x, n) / (real)n) : 0;
  for (int64_t j = 0; j < n; j++) normalized[j] = x[j] - mean;
  const real variance = row_dot(normalized, normalized, n) / (real)n;
  const real rstd = inner_number(inner->statistics, 4 * i + 1, 1 / real_sqrt(variance + (real)1e-5));
  for (int64_t j = 0; j < n; j++) normalized[j] *= rstd;
  inner_perturb(inner->normalized, i * n, normalized, n);
  return rstd;
}

static inline void norm_forward(struct run *run, enum sf_module_class cls, int32_t layer, real *out, const real *x) {
  const int64_t n = run->hidden;
  const int32_t weight_param = sf_catalog_param(run->catalog, cls, layer, 0), bias_param = sf_catalog_param(run->catalog, cls, layer, 1);
  const real *restrict weight = run->params[weight_param].weight;
  const struct norm_inner inner = norm_inner_of(run, act_id(run, cls, layer, SF_KIND_ACT));
  for (int64_t i = 0; i < run->tokens; i++) {
    real *restrict row = out + i * n;
    normalize_row(run, &inner, i, row, x + i * n);
    for (int64_t j = 0; j < n; j++) row[j] *= weight[j];
    inner_perturb(inner.weighted, i * n, row, n);
    if (bias_param < 0) continue;
    const real *restrict bias = run->params[bias_param].weight;
    for (int64_t j = 0; j < n; j++) row[j] += bias[j];
  }
  finish_act(run, cls, layer, out, n);
}

/* Row i: with e = g w and y = (x - mean) rstd, x_grad = rstd (e - mean(e) - y mean(e y)); RMSNorm without mean(e).
 * weighted becomes g y. */
static inline void norm_backward_row(const struct run *run, const struct norm_inner *inner, int64_t i, real *restrict x_grad,
                                     real *restrict weighted, const real *restrict g, const real *x, const real *restrict weight) {
  const int64_t n = run->hidden;
  const real rstd = normalize_row(run, inner, i, weighted, x);
  for (int64_t j = 0; j < n; j++) x_grad[j] = g[j] * weight[j];
  inner_perturb(inner->weighted, i * n, x_grad, n);
  const real slope = inner_number(inner->statistics, 4 * i + 2, row_dot(x_grad, weighted, n) / (real)n);
  const real mean = run->c->model.norm == SF_NORM_LAYER ? inner_number(inner->statistics, 4 * i + 3, row_sum(x_grad, n) / (real)n) : 0;
  for (int64_t j = 0; j < n; j++) {
    x_grad[j] = rstd * (x_grad[j] - mean - weighted[j] * slope);
    weighted[j] *= g[j];
  }
}

static inline void norm_backward(struct run *run, enum sf_module_class cls, int32_t layer, real *x_grad, const real *g, const real *x) {
  const int64_t n = run->hidden;
  const int32_t weight_param = sf_catalog_param(run->catalog, cls, layer, 0), bias_param = sf_catalog_param(run->catalog, cls, layer, 1);
  real *weighted = run->wide_a;
  const struct norm_inner inner = norm_inner_of(run, act_id(run, cls, layer, SF_KIND_ACT_GRAD));
  for (int64_t i = 0; i < run->tokens; i++)
    norm_backward_row(run, &inner, i, x_grad + i * n, weighted + i * n, g + i * n, x + i * n, run->params[weight_param].weight);
  finish_act_grad(run, cls, layer, x_grad, n);
  if (is_trained(run, weight_param)) {
    sum_rows(run, run->wgrad, weighted, run->tokens, n);
    finish_wgrad(run, weight_param, 0);
  }
  if (is_trained(run, bias_param)) {
    sum_rows(run, run->wgrad, g, run->tokens, n);
    finish_wgrad(run, bias_param, 0);
  }
}

#endif
