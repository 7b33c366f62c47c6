/* Template: LayerNorm and RMSNorm. */
#ifndef SF_ORACLES_REFERENCE_NORM_H
#define SF_ORACLES_REFERENCE_NORM_H

#include "oracles/reference_core.h"

struct moments {
  real mean, rstd;
};

/* RMSNorm: mean 0 and rstd of the mean square. */
static inline struct moments row_moments(const struct run *run, const real *x, real *restrict scratch) {
  const int64_t n = run->hidden;
  const real mean = run->c->model.norm == SF_NORM_LAYER ? row_sum(x, n) / (real)n : 0;
  for (int64_t j = 0; j < n; j++) scratch[j] = x[j] - mean;
  const real variance = row_dot(scratch, scratch, n) / (real)n;
  return (struct moments){mean, 1 / real_sqrt(variance + (real)1e-5)};
}

static inline void norm_forward(struct run *run, enum sf_module_class cls, int32_t layer, real *out, const real *x) {
  const int64_t n = run->hidden;
  const int32_t weight_param = sf_catalog_param(run->catalog, cls, layer, 0), bias_param = sf_catalog_param(run->catalog, cls, layer, 1);
  const real *restrict weight = run->params[weight_param].weight;
  for (int64_t i = 0; i < run->tokens; i++) {
    real *restrict row = out + i * n;
    const real rstd = row_moments(run, x + i * n, row).rstd;
    for (int64_t j = 0; j < n; j++) row[j] = row[j] * rstd * weight[j];
    if (bias_param < 0) continue;
    const real *restrict bias = run->params[bias_param].weight;
    for (int64_t j = 0; j < n; j++) row[j] += bias[j];
  }
  finish_act(run, cls, layer, out, n);
}

/* One row: with e = g w and y = (x - mean) rstd, x_grad = rstd (e - mean(e) - y mean(e y)); RMSNorm without mean(e).
 * weighted becomes g y. */
static inline void norm_backward_row(const struct run *run, real *restrict x_grad, real *restrict weighted, const real *restrict g,
                                     const real *x, const real *restrict weight) {
  const int64_t n = run->hidden;
  const struct moments moments = row_moments(run, x, weighted);
  for (int64_t j = 0; j < n; j++) {
    weighted[j] *= moments.rstd;
    x_grad[j] = g[j] * weight[j];
  }
  const real slope = row_dot(x_grad, weighted, n) / (real)n;
  const real mean = run->c->model.norm == SF_NORM_LAYER ? row_sum(x_grad, n) / (real)n : 0;
  for (int64_t j = 0; j < n; j++) {
    x_grad[j] = moments.rstd * (x_grad[j] - mean - weighted[j] * slope);
    weighted[j] *= g[j];
  }
}

static inline void norm_backward(struct run *run, enum sf_module_class cls, int32_t layer, real *x_grad, const real *g, const real *x) {
  const int64_t n = run->hidden;
  const int32_t weight_param = sf_catalog_param(run->catalog, cls, layer, 0), bias_param = sf_catalog_param(run->catalog, cls, layer, 1);
  real *weighted = run->wide_a;
  for (int64_t i = 0; i < run->tokens; i++)
    norm_backward_row(run, x_grad + i * n, weighted + i * n, g + i * n, x + i * n, run->params[weight_param].weight);
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
