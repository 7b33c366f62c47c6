/* Faults of fp8: fp8-layer-exempt-local-index. */
#include "targets/builtin/parallel/fault.h"

int32_t sf_fault_fp8_layer_in_stage(const struct sf_rank_run *run, int32_t layer) {
  int64_t first, count;
  sf_case_stage_layers(run->c, (int64_t)run->params.chunk * run->parallel.pp.size + run->parallel.pp.index, &first, &count);
  return layer - (int32_t)first;
}
