#include "targets/builtin/linear/row_parallel_linear.h"

#include "targets/builtin/parallel/fault.h"
#include "targets/builtin/linear/linear.h"
#include "targets/plugin/plugged_layer.h"

static void plug(struct sf_row_parallel_linear *linear, struct sf_rank_run *run, enum sf_module_class cls, int32_t layer) {
  linear->plugged = sf_plugged_create(run, cls, layer, false, linear->sp);
  if (linear->plugged == NULL) return;
  linear->plugged->in_map = &linear->in_map;
  linear->plugged->out_map = &run->map_hidden;
  sf_plugged_cast(run, linear->plugged, linear->fp8, true, linear->sp);
  sf_plugged_add_parameter(linear->plugged, "weight", linear->weight, 0);
  sf_plugged_add_parameter(linear->plugged, "bias", linear->bias, 0);
}

void sf_row_parallel_linear_create(struct sf_row_parallel_linear *linear, struct sf_rank_run *run, enum sf_module_class cls, int32_t layer,
                                   int64_t in_total, const struct sf_group *tp, bool sp) {
  const struct sf_dim_map in_dim = sf_dim_map_part(in_total, tp->size, tp->index), h_dim = sf_dim_map_whole(run->hidden);
  *linear = (struct sf_row_parallel_linear){.tp = *tp, .sp = sp, .in = in_total / tp->size, .module = sf_rank_module(run, cls, layer)};
  linear->fp8 = sf_fp8_linear_create(run, cls, layer);
  linear->in_map = (struct sf_shard_map){.rows = run->map_gathered.rows, .cols = in_dim};
  const struct sf_parameter_cut weight_cut = {h_dim, in_dim}, bias_cut = {sf_dim_map_whole(1), h_dim};
  linear->weight = sf_parameter_create(run, cls, layer, 0, &weight_cut);
  linear->bias = sf_parameter_create(run, cls, layer, 1, &bias_cut);
  plug(linear, run, cls, layer);
  if (linear->bias == NULL) return;
  linear->bias->replicated = true;
  linear->bias->sum_over_tp = sp;
  sf_dim_map_set_partial(&linear->bias->wgrad_map.rows, sp);
}

/* full: [T x h], this rank's summand. Taken. */
static float *reduce_output(struct sf_rank_run *run, const struct sf_row_parallel_linear *linear, float *full) {
  const int64_t count = run->tokens * run->hidden, local = run->tokens_local * run->hidden;
  if (linear->tp.size == 1) return full;
  if (!linear->sp) {
    sf_all_reduce(run->env->comm, &linear->tp, full, count, run->dtype, SF_REDUCE_SUM, "row_parallel_linear.fwd.all_reduce");
    return full;
  }
  float *out = sf_buffers_take(&run->acts, local);
  sf_reduce_scatter(run->env->comm, &linear->tp, out, full, local, run->dtype, SF_REDUCE_SUM, "row_parallel_linear.fwd.reduce_scatter");
  sf_buffers_give(&run->acts, full);
  return out;
}

float *sf_row_parallel_linear_forward(struct sf_rank_run *run, const struct sf_row_parallel_linear *linear, float *input) {
  if (linear->plugged != NULL) return sf_plugged_forward(run, linear->plugged, input);
  struct sf_device *dev = run->env->device;
  const int64_t h = run->hidden;
  const float *weight = linear->weight->model;
  float unit = 1.0f;
  if (linear->fp8 != NULL) {
    const float scale = sf_fp8_scale(run, linear->fp8, SF_FP8_INPUT, input, run->tokens * linear->in, true);
    weight = sf_fp8_weight(run, linear->fp8, linear->weight, &unit);
    unit = sf_fp8_cast_input(run, linear->fp8, input, run->tokens * linear->in, scale) * unit;
  }
  float *full = sf_buffers_take(&run->acts, run->tokens * h);
  sf_linear_forward_units(dev, full, input, weight, unit, run->tokens, linear->in, h, run->dtype);
  const bool bias_first = sf_fault(run->env, SF_FAULT_ROWPARALLEL_BIAS_XTP) && linear->bias != NULL;
  if (bias_first) dev->ops->bias_add(dev, full, full, linear->bias->model, run->tokens, h, run->dtype);
  float *out = reduce_output(run, linear, full);
  if (linear->bias != NULL && !bias_first) dev->ops->bias_add(dev, out, out, linear->bias->model, run->tokens_local, h, run->dtype);
  sf_trace_act(run, linear->module, &run->map_hidden, out);
  return out;
}

/* factor: the whole gradient, or its cast, with what the weight's gradient is to be multiplied by. */
static void param_grads(struct sf_rank_run *run, const struct sf_row_parallel_linear *linear, const float *grad, const float *factor,
                        const float *input, float unit) {
  struct sf_device *dev = run->env->device;
  float *scratch = run->params.scratch;
  if (linear->weight->trainable) {
    sf_linear_weight_grad_units(dev, scratch, factor, input, unit, run->tokens, linear->in, run->hidden);
    sf_parameter_accumulate(run, linear->weight, scratch, 0);
  }
  if (linear->bias != NULL && linear->bias->trainable) {
    sf_linear_bias_grad(dev, scratch, grad, run->tokens_local, run->hidden);
    sf_parameter_accumulate(run, linear->bias, scratch, 0);
  }
}

float *sf_row_parallel_linear_backward(struct sf_rank_run *run, const struct sf_row_parallel_linear *linear, const float *grad,
                                       float *input) {
  if (linear->plugged != NULL) {
    float *plugged_grad = sf_plugged_backward(run, linear->plugged, grad, input);
    sf_buffers_give(&run->acts, input);
    return plugged_grad;
  }
  struct sf_device *dev = run->env->device;
  const int64_t h = run->hidden;
  float *gathered = NULL, *cast = NULL;
  float scale = 1.0f, unit = 1.0f, weight_unit = 1.0f, input_unit = 1.0f;
  if (linear->fp8 != NULL) scale = sf_fp8_scale(run, linear->fp8, SF_FP8_GRAD, grad, run->tokens_local * h, linear->sp);
  if (linear->sp) {
    gathered = sf_buffers_take(&run->acts, run->tokens * h);
    sf_all_gather(run->env->comm, &linear->tp, gathered, grad, run->tokens_local * h, run->dtype, "row_parallel_linear.bwd.all_gather");
  }
  const float *factor = gathered != NULL ? gathered : grad, *weight = linear->weight->model;
  if (linear->fp8 != NULL) {
    cast = sf_buffers_take(&run->acts, run->tokens * h);
    unit = sf_fp8_cast_grad(run, cast, factor, run->tokens * h, scale);
    weight = sf_fp8_weight(run, linear->fp8, linear->weight, &weight_unit);
    input_unit = linear->fp8->input_units[run->local_microbatch];
    factor = cast;
  }
  float *input_grad = sf_buffers_take(&run->acts, run->tokens * linear->in);
  sf_linear_input_grad_units(dev, input_grad, factor, weight, unit * weight_unit, run->tokens, linear->in, h, run->dtype);
  sf_trace_act_grad(run, linear->module, &linear->in_map, input_grad);
  param_grads(run, linear, grad, factor, input, unit * input_unit);
  sf_buffers_give(&run->acts, cast);
  sf_buffers_give(&run->acts, gathered);
  sf_buffers_give(&run->acts, input);
  return input_grad;
}
