#include "targets/builtin/parallel/saved_input.h"

#include "targets/builtin/parallel/fault.h"
#include "targets/builtin/parallel/mappings.h"

static int64_t rows_kept(const struct sf_rank_run *run) {
  const int64_t tp = run->parallel.tp.size;
  return (run->tokens + tp - 1) / tp;
}

float *sf_saved_input_cut(struct sf_rank_run *run, float *x) {
  const int64_t rows = rows_kept(run), first = rows * run->parallel.tp.index, left = run->tokens - first;
  const int64_t held = left < 0 ? 0 : left < rows ? left : rows;
  float *part = sf_buffers_take_zeros(&run->acts, rows * run->hidden);
  memcpy(part, x + first * run->hidden, (size_t)(held * run->hidden) * sizeof *part);
  sf_buffers_give(&run->acts, x);
  return part;
}

float *sf_saved_input_gather(struct sf_rank_run *run, float *part) {
  const struct sf_group group = sf_fault(run->env, SF_FAULT_RECOMPUTE_WRONG_TP_GROUP) ? sf_fault_default_tp_group(run) : run->parallel.tp;
  const int64_t count = rows_kept(run) * run->hidden;
  float *x = sf_mapping_gather(run, &group, part, count, run->stream_dtype, "saved_input.all_gather");
  sf_buffers_give(&run->acts, part);
  return x;
}
