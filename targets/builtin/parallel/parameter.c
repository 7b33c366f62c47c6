#include "targets/builtin/parallel/parameter.h"

#include "harness/base/assert.h"
#include "targets/builtin/parallel/fault.h"
#include "targets/builtin/parallel/rank_run.h"

struct sf_parameter *sf_parameter_create(struct sf_rank_run *run, enum sf_module_class cls, int32_t layer, int which,
                                         const struct sf_parameter_cut *cut) {
  struct sf_parameters *params = &run->params;
  const int32_t index = sf_catalog_param(run->env->catalog, cls, layer, which);
  if (index < 0) return NULL;
  if (params->at == NULL) {
    params->capacity = run->env->catalog->param_count;
    params->at = sf_rank_alloc(run->env, (size_t)params->capacity * sizeof(struct sf_parameter *));
  }
  SF_ASSERT_LT(params->count, params->capacity);
  struct sf_parameter *param = sf_rank_alloc(run->env, sizeof *param);
  *param = (struct sf_parameter){.index = index,
                                 .cls = cls,
                                 .chunk = params->chunk,
                                 .map = {.rows = cut->rows, .cols = cut->cols},
                                 .wgrad_map = {.rows = cut->rows, .cols = cut->cols},
                                 .count = sf_dim_map_length(&cut->rows) * sf_dim_map_length(&cut->cols),
                                 .trainable = !run->env->catalog->params[index].frozen,
                                 .uses = 1};
  params->at[params->count++] = param;
  return param;
}

struct sf_parameter *sf_parameter_create_whole(struct sf_rank_run *run, enum sf_module_class cls, int32_t layer, int which,
                                               bool is_partial) {
  const int32_t index = sf_catalog_param(run->env->catalog, cls, layer, which);
  if (index < 0) return NULL;
  const struct sf_shape shape = run->env->catalog->params[index].shape;
  const struct sf_parameter_cut whole = {sf_dim_map_whole(shape.rows), sf_dim_map_whole(shape.cols)};
  struct sf_parameter *param = sf_parameter_create(run, cls, layer, which, &whole);
  param->replicated = true;
  param->sum_over_tp = is_partial;
  sf_dim_map_set_partial(&param->wgrad_map.rows, is_partial);
  return param;
}

static void allocate_weights(struct sf_rank_run *run, struct sf_parameter *param) {
  const size_t bytes = (size_t)param->count * sizeof(float);
  const bool sharded = param->trainable && run->c->layout.zero > 0;
  if (!sharded) param->master = sf_rank_alloc(run->env, bytes);
  const bool is_same = run->dtype == SF_F32 || run->c->precision.stochastic;
  param->model = is_same && !sharded ? param->master : sf_rank_alloc(run->env, bytes);
  if (!param->trainable || sharded) return;
  param->adam_m = sf_rank_alloc_zeros(run->env, param->count);
  param->adam_v = sf_rank_alloc_zeros(run->env, param->count);
}

void sf_parameters_build(struct sf_rank_run *run) {
  struct sf_parameters *params = &run->params;
  /* A norm makes its weight and bias gradients together, and those of queries and keys too. */
  const struct sf_model *m = &run->c->model;
  const int64_t widths[] = {run->hidden, m->qk_norm ? 2 * m->head_dim : 0, m->q_lora_rank, m->kv_lora_rank};
  int64_t largest = 0;
  for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) largest = 2 * widths[i] > largest ? 2 * widths[i] : largest;
  for (int32_t i = 0; i < params->count; i++) {
    allocate_weights(run, params->at[i]);
    if (run->parallel.cp.size > 1) sf_dim_map_add_partial(&params->at[i]->wgrad_map.rows, SF_AXES(SF_AXIS_CP));
    if (params->at[i]->count > largest) largest = params->at[i]->count;
  }
  params->scratch = sf_rank_alloc(run->env, (size_t)largest * sizeof(float));
  if (run->c->precision.stochastic) {
    params->updated = sf_rank_alloc(run->env, (size_t)largest * sizeof(float));
    params->random = sf_rank_alloc(run->env, (size_t)largest * sizeof *params->random);
  }
}

void sf_parameter_publish(struct sf_rank_run *run, struct sf_parameter *param) {
  if (param->model == param->master) return;
  run->env->device->ops->round(run->env->device, param->model, param->master, param->count, run->dtype);
}

void sf_parameter_accumulate(struct sf_rank_run *run, struct sf_parameter *param, float *grad, int call) {
  struct sf_device *dev = run->env->device;
  if (!param->expert) sf_trace_param(run, SF_KIND_WGRAD, param, call, grad);
  const bool early = sf_fault(run->env, SF_FAULT_REDUCE_BEFORE_WGRAD) && run->buckets.overlap;
  sf_grad_buckets_enter(run, param);
  if (early) sf_grad_buckets_ready(run, param);
  const bool added = sf_fault(run->env, SF_FAULT_ACCUM_FIRST_MB_ONLY) && run->local_microbatch > 0;
  if (!added) dev->ops->axpy(dev, param->main_grad, grad, 1.0f, param->count);
  if (!early) sf_grad_buckets_ready(run, param);
}
