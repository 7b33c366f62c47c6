#include "targets/residual.h"

void sf_residual_add(struct sf_rank_run *run, int32_t module, float *branch, const float *x) {
  struct sf_device *dev = run->env->device;
  dev->ops->add(dev, branch, x, branch, run->tokens_local * run->hidden, run->stream_dtype);
  sf_trace_act(run, module, &run->map_hidden, branch);
}

void sf_residual_add_grad(struct sf_rank_run *run, int32_t module, float *grad, const float *branch_grad) {
  struct sf_device *dev = run->env->device;
  dev->ops->add(dev, grad, grad, branch_grad, run->tokens_local * run->hidden, run->stream_dtype);
  sf_trace_act_grad(run, module, &run->map_hidden, grad);
}

float *sf_residual_rounded(struct sf_rank_run *run, float *x) {
  struct sf_device *dev = run->env->device;
  const int64_t count = run->tokens_local * run->hidden;
  if (run->stream_dtype == run->dtype) return x;
  float *rounded = sf_buffers_take(&run->acts, count);
  dev->ops->round(dev, rounded, x, count, run->dtype);
  return rounded;
}

void sf_residual_rounded_give(struct sf_rank_run *run, const float *x, float *rounded) {
  if (rounded != x) sf_buffers_give(&run->acts, rounded);
}
