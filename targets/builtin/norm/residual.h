/* What passes between the residual stream and its branches. With precision.residual_fp32 the stream (run->stream_dtype) is wider than what
 * a branch computes in (Megatron-LM: fp32_residual_connection); with train.dropout_milli a branch joins it through dropout (Megatron-LM:
 * core/fusions/fused_bias_dropout.py; the bias is added by the branch's last linear here). */
#ifndef SF_TARGETS_RESIDUAL_H
#define SF_TARGETS_RESIDUAL_H

#include "targets/builtin/parallel/rank_run.h"

/* branch becomes x + branch in the stream's format; traced. Shape: both [tokens_local x h]. */
void sf_residual_add(struct sf_rank_run *run, int32_t module, float *branch, const float *x);
/* As sf_residual_add, of drop(branch): drop(v) = v / (1 - p) where the element is kept, else 0. The mask is drawn by the element's logical
 * index (harness/tensor/consistent.h), so it is the same on every layout and again in recomputation. */
void sf_residual_drop_add(struct sf_rank_run *run, int32_t module, float *branch, const float *x);
/* grad becomes grad + branch_grad in the stream's format; traced as the gradient of what the branch's module was given. */
void sf_residual_add_grad(struct sf_rank_run *run, int32_t module, float *grad, const float *branch_grad);

/* x [tokens_local x h] of the stream, or its gradient, in the compute format: x itself where the formats are the same, else a new buffer,
 * which sf_residual_rounded_give gives back. */
float *sf_residual_rounded(struct sf_rank_run *run, float *x);
/* What the branch of sf_residual_drop_add is given of grad, the gradient of the sum: drop(grad) by the same mask, rounded once to the
 * compute format. grad itself or a new buffer, as sf_residual_rounded. */
float *sf_residual_branch_grad(struct sf_rank_run *run, int32_t module, float *grad);
/* Gives `rounded` back where it is a buffer of its own, not x. */
void sf_residual_rounded_give(struct sf_rank_run *run, const float *x, float *rounded);

#endif
