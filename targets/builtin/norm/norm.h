/* LayerNorm and RMSNorm over this rank's tokens, of the residual stream or of a latent; weights replicated over tp. */
#ifndef SF_TARGETS_NORM_H
#define SF_TARGETS_NORM_H

#include "targets/builtin/parallel/rank_run.h"

struct sf_plugged;

struct sf_norm_layer {
  struct sf_parameter *weight; /* [width] */
  struct sf_parameter *bias;   /* [width], LayerNorm only, else NULL */
  struct sf_plugged *plugged;  /* NULL: computed here; else there are no stats */
  enum sf_norm norm;
  enum sf_dtype
      grad_dtype; /* of the gradient of what it reads: the stream's format; of a latent and at a branch's end the compute format */
  int32_t module;
  int64_t width;           /* h, or a latent's */
  struct sf_shard_map map; /* [tokens_local x width] */
};

/* With sp each rank sees its own tokens only: the gradients are partial sums over tp until the end of the step. */
void sf_norm_layer_create(struct sf_norm_layer *layer, struct sf_rank_run *run, enum sf_module_class cls, int32_t index);

/* Shape: x [tokens_local x width] (borrowed) -> the same (the caller's). Computes round(norm(x)), eps 1e-5 (device.h). *stats: mean and
 * rstd per token, for the backward. */
float *sf_norm_layer_forward(struct sf_rank_run *run, const struct sf_norm_layer *layer, const float *x, float **stats);

/* grad, x: [tokens_local x width], borrowed, as stats is. Returns the gradient of x, the caller's; adds the weight's and bias's. */
float *sf_norm_layer_backward(struct sf_rank_run *run, const struct sf_norm_layer *layer, const float *grad, const float *x,
                              const float *stats);

#endif
