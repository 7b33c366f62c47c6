/* Faults of save and load: ckpt-local-layer-names. */
#include "targets/builtin/parallel/fault.h"

int32_t sf_fault_name_in_stage(const struct sf_rank_run *run, const struct sf_parameter *param) {
  const struct sf_catalog *catalog = run->env->catalog;
  const int32_t layer = catalog->modules[catalog->params[param->index].module].layer;
  if (layer < 0 || layer >= run->c->model.layers) return param->index;
  int64_t first, count;
  sf_case_stage_layers(run->c, (int64_t)param->chunk * run->parallel.pp.size + run->parallel.pp.index, &first, &count);
  const int32_t which = param->index - sf_catalog_param(catalog, param->cls, layer, 0);
  return sf_catalog_param(catalog, param->cls, layer - (int32_t)first, which);
}
