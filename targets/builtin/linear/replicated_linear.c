#include "targets/builtin/linear/replicated_linear.h"

#include "targets/builtin/linear/linear.h"
#include "targets/plugin/plugged_layer.h"

static void plug(struct sf_replicated_linear *linear, struct sf_rank_run *run, enum sf_module_class cls, int32_t layer, bool sp) {
  linear->plugged = sf_plugged_create(run, cls, layer, false, sp);
  if (linear->plugged == NULL) return;
  linear->plugged->in_map = &linear->in_map;
  linear->plugged->out_map = &linear->out_map;
  sf_plugged_add_parameter(linear->plugged, "weight", linear->weight, 0);
}

void sf_replicated_linear_create(struct sf_replicated_linear *linear, struct sf_rank_run *run, enum sf_module_class cls, int32_t layer,
                                 bool sp) {
  const struct sf_catalog *catalog = run->env->catalog;
  const struct sf_shape shape = catalog->params[sf_catalog_param(catalog, cls, layer, 0)].shape;
  const struct sf_dim_map in = sf_dim_map_whole(shape.cols), out = sf_dim_map_whole(shape.rows);
  *linear = (struct sf_replicated_linear){.in = shape.cols,
                                          .out = shape.rows,
                                          .module = sf_rank_module(run, cls, layer),
                                          .in_map = {.rows = run->map_hidden.rows, .cols = in},
                                          .out_map = {.rows = run->map_hidden.rows, .cols = out}};
  const struct sf_parameter_cut cut = {out, in};
  linear->weight = sf_parameter_create(run, cls, layer, 0, &cut);
  linear->weight->replicated = true;
  linear->weight->sum_over_tp = sp;
  sf_dim_map_set_partial(&linear->weight->wgrad_map.rows, sp);
  plug(linear, run, cls, layer, sp);
}

float *sf_replicated_linear_forward(struct sf_rank_run *run, const struct sf_replicated_linear *linear, const float *input) {
  if (linear->plugged != NULL) return sf_plugged_forward(run, linear->plugged, input);
  float *out = sf_buffers_take(&run->acts, run->tokens_local * linear->out);
  sf_linear_forward(run->env->device, out, input, linear->weight->model, run->tokens_local, linear->in, linear->out, run->dtype);
  sf_trace_act(run, linear->module, &linear->out_map, out);
  return out;
}

float *sf_replicated_linear_backward(struct sf_rank_run *run, const struct sf_replicated_linear *linear, const float *grad,
                                     const float *input) {
  if (linear->plugged != NULL) return sf_plugged_backward(run, linear->plugged, grad, input);
  struct sf_device *dev = run->env->device;
  float *input_grad = sf_buffers_take(&run->acts, run->tokens_local * linear->in);
  sf_linear_input_grad(dev, input_grad, grad, linear->weight->model, run->tokens_local, linear->in, linear->out, run->dtype);
  sf_trace_act_grad(run, linear->module, &linear->in_map, input_grad);
  if (linear->weight->trainable) {
    sf_linear_weight_grad(dev, run->params.scratch, grad, input, run->tokens_local, linear->in, linear->out);
    sf_parameter_accumulate(run, linear->weight, run->params.scratch, 0);
  }
  return input_grad;
}
