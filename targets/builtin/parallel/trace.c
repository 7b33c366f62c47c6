#include "targets/builtin/parallel/rank_run.h"

#include "harness/base/assert.h"

static void point(const struct sf_rank_run *run, struct sf_trace_id id, const struct sf_shard_map *map, float *data) {
  const struct sf_trace_sink *sink = run->env->sink;
  if (sink == NULL || sink->point == NULL) return;
  const struct sf_shape local = sf_shard_map_local_shape(map);
  sink->point(sink->ctx, run->env->comm->rank, id, map, data, local.rows, local.cols);
}

static struct sf_trace_id microbatch_id(const struct sf_rank_run *run, enum sf_kind kind, int32_t subject, int call) {
  return (struct sf_trace_id){.step = run->step,
                              .microbatch = run->microbatch,
                              .pass = (uint8_t)run->pass,
                              .kind = (uint8_t)kind,
                              .call = (uint8_t)call,
                              .subject = subject};
}

void sf_trace_act(const struct sf_rank_run *run, int32_t module, const struct sf_shard_map *map, float *data) {
  point(run, microbatch_id(run, SF_KIND_ACT, module, 0), map, data);
}

void sf_trace_act_grad(const struct sf_rank_run *run, int32_t module, const struct sf_shard_map *map, float *data) {
  point(run, microbatch_id(run, SF_KIND_ACT_GRAD, module, 0), map, data);
}

void sf_trace_received(const struct sf_rank_run *run, enum sf_kind kind, int32_t module, float *data) {
  point(run, microbatch_id(run, kind, module, 1), &run->map_hidden, data);
}

void sf_trace_param(const struct sf_rank_run *run, enum sf_kind kind, const struct sf_parameter *param, int call, float *data) {
  if (kind == SF_KIND_WGRAD) {
    point(run, microbatch_id(run, kind, param->index, call), &param->wgrad_map, data);
    return;
  }
  const struct sf_trace_id id = {.step = run->step, .pass = SF_PASS_STEP, .kind = (uint8_t)kind, .subject = param->index};
  if (run->buckets.zero == 0 || kind == SF_KIND_PARAM) {
    point(run, id, &param->map, data);
    return;
  }
  const struct sf_param_piece piece = sf_grad_buckets_piece(run, param);
  const struct sf_shard_map map = sf_shard_map_flat(&param->map, piece.first, piece.count);
  point(run, id, &map, data);
}

void sf_trace_scalar(const struct sf_rank_run *run, enum sf_scalar scalar, float value) {
  const struct sf_trace_id id = {.step = run->step, .pass = SF_PASS_STEP, .kind = SF_KIND_SCALAR, .subject = (int32_t)scalar};
  const struct sf_shard_map map = sf_shard_map_whole((struct sf_shape){1, 1});
  point(run, id, &map, &value);
}

int32_t sf_rank_module(const struct sf_rank_run *run, enum sf_module_class cls, int32_t layer) {
  const int32_t module = sf_catalog_module(run->env->catalog, cls, layer);
  SF_ASSERT_LE(0, module);
  return module;
}
