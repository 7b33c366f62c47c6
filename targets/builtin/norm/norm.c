#include "targets/builtin/norm/norm.h"

#include "targets/plugin/plugged_layer.h"

static void plug(struct sf_norm_layer *layer, struct sf_rank_run *run, enum sf_module_class cls, int32_t index) {
  layer->plugged = sf_plugged_create(run, cls, index, false);
  if (layer->plugged == NULL) return;
  layer->plugged->in_map = layer->plugged->out_map = &layer->map;
  layer->plugged->in_dtype = layer->grad_dtype;
  sf_plugged_add_parameter(layer->plugged, "weight", layer->weight, 0);
  sf_plugged_add_parameter(layer->plugged, "bias", layer->bias, 0);
}

void sf_norm_layer_create(struct sf_norm_layer *layer, struct sf_rank_run *run, enum sf_module_class cls, int32_t index) {
  *layer = (struct sf_norm_layer){.norm = (enum sf_norm)run->c->model.norm, .module = sf_rank_module(run, cls, index)};
  layer->grad_dtype = sf_modules[cls].act_grad.promise == SF_PROMISE_STREAM ? run->stream_dtype : run->dtype;
  layer->weight = sf_parameter_create_whole(run, cls, index, 0, run->parallel.sp);
  layer->bias = sf_parameter_create_whole(run, cls, index, 1, run->parallel.sp);
  layer->width = layer->weight->count;
  layer->map = (struct sf_shard_map){.rows = run->map_hidden.rows, .cols = sf_dim_map_whole(layer->width)};
  plug(layer, run, cls, index);
}

float *sf_norm_layer_forward(struct sf_rank_run *run, const struct sf_norm_layer *layer, const float *x, float **stats) {
  *stats = NULL;
  if (layer->plugged != NULL) return sf_plugged_forward(run, layer->plugged, x);
  struct sf_device *dev = run->env->device;
  float *y = sf_buffers_take(&run->acts, run->tokens_local * layer->width);
  *stats = sf_buffers_take(&run->acts, 2 * run->tokens_local);
  const float *bias = layer->bias != NULL ? layer->bias->model : NULL;
  dev->ops->norm_fwd(dev, y, *stats, x, layer->weight->model, bias, run->tokens_local, layer->width, layer->norm, run->dtype);
  sf_trace_act(run, layer->module, &layer->map, y);
  return y;
}

float *sf_norm_layer_backward(struct sf_rank_run *run, const struct sf_norm_layer *layer, const float *grad, const float *x,
                              const float *stats) {
  if (layer->plugged != NULL) return sf_plugged_backward(run, layer->plugged, grad, x);
  struct sf_device *dev = run->env->device;
  const int64_t h = layer->width;
  float *dx = sf_buffers_take(&run->acts, run->tokens_local * h);
  float *dw = layer->weight->trainable ? run->params.scratch : NULL;
  float *db = layer->bias != NULL && layer->bias->trainable ? run->params.scratch + h : NULL;
  memset(run->params.scratch, 0, (size_t)(2 * h) * sizeof(float));
  dev->ops->norm_bwd(dev, dx, dw, db, grad, x, stats, layer->weight->model, run->tokens_local, h, layer->norm, layer->grad_dtype);
  sf_trace_act_grad(run, layer->module, &layer->map, dx);
  if (dw != NULL) sf_parameter_accumulate(run, layer->weight, dw, 0);
  if (db != NULL) sf_parameter_accumulate(run, layer->bias, db, 0);
  return dx;
}
