#include "targets/builtin/linear/adapter.h"

#include "targets/builtin/parallel/fault.h"
#include "targets/builtin/linear/linear.h"
#include "targets/builtin/norm/residual.h"
#include "targets/plugin/plugged_layer.h"

static void plug(struct sf_adapter *adapter, struct sf_rank_run *run) {
  adapter->plugged = sf_plugged_create(run, SF_MODULE_ADAPTER, -1, false, adapter->sp);
  if (adapter->plugged == NULL) return;
  adapter->plugged->in_map = adapter->plugged->out_grad_map = &run->map_hidden;
  adapter->plugged->out_map = &run->map_gathered;
  sf_plugged_add_parameter(adapter->plugged, "weight", adapter->weight, 0);
}

void sf_adapter_create(struct sf_adapter *adapter, struct sf_rank_run *run, const struct sf_group *tp, bool sp) {
  *adapter = (struct sf_adapter){.tp = *tp,
                                 .sp = sp,
                                 .module = sf_rank_module(run, SF_MODULE_ADAPTER, -1),
                                 .module_bda = sf_rank_module(run, SF_MODULE_ADAPTER_BDA, -1)};
  const struct sf_parameter_cut cut = {sf_dim_map_whole(run->hidden), sf_dim_map_whole(run->hidden)};
  adapter->weight = sf_parameter_create(run, SF_MODULE_ADAPTER, -1, 0, &cut);
  adapter->weight->replicated = true;
  plug(adapter, run);
}

/* full: all tokens; of a plugin this rank's. */
static float *linear_forward(struct sf_rank_run *run, const struct sf_adapter *adapter, const float *full) {
  if (adapter->plugged != NULL) return sf_plugged_forward(run, adapter->plugged, full);
  float *z = sf_buffers_take(&run->acts, run->tokens * run->hidden);
  sf_linear_forward(run->env->device, z, full, adapter->weight->model, run->tokens, run->hidden, run->hidden, run->dtype);
  sf_trace_act(run, adapter->module, &run->map_gathered, z);
  return z;
}

float *sf_adapter_forward(struct sf_rank_run *run, const struct sf_adapter *adapter, float *x, float **saved) {
  struct sf_device *dev = run->env->device;
  const int64_t h = run->hidden, local = run->tokens_local * h;
  float *rounded = sf_residual_rounded(run, x), *full = rounded;
  if (adapter->sp && adapter->plugged == NULL) {
    full = sf_buffers_take(&run->acts, run->tokens * h);
    sf_all_gather(run->env->comm, &adapter->tp, full, rounded, local, run->dtype, "adapter.fwd.all_gather");
    sf_residual_rounded_give(run, x, rounded);
  }
  float *z = linear_forward(run, adapter, full), *out = sf_buffers_take(&run->acts, local);
  dev->ops->add(dev, out, x, z + run->token_first * h, local, run->stream_dtype);
  sf_buffers_give(&run->acts, z);
  if (full != x) sf_buffers_give(&run->acts, x);
  *saved = full;
  sf_trace_act(run, adapter->module_bda, &run->map_hidden, out);
  return out;
}

/* full: gradient of all tokens, the same on every rank. Taken. */
static float *split_input_grad(struct sf_rank_run *run, const struct sf_adapter *adapter, float *full) {
  if (!adapter->sp) return full;
  const int64_t local = run->tokens_local * run->hidden;
  float *out = sf_buffers_take(&run->acts, local);
  if (sf_fault(run->env, SF_FAULT_GATHER_BWD_INFLATES))
    sf_reduce_scatter(run->env->comm, &adapter->tp, out, full, local, run->dtype, SF_REDUCE_SUM, "adapter.bwd.reduce_scatter");
  else
    memcpy(out, full + run->token_first * run->hidden, (size_t)local * sizeof *out);
  sf_buffers_give(&run->acts, full);
  return out;
}

/* given: gradient of this rank's tokens. Returns that of the input; adds the weight's. */
static float *linear_backward(struct sf_rank_run *run, const struct sf_adapter *adapter, const float *given, const float *saved) {
  struct sf_device *dev = run->env->device;
  const int64_t h = run->hidden, local = run->tokens_local * h;
  float *gathered = NULL;
  if (adapter->plugged != NULL) return sf_plugged_backward(run, adapter->plugged, given, saved);
  if (adapter->sp) {
    gathered = sf_buffers_take(&run->acts, run->tokens * h);
    sf_all_gather(run->env->comm, &adapter->tp, gathered, given, local, run->dtype, "adapter.bwd.all_gather");
  }
  const float *grad_full = gathered != NULL ? gathered : given;
  float *full = sf_buffers_take(&run->acts, run->tokens * h);
  sf_linear_input_grad(dev, full, grad_full, adapter->weight->model, run->tokens, h, h, run->dtype);
  float *input_grad = split_input_grad(run, adapter, full);
  sf_trace_act_grad(run, adapter->module, &run->map_hidden, input_grad);
  if (adapter->weight->trainable) {
    sf_linear_weight_grad(dev, run->params.scratch, grad_full, saved, run->tokens, h, h);
    sf_parameter_accumulate(run, adapter->weight, run->params.scratch, 0);
  }
  sf_buffers_give(&run->acts, gathered);
  return input_grad;
}

void sf_adapter_backward(struct sf_rank_run *run, const struct sf_adapter *adapter, float *grad, float *saved) {
  float *given = sf_residual_rounded(run, grad);
  float *input_grad = linear_backward(run, adapter, given, saved);
  sf_residual_rounded_give(run, grad, given);
  sf_residual_add_grad(run, adapter->module_bda, grad, input_grad);
  sf_buffers_give(&run->acts, input_grad);
  sf_buffers_give(&run->acts, saved);
}
