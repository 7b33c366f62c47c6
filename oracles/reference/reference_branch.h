/* Template: how a branch of a layer ends, and the MLP's branch, dense or of experts. */
#ifndef SF_ORACLES_REFERENCE_BRANCH_H
#define SF_ORACLES_REFERENCE_BRANCH_H

#include "oracles/reference/reference_activation.h"
#include "oracles/reference/reference_moe_layer.h"
#include "oracles/reference/reference_norm.h"

/* out = round(x + branch), with dropout of the branch where the case has it. */
static inline void branch_add(struct run *run, enum sf_module_class cls, int32_t layer, real *out, const real *x, const real *branch) {
  if (run->c->train.dropout_milli > 0)
    residual_drop_forward(run, cls, layer, out, x, branch);
  else
    residual_forward(run, cls, layer, out, x, branch);
}

/* What joins the residual stream: the branch's output x, or with post_norm its norm, in `out`. */
static inline const real *post_norm_forward(struct run *run, enum sf_module_class cls, int32_t layer, real *out, const real *x) {
  if (!run->c->model.post_norm) return x;
  norm_forward(run, cls, layer, out, x);
  return out;
}

/* Gradient of the branch's output x from that of what joins the stream; with post_norm in run->scratch.branch_b. */
static inline const real *post_norm_backward(struct run *run, enum sf_module_class cls, int32_t layer, const real *g, const real *x) {
  if (!run->c->model.post_norm) return g;
  norm_backward(run, cls, layer, run->scratch.branch_b, g, x);
  return run->scratch.branch_b;
}

/* Dense or of experts, from acts->norm2; returns what the branch puts out. */
static inline const real *mlp_forward(struct run *run, int32_t layer, struct layer_acts *acts) {
  if (run->c->moe.experts > 0) return moe_forward(run, layer, acts->norm2);
  dense_mlp_forward(run, dense_mlp(run), layer, &acts->mlp, acts->norm2);
  return acts->mlp.fc2;
}

/* x_grad: of the branch's input; the gradient of the layer's output is run->scratch.stream. */
static inline void mlp_backward(struct run *run, int32_t layer, real *x_grad, const struct layer_acts *acts) {
  if (run->c->moe.experts > 0) {
    const real *g = branch_grad(run, SF_MODULE_MLP_BDA, SF_MODULE_COMBINE, layer, run->scratch.stream);
    moe_backward(run, layer, x_grad, post_norm_backward(run, SF_MODULE_POST_MLP_LAYERNORM, layer, g, moe_output(&acts->moe)), acts->norm2);
    return;
  }
  const real *fc2_grad = branch_grad(run, SF_MODULE_MLP_BDA, SF_MODULE_LINEAR_FC2, layer, run->scratch.stream);
  fc2_grad = post_norm_backward(run, SF_MODULE_POST_MLP_LAYERNORM, layer, fc2_grad, acts->mlp.fc2);
  dense_mlp_backward(run, dense_mlp(run), layer, x_grad, &acts->mlp, fc2_grad, acts->norm2);
}

#endif
