/* The candidate's world: fibers of this process, or ranks of an MPI job whose traces come to the judging rank. */
#include "harness/base/alloc.h"
#include "harness/base/hash.h"
#include "harness/run/trial/engine_internal.h"

#include <string.h>

static void rank_main(struct sf_comm *comm, void *arg) {
  struct sf_engine_rank *rank = arg;
  struct sf_rank_env *env = &rank->env;
  if (rank->mutator.mutation) sf_mutator_install(&rank->mutator, comm);
  env->comm = comm;
  sf_target_find(env->c->target)->run(env);
}

static void add_mutator(struct sf_outcome *outcome, int64_t fired, uint64_t output_hash) {
  outcome->mutant_fired += fired;
  outcome->mutant_outputs = sf_hash_u64(outcome->mutant_outputs, output_hash);
}

/* Drivers of other devices need more stack than layers do. */
enum { DEVICE_STACK_BYTES = 2 << 20 };

enum sf_status sf_engine_run_sim(struct sf_engine *engine, struct sf_outcome *outcome, struct sf_comm_report *report) {
  const int32_t world = (int32_t)sf_case_ranks(engine->c);
  enum sf_status status = sf_engine_prepare_ranks(engine, world);
  if (status == SF_OK && !engine->sim) status = sf_sim_create(&engine->sim);
  if (status != SF_OK) return status;
  const struct sf_sim_options options = {
      .world = world,
      .stack_bytes = engine->device->memory ? DEVICE_STACK_BYTES : 0,
      .schedule = (uint64_t)engine->c->schedule,
      .measure = engine->options.measure,
      .progress = engine->options.progress,
  };
  status = sf_sim_run(engine->sim, &options, rank_main, engine->rank_args, report);
  for (int32_t i = 0; i < world && engine->is_mutant; i++) {
    const struct sf_mutator *mutator = &engine->ranks[i].mutator;
    add_mutator(outcome, mutator->fired, mutator->output_hash);
  }
  return status;
}

static void collect_chunk(void *ctx, int32_t rank, struct sf_trace_id id, const struct sf_shard_map *map, const float *data, int64_t rows,
                          int64_t cols) {
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

/* Sends a report of what the ranks' mutators did to the judging rank in the same way. */
static enum sf_status gather_mutators(struct sf_engine *engine, int32_t world, struct sf_outcome *outcome) {
  struct sf_mpi *mpi = engine->options.mpi;
  const int32_t first = engine->options.mpi_first;
  const struct sf_mutator *mutator = &engine->ranks[0].mutator;
  const uint64_t own[2] = {(uint64_t)mutator->fired, mutator->output_hash};
  if (sf_mpi_rank(mpi) != first) return sf_mpi_send_bytes(mpi, first, own, sizeof own);
  add_mutator(outcome, mutator->fired, mutator->output_hash);
  for (int32_t i = 1; i < world; i++) {
    void *data = NULL;
    size_t size_bytes = 0;
    const enum sf_status status = sf_mpi_recv_bytes(mpi, first + i, &data, &size_bytes);
    if (status != SF_OK) return status;
    uint64_t others[2] = {0};
    const bool sound = size_bytes == sizeof others;
    if (sound) memcpy(others, data, sizeof others);
    sf_free(data);
    if (!sound) return SF_EIO;
    add_mutator(outcome, (int64_t)others[0], others[1]);
  }
  return SF_OK;
}

enum sf_status sf_engine_run_mpi(struct sf_engine *engine, struct sf_outcome *outcome, struct sf_comm_report *report) {
  struct sf_mpi *mpi = engine->options.mpi;
  const int32_t world = (int32_t)sf_case_ranks(engine->c);
  if (sf_mpi_rank(mpi) >= engine->options.mpi_first + world) return SF_OK;
  enum sf_status status = sf_engine_prepare_ranks(engine, 1);
  if (status != SF_OK) return status;
  struct sf_chunk_log log;
  memset(&log, 0, sizeof log);
  if (sf_mpi_rank(mpi) != engine->options.mpi_first) engine->log = &log;
  status = sf_mpi_run(mpi, engine->options.mpi_first, world, engine->options.progress, rank_main, &engine->ranks[0], report);
  engine->log = NULL;
  if (status == SF_OK && report->status == SF_OK) status = gather_traces(engine, world, &log);
  if (status == SF_OK && report->status == SF_OK && engine->is_mutant) status = gather_mutators(engine, world, outcome);
  sf_chunk_log_destroy(&log);
  return status;
}
