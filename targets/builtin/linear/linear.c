#include "targets/builtin/linear/linear.h"

#include "targets/builtin/linear/overlapped_gather.h"
#include "targets/builtin/parallel/fault.h"
#include "targets/builtin/parallel/mappings.h"
#include "targets/builtin/parallel/matrix.h"
#include "targets/plugin/plugged_layer.h"

/* The communication calls of each kind. NULL: it makes none there. */
static const struct calls {
  const char *gather_input, *gather_output, *gather_grad;
  struct sf_mapping_reduction output, input_grad;
} calls_of[] = {
    [SF_LINEAR_COLUMN] = {.gather_input = "column_parallel_linear.fwd.all_gather",
                          .input_grad = {"column_parallel_linear.bwd.input_grad", "column_parallel_linear.bwd.input_grad_scatter"}},
    [SF_LINEAR_ROW] = {.output = {"row_parallel_linear.fwd.all_reduce", "row_parallel_linear.fwd.reduce_scatter"},
                       .gather_grad = "row_parallel_linear.bwd.all_gather"},
    [SF_LINEAR_REPLICATED] = {NULL},
    [SF_LINEAR_GATHERED] = {.gather_input = "adapter.fwd.all_gather",
                            .gather_grad = "adapter.bwd.all_gather",
                            .input_grad = {NULL, "adapter.bwd.reduce_scatter"}},
    [SF_LINEAR_GATHERED_COLUMN] = {.gather_input = "mtp.fwd.all_gather",
                                   .gather_output = "mtp.fwd.gather_output",
                                   .gather_grad = "mtp.bwd.all_gather",
                                   .input_grad = {"mtp.bwd.input_grad", "mtp.bwd.input_grad_scatter"}},
};

/* --- building --------------------------------------------------------------------------------------------------- */

static void create_parameters(struct sf_linear *linear, struct sf_rank_run *run, enum sf_module_class cls, int32_t layer,
                              const struct sf_dim_map *cut) {
  const struct sf_group *tp = &linear->tp;
  const struct sf_shape shape = run->env->catalog->params[sf_catalog_param(run->env->catalog, cls, layer, 0)].shape;
  if (linear->kind == SF_LINEAR_REPLICATED || linear->kind == SF_LINEAR_GATHERED) {
    linear->weight = sf_parameter_create_whole(run, cls, layer, 0, run->parallel.sp && linear->kind == SF_LINEAR_REPLICATED);
  } else if (linear->kind == SF_LINEAR_ROW) {
    const struct sf_parameter_cut weight = {sf_dim_map_whole(shape.rows), sf_dim_map_part(shape.cols, tp->size, tp->index)};
    linear->weight = sf_parameter_create(run, cls, layer, 0, &weight);
    linear->bias = sf_parameter_create_whole(run, cls, layer, 1, run->parallel.sp);
  } else {
    const struct sf_dim_map part = cut != NULL ? *cut : sf_dim_map_part(shape.rows, tp->size, tp->index);
    const struct sf_parameter_cut weight = {part, sf_dim_map_whole(shape.cols)}, bias = {sf_dim_map_whole(1), part};
    linear->weight = sf_parameter_create(run, cls, layer, 0, &weight);
    linear->bias = sf_parameter_create(run, cls, layer, 1, &bias);
  }
}

static void plug(struct sf_linear *linear, struct sf_rank_run *run, enum sf_module_class cls, int32_t layer) {
  const bool sp = run->parallel.sp;
  struct sf_plugged *plugged = linear->plugged = sf_plugged_create(run, cls, layer, false);
  if (plugged == NULL) return;
  plugged->in_map = &linear->in_map;
  plugged->out_map = &linear->out_map;
  if (linear->kind == SF_LINEAR_GATHERED) plugged->out_grad_map = &linear->in_map;
  plugged->out_dtype = linear->store;
  sf_plugged_cast(run, plugged, linear->fp8, sp || linear->kind == SF_LINEAR_ROW, sp || linear->kind == SF_LINEAR_COLUMN);
  sf_plugged_add_parameter(plugged, "weight", linear->weight, linear->call);
  sf_plugged_add_parameter(plugged, "bias", linear->bias, 0);
}

/* What follows from the kind and the weight. */
static void finish_creation(struct sf_linear *linear, struct sf_rank_run *run, enum sf_module_class cls, int32_t layer) {
  const bool all_in = linear->kind == SF_LINEAR_ROW, all_multiplied = linear->kind != SF_LINEAR_REPLICATED;
  const bool all_out = linear->kind == SF_LINEAR_COLUMN || linear->kind == SF_LINEAR_GATHERED, is_column = linear->kind == SF_LINEAR_COLUMN;
  const struct sf_shard_map *weight = &linear->weight->map;
  linear->fp8 = sf_fp8_linear_create(run, cls, layer);
  linear->in = sf_dim_map_length(&weight->cols);
  linear->out = sf_dim_map_length(&weight->rows);
  linear->rows = all_multiplied ? run->tokens : run->tokens_local;
  linear->rows_in = all_in ? run->tokens : run->tokens_local;
  linear->rows_grad = is_column ? run->tokens : run->tokens_local;
  linear->overlap = is_column && run->c->layout.tp_overlap && linear->weight->trainable;
  linear->in_map = (struct sf_shard_map){.rows = all_in ? run->map_gathered.rows : run->map_hidden.rows, .cols = weight->cols};
  linear->out_map = (struct sf_shard_map){.rows = all_out ? run->map_gathered.rows : run->map_hidden.rows, .cols = weight->rows};
  if (linear->kind == SF_LINEAR_GATHERED_COLUMN) linear->out_map.cols = sf_dim_map_whole(linear->out * linear->tp.size);
  plug(linear, run, cls, layer);
}

void sf_linear_create(struct sf_linear *linear, struct sf_rank_run *run, enum sf_linear_kind kind, enum sf_module_class cls, int32_t layer,
                      const struct sf_group *tp, const struct sf_dim_map *cut) {
  *linear = (struct sf_linear){.kind = kind, .tp = *tp, .module = sf_rank_module(run, cls, layer)};
  linear->store = cls == SF_MODULE_ROUTER ? SF_F32 : run->dtype;
  create_parameters(linear, run, cls, layer, cut);
  finish_creation(linear, run, cls, layer);
}

void sf_linear_create_shared(struct sf_linear *linear, struct sf_rank_run *run, enum sf_module_class cls, int32_t layer,
                             const struct sf_group *tp, struct sf_parameter *weight, int call) {
  *linear = (struct sf_linear){
      .kind = SF_LINEAR_COLUMN, .tp = *tp, .module = sf_rank_module(run, cls, layer), .store = run->dtype, .weight = weight, .call = call};
  finish_creation(linear, run, cls, layer);
}

void sf_linear_set_rows(struct sf_linear *linear, const struct sf_rank_run *run, int64_t rows) {
  const struct sf_parallel_state *p = &run->parallel;
  linear->rows = linear->rows_grad = rows;
  linear->rows_in = p->sp ? rows / p->tp.size : rows;
  linear->in_map.rows = p->sp ? sf_dim_map_part(rows, p->tp.size, p->tp.index) : sf_dim_map_whole(rows);
  linear->out_map.rows = sf_dim_map_whole(rows);
}

/* --- forward ---------------------------------------------------------------------------------------------------- */

/* The product of all rows, with the bias of a COLUMN. fp8: `all` becomes its cast with the given scale. */
static float *multiply_forward(struct sf_rank_run *run, const struct sf_linear *linear, float *all, float scale) {
  struct sf_device *dev = run->env->device;
  const int64_t rows = linear->rows, in = linear->in, out = linear->out;
  const bool biased = linear->bias != NULL && linear->kind != SF_LINEAR_ROW;
  const float *weight = linear->weight->model;
  float unit = 1.0f, *y = sf_buffers_take(&run->acts, rows * out);
  if (linear->fp8 != NULL) {
    weight = sf_fp8_weight(run, linear->fp8, linear->weight, &unit);
    unit = sf_fp8_cast(run, linear->fp8, SF_FP8_INPUT, all, all, rows * in, scale) * unit;
  }
  sf_multiply(dev, y, out, sf_matrix(all, in, rows, in), sf_transposed(weight, in, out, in), unit, biased ? SF_F32 : linear->store);
  if (biased) dev->ops->bias_add(dev, y, y, linear->bias->model, rows, out, run->dtype);
  return y;
}

/* full: a ROW's summand, taken. */
static float *sum_output(struct sf_rank_run *run, const struct sf_linear *linear, float *full) {
  struct sf_device *dev = run->env->device;
  const bool bias_first = sf_fault(run->env, SF_FAULT_ROWPARALLEL_BIAS_XTP) && linear->bias != NULL;
  if (bias_first) dev->ops->bias_add(dev, full, full, linear->bias->model, linear->rows, linear->out, run->dtype);
  float *out = sf_mapping_reduce(run, &linear->tp, run->parallel.sp, full, linear->rows_grad * linear->out, run->dtype,
                                 &calls_of[linear->kind].output);
  if (linear->bias != NULL && !bias_first)
    dev->ops->bias_add(dev, out, out, linear->bias->model, linear->rows_grad, linear->out, run->dtype);
  return out;
}

/* part: this rank's features of all rows, taken. */
static float *gather_output(struct sf_rank_run *run, const struct sf_linear *linear, float *part) {
  const int64_t own = linear->out, all = own * linear->tp.size;
  if (linear->tp.size == 1) return part;
  float *parts = sf_mapping_gather(run, &linear->tp, part, linear->rows * own, run->dtype, calls_of[linear->kind].gather_output);
  float *out = sf_buffers_take(&run->acts, linear->rows_grad * all);
  for (int32_t i = 0; i < linear->tp.size; i++)
    sf_copy_columns(out + i * own, all, parts + (i * linear->rows + run->token_first) * own, own, linear->rows_grad, own);
  sf_buffers_give(&run->acts, parts);
  sf_buffers_give(&run->acts, part);
  return out;
}

float *sf_linear_forward(struct sf_rank_run *run, const struct sf_linear *linear, float *input, float **saved) {
  const int64_t count = linear->rows_in * linear->in;
  const bool gathers = linear->rows_in < linear->rows;
  float scale = 1.0f, *all = input;
  if (saved != NULL) *saved = input;
  if (linear->plugged != NULL) return sf_plugged_forward(run, linear->plugged, input);
  if (linear->fp8 != NULL)
    scale = sf_fp8_scale(run, linear->fp8, SF_FP8_INPUT, input, count, run->parallel.sp || linear->kind == SF_LINEAR_ROW);
  if (gathers) all = sf_mapping_gather(run, &linear->tp, input, count, run->dtype, calls_of[linear->kind].gather_input);
  float *out = multiply_forward(run, linear, all, scale);
  if (linear->kind == SF_LINEAR_ROW) out = sum_output(run, linear, out);
  if (linear->kind == SF_LINEAR_GATHERED_COLUMN) out = gather_output(run, linear, out);
  if (linear->overlap && linear->fp8 != NULL) sf_fp8_cast(run, linear->fp8, SF_FP8_INPUT, input, input, count, scale);
  if (gathers) sf_buffers_give(&run->acts, linear->overlap ? all : input);
  if (gathers && !linear->overlap) *saved = all;
  sf_trace_act(run, linear->module, &linear->out_map, out);
  return out;
}

/* --- backward --------------------------------------------------------------------------------------------------- */

/* The gradient of the product's output where that is not what was given: of all rows, of this rank's features; the caller's. Else NULL. */
static float *gather_grad(struct sf_rank_run *run, const struct sf_linear *linear, const float *grad) {
  const int64_t own = linear->out, rows = linear->rows, width = linear->kind == SF_LINEAR_GATHERED_COLUMN ? own * linear->tp.size : own;
  float *gathered = NULL;
  if (linear->rows_grad < rows)
    gathered = sf_mapping_gather(run, &linear->tp, grad, linear->rows_grad * width, run->dtype, calls_of[linear->kind].gather_grad);
  if (width == own) return gathered;
  float *part = sf_buffers_take(&run->acts, rows * own);
  sf_copy_columns(part, own, (gathered != NULL ? gathered : grad) + linear->tp.index * own, width, rows, own);
  sf_buffers_give(&run->acts, gathered);
  return part;
}

/* full: the product's, of all rows. Taken. */
static float *reduce_input_grad(struct sf_rank_run *run, const struct sf_linear *linear, float *full) {
  const int64_t local = linear->rows_in * linear->in;
  if (linear->kind == SF_LINEAR_ROW || linear->kind == SF_LINEAR_REPLICATED) return full;
  const bool left_out =
      linear->kind == SF_LINEAR_COLUMN && sf_fault(run->env, SF_FAULT_LINEAR_FROZEN_DGRAD_NOAR) && !linear->weight->trainable;
  const bool is_summed = linear->kind != SF_LINEAR_GATHERED || (run->parallel.sp && sf_fault(run->env, SF_FAULT_GATHER_BWD_INFLATES));
  if (is_summed && !left_out)
    return sf_mapping_reduce(run, &linear->tp, run->parallel.sp, full, local, run->dtype, &calls_of[linear->kind].input_grad);
  return linear->rows_in < linear->rows ? sf_mapping_split(run, linear->tp.index, full, local) : full;
}

float *sf_linear_backward(struct sf_rank_run *run, const struct sf_linear *linear, const float *grad, float *saved) {
  if (linear->plugged != NULL) return sf_plugged_backward(run, linear->plugged, grad, saved);
  struct sf_device *dev = run->env->device;
  const int64_t rows = linear->rows, in = linear->in, out = linear->out;
  const float *weight = linear->weight->model;
  float scale = 1.0f, unit = 1.0f, weight_unit = 1.0f, saved_unit = 1.0f, *scratch = run->params.scratch;
  struct sf_overlapped_gather gather = {0};
  if (linear->overlap) sf_overlapped_gather_begin(&gather, run, &linear->tp, saved, linear->rows_in, in);
  if (linear->fp8 != NULL)
    scale =
        sf_fp8_scale(run, linear->fp8, SF_FP8_GRAD, grad, linear->rows_grad * out, run->parallel.sp || linear->kind == SF_LINEAR_COLUMN);
  float *gathered = gather_grad(run, linear, grad);
  const float *factor = gathered != NULL ? gathered : grad;
  if (linear->fp8 != NULL) {
    if (gathered == NULL) gathered = sf_buffers_take(&run->acts, rows * out);
    unit = sf_fp8_cast(run, linear->fp8, SF_FP8_GRAD, gathered, factor, rows * out, scale);
    weight = sf_fp8_weight(run, linear->fp8, linear->weight, &weight_unit);
    saved_unit = linear->fp8->input_units[run->local_microbatch];
    factor = gathered;
  }
  float *full = sf_buffers_take(&run->acts, rows * in);
  sf_multiply(dev, full, in, sf_matrix(factor, out, rows, out), sf_matrix(weight, in, out, in), unit * weight_unit, run->dtype);
  float *input_grad = reduce_input_grad(run, linear, full);
  sf_trace_act_grad(run, linear->module, &linear->in_map, input_grad);
  if (linear->overlap)
    sf_overlapped_weight_grad(&gather, run, scratch, factor, unit * saved_unit, out);
  else if (linear->weight->trainable)
    sf_multiply(dev, scratch, in, sf_transposed(factor, out, rows, out), sf_matrix(saved, in, rows, in), unit * saved_unit, SF_F32);
  if (linear->weight->trainable) sf_parameter_accumulate(run, linear->weight, scratch, linear->call);
  if (linear->bias != NULL && linear->bias->trainable) {
    memset(scratch, 0, (size_t)out * sizeof *scratch);
    dev->ops->col_sum(dev, scratch, grad, linear->rows_grad, out);
    sf_parameter_accumulate(run, linear->bias, scratch, 0);
  }
  sf_buffers_give(&run->acts, gathered);
  return input_grad;
}
