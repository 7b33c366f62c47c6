#include "targets/builtin/parallel/fault.h"
#include "targets/builtin/optimizer/distributed_optimizer.h"
#include "targets/builtin/parallel/parameter.h"
#include "targets/builtin/parallel/rank_run.h"

/* The map by which the parameter is read: what the layer declares, unless the planted loader cuts fused tensors blindly. */
static struct sf_shard_map load_map(const struct sf_rank_run *run, const struct sf_parameter *param, struct sf_shape shape) {
  struct sf_shard_map map = param->map;
  if (sf_fault(run->env, SF_FAULT_FUSED_PROJ_CONTIGUOUS_SPLIT) && param->fused) {
    if (shape.rows > 1)
      map.rows = sf_fault_contiguous_dim(&map.rows, shape.rows, run->parallel.tp.index);
    else
      map.cols = sf_fault_contiguous_dim(&map.cols, shape.cols, run->parallel.tp.index);
  }
  return map;
}

void sf_parameters_load(struct sf_rank_run *run, int64_t step) {
  const struct sf_catalog *catalog = run->env->catalog;
  for (int32_t i = 0; i < run->params.count; i++) {
    struct sf_parameter *param = run->params.at[i];
    const struct sf_shape shape = catalog->params[param->index].shape;
    const struct sf_fill fill = sf_fill_for_param(catalog, param->index, step);
    const struct sf_shard_map map = load_map(run, param, shape);
    float *values = param->master != NULL ? param->master : run->params.scratch;
    sf_fill_shard(values, &fill, shape, &map, 0);
    if (run->c->precision.stochastic) run->env->device->ops->round(run->env->device, values, values, param->count, SF_BF16);
    if (param->master == NULL) sf_distributed_optimizer_load(run, param, values);
    if (param->model != param->master) run->env->device->ops->round(run->env->device, param->model, values, param->count, run->dtype);
  }
}
