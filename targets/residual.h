/* What passes between the residual stream and its branches. With precision.residual_fp32 the stream (run->stream_dtype) is wider than what a
 * branch computes in (Megatron-LM: fp32_residual_connection). */
#ifndef SF_TARGETS_RESIDUAL_H
#define SF_TARGETS_RESIDUAL_H

#include "targets/rank_run.h"

/* branch becomes x + branch in the stream's format; traced. Shape: both [tokens_local x h]. */
void sf_residual_add(struct sf_rank_run *run, int32_t module, float *branch, const float *x);
/* grad becomes grad + branch_grad in the stream's format; traced as the gradient of what the branch's module was given. */
void sf_residual_add_grad(struct sf_rank_run *run, int32_t module, float *grad, const float *branch_grad);

/* x [tokens_local x h] of the stream, or its gradient, in the compute format: x itself where the formats are the same, else a new buffer,
 * which sf_residual_rounded_give gives back. */
float *sf_residual_rounded(struct sf_rank_run *run, float *x);
void sf_residual_rounded_give(struct sf_rank_run *run, const float *x, float *rounded);

#endif
