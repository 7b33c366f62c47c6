#include "targets/builtin/linear/adapter.h"

#include "targets/builtin/norm/residual.h"

void sf_adapter_create(struct sf_adapter *adapter, struct sf_rank_run *run, const struct sf_group *tp) {
  sf_linear_create(&adapter->linear, run, SF_LINEAR_GATHERED, SF_MODULE_ADAPTER, -1, tp, NULL);
  adapter->module_bda = sf_rank_module(run, SF_MODULE_ADAPTER_BDA, -1);
}

float *sf_adapter_forward(struct sf_rank_run *run, const struct sf_adapter *adapter, float *x, float **saved) {
  struct sf_device *dev = run->env->device;
  const int64_t local = run->tokens_local * run->hidden;
  float *rounded = sf_buffers_take(&run->acts, local), *out = sf_buffers_take(&run->acts, local);
  dev->ops->round(dev, rounded, x, local, run->dtype);
  float *z = sf_linear_forward(run, &adapter->linear, rounded, saved);
  dev->ops->add(dev, out, x, z + run->token_first * run->hidden, local, run->stream_dtype);
  sf_buffers_give(&run->acts, z);
  sf_buffers_give(&run->acts, x);
  sf_trace_act(run, adapter->module_bda, &run->map_hidden, out);
  return out;
}

void sf_adapter_backward(struct sf_rank_run *run, const struct sf_adapter *adapter, float *grad, float *saved) {
  float *given = sf_residual_rounded(run, grad);
  float *input_grad = sf_linear_backward(run, &adapter->linear, given, saved);
  sf_residual_rounded_give(run, grad, given);
  sf_residual_add_grad(run, adapter->module_bda, grad, input_grad);
  sf_buffers_give(&run->acts, input_grad);
}
