#include "targets/builtin/linear/column_parallel_linear.h"

#include "targets/builtin/parallel/fault.h"
#include "targets/builtin/linear/linear.h"
#include "targets/builtin/linear/overlapped_gather.h"
#include "targets/plugin/plugged_layer.h"

static void create_params(struct sf_column_parallel_linear *linear, struct sf_rank_run *run, enum sf_module_class cls, int32_t layer,
                          const struct sf_dim_map *out_dim) {
  const struct sf_catalog *catalog = run->env->catalog;
  const int64_t in = catalog->params[sf_catalog_param(catalog, cls, layer, 0)].shape.cols;
  const struct sf_parameter_cut weight_cut = {*out_dim, sf_dim_map_whole(in)};
  linear->weight = sf_parameter_create(run, cls, layer, 0, &weight_cut);
  const struct sf_parameter_cut bias_cut = {sf_dim_map_whole(1), *out_dim};
  linear->bias = sf_parameter_create(run, cls, layer, 1, &bias_cut);
}

static void plug(struct sf_column_parallel_linear *linear, struct sf_rank_run *run, enum sf_module_class cls, int32_t layer) {
  linear->plugged = sf_plugged_create(run, cls, layer, false, linear->sp);
  if (linear->plugged == NULL) return;
  linear->plugged->in_map = &linear->in_map;
  linear->plugged->out_map = &linear->out_map;
  sf_plugged_cast(run, linear->plugged, linear->fp8, linear->sp, true);
  sf_plugged_add_parameter(linear->plugged, "weight", linear->weight, linear->call);
  sf_plugged_add_parameter(linear->plugged, "bias", linear->bias, 0);
}

void sf_column_parallel_linear_create(struct sf_column_parallel_linear *linear, struct sf_rank_run *run, enum sf_module_class cls,
                                      int32_t layer, const struct sf_dim_map *out_dim, struct sf_parameter *weight,
                                      const struct sf_group *tp, bool sp) {
  *linear =
      (struct sf_column_parallel_linear){.tp = *tp, .sp = sp, .out = sf_dim_map_length(out_dim), .module = sf_rank_module(run, cls, layer)};
  linear->out_map = (struct sf_shard_map){.rows = run->map_gathered.rows, .cols = *out_dim};
  linear->fp8 = sf_fp8_linear_create(run, cls, layer);
  linear->tokens = run->tokens;
  linear->tokens_local = run->tokens_local;
  if (weight == NULL) {
    create_params(linear, run, cls, layer, out_dim);
  } else {
    linear->weight = weight;
    linear->call = 1;
  }
  linear->overlap = run->c->layout.tp_overlap && linear->weight->trainable;
  linear->in = sf_dim_map_length(&linear->weight->map.cols);
  linear->in_map = (struct sf_shard_map){.rows = run->map_hidden.rows, .cols = linear->weight->map.cols};
  plug(linear, run, cls, layer);
}

void sf_column_parallel_linear_set_call(struct sf_column_parallel_linear *linear, int call) {
  linear->call = call;
  if (linear->plugged != NULL) linear->plugged->params[0].call = call;
}

void sf_column_parallel_linear_set_rows(struct sf_column_parallel_linear *linear, const struct sf_rank_run *run, int64_t rows) {
  const struct sf_group *tp = &run->parallel.tp;
  linear->tokens = rows;
  linear->tokens_local = linear->sp ? rows / tp->size : rows;
  linear->in_map.rows = linear->sp ? sf_dim_map_part(rows, tp->size, tp->index) : sf_dim_map_whole(rows);
  linear->out_map.rows = sf_dim_map_whole(rows);
}

/* out = round(a W^T + bias). fp8: `full` becomes its cast with the given scale. */
static void multiply_forward(struct sf_rank_run *run, const struct sf_column_parallel_linear *linear, float *out, float *full,
                             float scale) {
  struct sf_device *dev = run->env->device;
  const int64_t tokens = linear->tokens, h = linear->in;
  const bool biased = linear->bias != NULL;
  const float *weight = linear->weight->model;
  float unit = 1.0f;
  if (linear->fp8 != NULL) {
    weight = sf_fp8_weight(run, linear->fp8, linear->weight, &unit);
    unit = sf_fp8_cast_input(run, linear->fp8, full, tokens * h, scale) * unit;
  }
  sf_linear_forward_units(dev, out, full, weight, unit, tokens, h, linear->out, biased ? SF_F32 : run->dtype);
  if (biased) dev->ops->bias_add(dev, out, out, linear->bias->model, tokens, linear->out, run->dtype);
}

float *sf_column_parallel_linear_forward(struct sf_rank_run *run, const struct sf_column_parallel_linear *linear, float *input,
                                         float **saved) {
  if (linear->plugged != NULL) {
    *saved = input;
    return sf_plugged_forward(run, linear->plugged, input);
  }
  const int64_t tokens = linear->tokens, h = linear->in;
  float scale = 1.0f;
  if (linear->fp8 != NULL) scale = sf_fp8_scale(run, linear->fp8, SF_FP8_INPUT, input, linear->tokens_local * h, linear->sp);
  if (linear->sp) {
    float *gathered = sf_buffers_take(&run->acts, tokens * h);
    sf_all_gather(run->env->comm, &linear->tp, gathered, input, linear->tokens_local * h, run->dtype,
                  "column_parallel_linear.fwd.all_gather");
    if (!linear->overlap) sf_buffers_give(&run->acts, input);
    *saved = linear->overlap ? input : gathered;
    input = gathered;
  } else {
    *saved = input;
  }
  float *out = sf_buffers_take(&run->acts, tokens * linear->out);
  multiply_forward(run, linear, out, input, scale);
  if (linear->overlap) {
    if (linear->fp8 != NULL) sf_fp8_cast_input(run, linear->fp8, *saved, linear->tokens_local * h, scale);
    sf_buffers_give(&run->acts, input);
  }
  sf_trace_act(run, linear->module, &linear->out_map, out);
  return out;
}

/* full: [T x h], this rank's summand. Taken. */
static float *reduce_input_grad(struct sf_rank_run *run, const struct sf_column_parallel_linear *linear, float *full) {
  const int64_t count = linear->tokens * linear->in, local = linear->tokens_local * linear->in;
  const bool left_out = sf_fault(run->env, SF_FAULT_LINEAR_FROZEN_DGRAD_NOAR) && !linear->weight->trainable;
  if (linear->tp.size == 1) return full;
  if (!linear->sp) {
    if (!left_out)
      sf_all_reduce(run->env->comm, &linear->tp, full, count, run->dtype, SF_REDUCE_SUM, "column_parallel_linear.bwd.input_grad");
    return full;
  }
  float *out = sf_buffers_take(&run->acts, local);
  if (left_out)
    memcpy(out, full + linear->tp.index * local, (size_t)local * sizeof *out);
  else
    sf_reduce_scatter(run->env->comm, &linear->tp, out, full, local, run->dtype, SF_REDUCE_SUM,
                      "column_parallel_linear.bwd.input_grad_scatter");
  sf_buffers_give(&run->acts, full);
  return out;
}

float *sf_column_parallel_linear_backward(struct sf_rank_run *run, const struct sf_column_parallel_linear *linear, const float *grad,
                                          float *saved) {
  if (linear->plugged != NULL) {
    float *plugged_grad = sf_plugged_backward(run, linear->plugged, grad, saved);
    sf_buffers_give(&run->acts, saved);
    return plugged_grad;
  }
  struct sf_device *dev = run->env->device;
  const int64_t tokens = linear->tokens, h = linear->in;
  struct sf_overlapped_gather gather = {0};
  if (linear->overlap) sf_overlapped_gather_begin(&gather, run, &linear->tp, saved, linear->tokens_local, h);
  float *full = sf_buffers_take(&run->acts, tokens * h), *cast = NULL;
  const float *weight = linear->weight->model;
  float unit = 1.0f, weight_unit = 1.0f, saved_unit = 1.0f;
  if (linear->fp8 != NULL) {
    const float scale = sf_fp8_scale(run, linear->fp8, SF_FP8_GRAD, grad, tokens * linear->out, true);
    cast = sf_buffers_take(&run->acts, tokens * linear->out);
    unit = sf_fp8_cast_grad(run, cast, grad, tokens * linear->out, scale);
    weight = sf_fp8_weight(run, linear->fp8, linear->weight, &weight_unit);
    saved_unit = linear->fp8->input_units[run->local_microbatch];
  }
  const float *factor = cast != NULL ? cast : grad;
  sf_linear_input_grad_units(dev, full, factor, weight, unit * weight_unit, tokens, h, linear->out, run->dtype);
  float *input_grad = reduce_input_grad(run, linear, full);
  sf_trace_act_grad(run, linear->module, &linear->in_map, input_grad);
  float *scratch = run->params.scratch;
  if (linear->weight->trainable) {
    if (linear->overlap)
      sf_overlapped_weight_grad(&gather, run, scratch, factor, unit * saved_unit, linear->out);
    else
      sf_linear_weight_grad_units(dev, scratch, factor, saved, unit * saved_unit, tokens, h, linear->out);
    sf_parameter_accumulate(run, linear->weight, scratch, linear->call);
  }
  if (linear->bias != NULL && linear->bias->trainable) {
    sf_linear_bias_grad(dev, scratch, grad, tokens, linear->out);
    sf_parameter_accumulate(run, linear->bias, scratch, 0);
  }
  sf_buffers_give(&run->acts, cast);
  if (!linear->overlap) sf_buffers_give(&run->acts, saved);
  return input_grad;
}
