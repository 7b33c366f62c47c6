/* The candidate's world: fibers of this process, or ranks of an MPI job whose traces come to the judging rank. */
#include "harness/base/alloc.h"
#include "harness/run/engine_internal.h"

#include <string.h>

static void rank_main(struct sf_comm *comm, void *arg) {
  struct sf_rank_env *env = arg;
  env->comm = comm;
  sf_target_find(env->c->target)->run(env);
}

enum sf_status sf_engine_run_sim(struct sf_engine *engine, const struct sf_target *target, enum sf_fault fault, struct sf_comm_report *report) {
  (void)target;
  const int32_t world = (int32_t)sf_case_ranks(engine->c);
  const enum sf_status status = sf_engine_prepare_ranks(engine, world, fault);
  if (status != SF_OK) return status;
  const struct sf_sim_options options = {
      .world = world,
      .schedule = (uint64_t)engine->c->schedule,
      .measure = engine->options.measure,
      .progress = engine->options.progress,
  };
  return sf_sim_run(engine->sim, &options, rank_main, engine->env_args, report, NULL, NULL);
}

static void collect_chunk(void *ctx, int32_t rank, struct sf_trace_id id, const struct sf_shard_map *map, const float *data, int64_t rows, int64_t cols) {
  struct sf_engine *engine = ctx;
  if (engine->record) sf_chunk_log_add(engine->record, rank, id, map, data, rows, cols);
  sf_collector_add(engine->collector, rank, id, map, data, rows, cols);
}

/* Every rank's trace reaches the judging rank in rank order over the control channel. */
static enum sf_status gather_traces(struct sf_engine *engine, int32_t world, const struct sf_chunk_log *log) {
  struct sf_mpi *mpi = engine->options.mpi;
  const int32_t first = engine->options.mpi_first;
  if (sf_mpi_rank(mpi) != first) return log->failed ? SF_ENOMEM : sf_mpi_send_bytes(mpi, first, log->data, log->size_bytes);
  for (int32_t i = 1; i < world; i++) {
    void *data = NULL;
    size_t size_bytes = 0;
    const enum sf_status status = sf_mpi_recv_bytes(mpi, first + i, &data, &size_bytes);
    if (status != SF_OK) return status;
    const bool sound = sf_chunk_log_visit(data, size_bytes, collect_chunk, engine);
    sf_free(data);
    if (!sound) return SF_EIO;
  }
  return SF_OK;
}

enum sf_status sf_engine_run_mpi(struct sf_engine *engine, const struct sf_target *target, enum sf_fault fault, struct sf_comm_report *report) {
  (void)target;
  struct sf_mpi *mpi = engine->options.mpi;
  const int32_t world = (int32_t)sf_case_ranks(engine->c);
  if (sf_mpi_rank(mpi) >= engine->options.mpi_first + world) return SF_OK;
  enum sf_status status = sf_engine_prepare_ranks(engine, 1, fault);
  if (status != SF_OK) return status;
  struct sf_chunk_log log;
  memset(&log, 0, sizeof log);
  if (sf_mpi_rank(mpi) != engine->options.mpi_first) engine->log = &log;
  status = sf_mpi_run(mpi, engine->options.mpi_first, world, engine->options.progress, rank_main, &engine->envs[0], report);
  engine->log = NULL;
  if (status == SF_OK && report->status == SF_OK) status = gather_traces(engine, world, &log);
  sf_chunk_log_destroy(&log);
  return status;
}
