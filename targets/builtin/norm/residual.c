#include "targets/builtin/norm/residual.h"

#include "targets/builtin/parallel/fault.h"

/* The mask of this rank's elements; a buffer, the caller's. */
static float *draw_mask(struct sf_rank_run *run, const struct sf_dropout *dropout) {
  const int64_t h = run->hidden;
  float *kept = sf_buffers_take(&run->acts, run->tokens_local * h);
  const bool as_first = sf_fault(run->env, SF_FAULT_RNG_SP_SAME_SEED) && run->parallel.sp;
  const struct sf_dim_map first = sf_dim_map_part(run->tokens, run->tokens / run->tokens_local, 0);
  const struct sf_dim_map rows = as_first ? sf_dim_map_compose(&run->map_gathered.rows, &first) : run->map_hidden.rows;
  int64_t row = 0;
  for (int32_t i = 0; i < rows.count; i++) {
    sf_dropout_mask(kept + row * h, dropout, rows.runs[i].start * h, rows.runs[i].len * h);
    row += rows.runs[i].len;
  }
  return kept;
}

static struct sf_dropout dropout_now(const struct sf_rank_run *run, int32_t module) {
  struct sf_dropout dropout = sf_dropout_for_module(run->env->catalog, module, run->step, run->microbatch);
  const struct sf_parallel_state *p = &run->parallel;
  if (sf_fault(run->env, SF_FAULT_RNG_REPLICA_DESYNC) && !p->sp && p->tp.index == 1) dropout.key = ~dropout.key;
  return dropout;
}

void sf_residual_add(struct sf_rank_run *run, int32_t module, float *branch, const float *x) {
  struct sf_device *dev = run->env->device;
  dev->ops->add(dev, branch, x, branch, run->tokens_local * run->hidden, run->stream_dtype);
  sf_trace_act(run, module, &run->map_hidden, branch);
}

void sf_residual_drop_add(struct sf_rank_run *run, int32_t module, float *branch, const float *x) {
  struct sf_device *dev = run->env->device;
  if (run->c->train.dropout_milli == 0) {
    sf_residual_add(run, module, branch, x);
    return;
  }
  const struct sf_dropout dropout = dropout_now(run, module);
  float *kept = draw_mask(run, &dropout);
  dev->ops->drop_add(dev, branch, x, branch, kept, dropout.factor, run->tokens_local * run->hidden, run->stream_dtype);
  sf_buffers_give(&run->acts, kept);
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

float *sf_residual_branch_grad(struct sf_rank_run *run, int32_t module, float *grad) {
  struct sf_device *dev = run->env->device;
  if (run->c->train.dropout_milli == 0) return sf_residual_rounded(run, grad);
  const struct sf_dropout dropout = dropout_now(run, module);
  float *kept = draw_mask(run, &dropout); /* becomes the gradient */
  dev->ops->drop(dev, kept, grad, kept, dropout.factor, run->tokens_local * run->hidden, run->dtype);
  return kept;
}

void sf_residual_rounded_give(struct sf_rank_run *run, const float *x, float *rounded) {
  if (rounded != x) sf_buffers_give(&run->acts, rounded);
}
