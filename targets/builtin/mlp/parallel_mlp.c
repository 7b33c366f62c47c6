#include "targets/builtin/mlp/parallel_mlp.h"

#include "targets/builtin/parallel/fault.h"
#include "targets/plugin/plugged_layer.h"

static struct sf_dim_map fc1_dim(int64_t width, bool fused, const struct sf_group *tp) {
  const int64_t part = width / tp->size;
  struct sf_dim_map dim = {0};
  sf_dim_map_append(&dim, tp->index * part, part, false);
  if (fused) sf_dim_map_append(&dim, width + tp->index * part, part, false);
  return dim;
}

static void plug(struct sf_parallel_mlp *mlp, struct sf_rank_run *run, const struct sf_mlp_modules *modules, int32_t layer) {
  struct sf_plugged *plugged = mlp->plugged = sf_plugged_create(run, modules->fc1, layer, true);
  if (plugged == NULL) return;
  const struct sf_linear *fc1 = &mlp->linear_fc1, *fc2 = &mlp->linear_fc2;
  plugged->last_module = fc2->module;
  plugged->in_map = &fc1->in_map;
  plugged->out_map = &run->map_hidden;
  sf_plugged_add_parameter(plugged, "linear_fc1.weight", fc1->weight, 0);
  sf_plugged_add_parameter(plugged, "linear_fc1.bias", fc1->bias, 0);
  sf_plugged_add_parameter(plugged, "linear_fc2.weight", fc2->weight, 0);
  sf_plugged_add_parameter(plugged, "linear_fc2.bias", fc2->bias, 0);
  plugged->outputs[0] = (struct sf_plugged_inner){"linear_fc1", fc1->module, &fc1->out_map};
  plugged->outputs[1] = (struct sf_plugged_inner){"activation", mlp->module_activation, &fc2->in_map};
  plugged->input_grads[0] = (struct sf_plugged_inner){"linear_fc2", fc2->module, &fc2->in_map};
  plugged->input_grads[1] = (struct sf_plugged_inner){"activation", mlp->module_activation, &fc1->out_map};
}

void sf_parallel_mlp_create(struct sf_parallel_mlp *mlp, struct sf_rank_run *run, const struct sf_mlp_modules *modules, int32_t layer,
                            const struct sf_group *tp) {
  mlp->layer = layer;
  mlp->module_activation = sf_rank_module(run, modules->activation, layer);
  const bool fused = sf_case_fc1_parts(run->c) > 1;
  const struct sf_dim_map dim = fc1_dim(modules->width, fused, tp);
  sf_linear_create(&mlp->linear_fc1, run, SF_LINEAR_COLUMN, modules->fc1, layer, tp, &dim);
  mlp->linear_fc1.weight->fused = fused;
  if (mlp->linear_fc1.bias != NULL) mlp->linear_fc1.bias->fused = fused;
  sf_linear_create(&mlp->linear_fc2, run, SF_LINEAR_ROW, modules->fc2, layer, tp, NULL);
  plug(mlp, run, modules, layer);
}

float *sf_parallel_mlp_forward(struct sf_rank_run *run, const struct sf_parallel_mlp *mlp, struct sf_mlp_acts *acts, float *input) {
  if (mlp->plugged != NULL) {
    acts->fc1_input = input;
    return sf_plugged_forward(run, mlp->plugged, input);
  }
  const int64_t width = mlp->linear_fc2.in;
  acts->fc1_out = sf_linear_forward(run, &mlp->linear_fc1, input, &acts->fc1_input);
  acts->fc2_input = sf_buffers_take(&run->acts, run->tokens * width);
  struct sf_device *dev = run->env->device;
  dev->ops->activation_fwd[run->c->model.activation](dev, acts->fc2_input, acts->fc1_out, run->tokens, width, run->dtype);
  sf_trace_act(run, mlp->module_activation, &mlp->linear_fc2.in_map, acts->fc2_input);
  return sf_linear_forward(run, &mlp->linear_fc2, acts->fc2_input, NULL);
}

float *sf_parallel_mlp_backward(struct sf_rank_run *run, const struct sf_parallel_mlp *mlp, struct sf_mlp_acts *acts, const float *grad) {
  const int64_t width = mlp->linear_fc2.in;
  sf_fault_canary_backward(run, mlp->layer);
  if (mlp->plugged != NULL) return sf_plugged_backward(run, mlp->plugged, grad, acts->fc1_input);
  float *g = sf_linear_backward(run, &mlp->linear_fc2, grad, acts->fc2_input);
  float *fc1_grad = sf_buffers_take(&run->acts, run->tokens * mlp->linear_fc1.out);
  struct sf_device *dev = run->env->device;
  dev->ops->activation_bwd[run->c->model.activation](dev, fc1_grad, g, acts->fc1_out, run->tokens, width, run->dtype);
  sf_buffers_give(&run->acts, g);
  sf_trace_act_grad(run, mlp->module_activation, &mlp->linear_fc1.out_map, fc1_grad);
  float *input_grad = sf_linear_backward(run, &mlp->linear_fc1, fc1_grad, acts->fc1_input);
  sf_buffers_give(&run->acts, fc1_grad);
  return input_grad;
}
