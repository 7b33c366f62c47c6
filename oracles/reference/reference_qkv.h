/* Template: queries, keys and values of one projection, with their norms and rotation. */
#ifndef SF_ORACLES_REFERENCE_QKV_H
#define SF_ORACLES_REFERENCE_QKV_H

#include "oracles/reference/reference_linear.h"
#include "oracles/reference/reference_qk_norm.h"

/* acts->rotary: what attention reads. */
static inline void qkv_forward(struct run *run, int32_t layer, const struct layer_acts *acts) {
  linear_forward(run, SF_MODULE_LINEAR_QKV, layer, acts->qkv, acts->norm1, false);
  if (acts->qk_norm != acts->qkv) qk_norm_forward(run, layer, acts->qk_norm, acts->qkv);
  if (acts->rotary != acts->qk_norm) rotary_forward(run, layer, acts->rotary, acts->qk_norm);
}

/* Attention's gradient stands in run->scratch.wide_b; that of the norm's output goes to run->scratch.branch_a. */
static inline void qkv_backward(struct run *run, int32_t layer, const struct layer_acts *acts) {
  real *qkv_grad = run->scratch.wide_b, *other = run->scratch.wide_a;
  if (acts->rotary != acts->qk_norm) {
    rotary_backward(run, layer, other, qkv_grad);
    swap_buffers(&qkv_grad, &other);
  }
  if (acts->qk_norm != acts->qkv) {
    qk_norm_backward(run, layer, other, qkv_grad, acts->qkv);
    swap_buffers(&qkv_grad, &other);
  }
  linear_backward(run, SF_MODULE_LINEAR_QKV, layer, run->scratch.branch_a, qkv_grad, acts->norm1);
}

#endif
