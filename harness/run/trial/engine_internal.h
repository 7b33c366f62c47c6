/* Parts of the engine shared by its files. */
#ifndef SF_RUN_ENGINE_INTERNAL_H
#define SF_RUN_ENGINE_INTERNAL_H

#include "harness/comm/group_lists.h"
#include "harness/comm/sim.h"
#include "harness/run/trial/chunk_log.h"
#include "harness/run/trial/engine.h"
#include "harness/run/trial/gemm_table.h"
#include "harness/run/trial/mutants.h"
#include "targets/plugin/plugin_target.h"

/* What a rank's program is started with. */
struct sf_engine_rank {
  struct sf_rank_env env;
  struct sf_mutator mutator; /* used when its mutation is not NULL */
};

struct sf_engine {
  struct sf_engine_options options;
  struct sf_engine_costs costs;
  struct sf_sim *sim; /* NULL: the next trial makes it */
  struct sf_device *device;      /* one for all fibers: no operation yields */
  struct sf_gemm_table products; /* of the reference */

  /* The current logical function. */
  bool has_reference;
  uint64_t logical_hash;
  struct sf_catalog *catalog;
  struct sf_expectations *expectations; /* NULL on ranks that do not judge */
  struct sf_collector *collector;
  struct sf_judgement judgement;

  /* The library that was loaded last; NULL: none. */
  struct sf_plugin_target *loaded;
  char loaded_target[SF_TARGET_TEXT];

  /* The current trial. */
  const struct sf_case *c;
  bool is_quick; /* sf_engine_be_quick */
  struct sf_mesh mesh, second_mesh; /* second: after reloading */
  uint64_t faults; /* planted: bits SF_FAULT_BIT */
  struct sf_mutation mutation;
  bool is_mutant;                  /* mutation holds */
  struct sf_plugin_target *plugin; /* NULL: everything is built in */
  struct sf_chunk_log *record;     /* NULL = nobody wants the trace itself */
  struct sf_chunk_log *listener;   /* not NULL: nothing is judged; the tensor of this key is kept here */
  uint64_t listen_key;
  struct sf_chunk_log *log; /* where a rank that does not judge keeps its trace */
  uint64_t trace_hash;
  double collect_seconds;
  sf_engine_tamper tamper;
  void *tamper_ctx;

  struct sf_group_lists *groups; /* of the trial's ranks */
  int32_t rank_capacity;
  struct sf_arena **arenas;
  struct sf_engine_rank *ranks;
  void **rank_args;
  struct sf_trace_sink sink;
};

/* Runs the candidate on this process's part of the world; fills the report, and in the outcome what a mutant did. */
enum sf_status sf_engine_run_sim(struct sf_engine *engine, struct sf_outcome *outcome, struct sf_comm_report *report);
enum sf_status sf_engine_run_mpi(struct sf_engine *engine, struct sf_outcome *outcome, struct sf_comm_report *report);
/* Makes rank environments for `count` ranks, the first being world rank `first`. */
enum sf_status sf_engine_prepare_ranks(struct sf_engine *engine, int32_t count);

#endif
