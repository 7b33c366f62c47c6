#include "harness/run/trial/engine.h"

#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/base/hash.h"
#include "harness/base/system/clock.h"
#include "harness/base/system/system_memory.h"
#include "harness/run/trial/case_size.h"
#include "harness/run/trial/engine_internal.h"

#include <stdio.h>
#include <string.h>

enum { ARENA_BLOCK_BYTES = 1 << 20, TRIALS_PER_RETURN = 4096 };

double sf_engine_now(void) { return sf_clock_seconds(); }

static bool is_judge(const struct sf_engine *engine) {
  return !engine->options.mpi || sf_mpi_rank(engine->options.mpi) == engine->options.mpi_first;
}

/* --- the trace ------------------------------------------------------------------------------------------------- */

static bool is_rewritten(const struct sf_engine *engine, struct sf_trace_id id) {
  return engine->c->mode == SF_MODE_ISOLATED && sf_trace_is_given(engine->catalog, id);
}

/* The axes over which another rank carries the value of a partial tensor: among the ranks that share it, the one with the lowest tp and cp
 * index carries it. Query-key-value columns are shared by tp / kv_heads ranks, everything else that can be partial over tp by all of tp. */
static uint32_t carried_elsewhere(const struct sf_engine *engine, int32_t rank, int64_t step, const struct sf_trace_spec *spec) {
  const struct sf_case *c = engine->c;
  const bool is_reloaded = sf_case_is_reloaded(c, step);
  const struct sf_layout *layout = is_reloaded ? &c->reload.layout : &c->layout;
  const struct sf_coord coord = sf_mesh_coord(is_reloaded ? &engine->second_mesh : &engine->mesh, rank);
  const bool qkv = spec->row_cut == SF_CUT_QKV || spec->col_cut == SF_CUT_QKV;
  const int64_t holders = !qkv ? layout->tp : layout->tp > c->model.kv_heads ? layout->tp / c->model.kv_heads : 1;
  const uint32_t tp = coord.at[SF_AXIS_TP] % holders != 0 ? SF_AXES(SF_AXIS_TP) : 0;
  return tp | (coord.at[SF_AXIS_CP] != 0 ? SF_AXES(SF_AXIS_CP) : 0);
}

static void rewrite(const struct sf_engine *engine, int32_t rank, struct sf_trace_id id, const struct sf_shard_map *map, float *data) {
  struct sf_trace_spec spec;
  if (!sf_trace_spec(&spec, engine->catalog, id) || !sf_shard_map_valid(map, spec.shape)) return;
  const struct sf_fill fill = sf_fill_for_trace(engine->catalog, id);
  sf_fill_shard(data, &fill, spec.shape, map, carried_elsewhere(engine, rank, id.step, &spec));
}

/* For the second run of a case that was judged already: the run goes the same way, and one tensor is kept. */
static void listen(struct sf_engine *engine, int32_t rank, struct sf_trace_id id, const struct sf_shard_map *map, float *data, int64_t rows,
                   int64_t cols) {
  if (engine->tamper) engine->tamper(engine->tamper_ctx, rank, id, map, data, rows, cols);
  if (sf_trace_key(id) == engine->listen_key) sf_chunk_log_add(engine->listener, rank, id, map, data, rows, cols);
  if (is_rewritten(engine, id)) rewrite(engine, rank, id, map, data);
}

static void on_trace_point(void *ctx, int32_t rank, struct sf_trace_id id, const struct sf_shard_map *map, float *data, int64_t rows,
                           int64_t cols) {
  struct sf_engine *engine = ctx;
  if (engine->listener) {
    listen(engine, rank, id, map, data, rows, cols);
    return;
  }
  const double start = engine->options.measure ? sf_engine_now() : 0;
  if (engine->options.trace_key) {
    *engine->options.trace_key = sf_trace_key(id);
    *engine->options.trace_rank = rank;
  }
  if (engine->options.hash_trace) {
    const uint64_t head = sf_hash_u64(sf_hash_u64(engine->trace_hash, (uint64_t)rank), sf_trace_key(id));
    engine->trace_hash = sf_hash_bytes(head, data, (size_t)(rows * cols) * sizeof *data);
  }
  if (engine->record) sf_chunk_log_add(engine->record, rank, id, map, data, rows, cols);
  if (engine->log) { /* this rank does not judge */
    sf_chunk_log_add(engine->log, rank, id, map, data, rows, cols);
  } else {
    if (engine->tamper) engine->tamper(engine->tamper_ctx, rank, id, map, data, rows, cols);
    sf_collector_add(engine->collector, rank, id, map, data, rows, cols);
  }
  if (is_rewritten(engine, id)) rewrite(engine, rank, id, map, data);
  if (engine->options.measure) engine->collect_seconds += sf_engine_now() - start;
}

/* --- life ------------------------------------------------------------------------------------------------------ */

enum sf_status sf_engine_create(struct sf_engine **out, const struct sf_engine_options *options) {
  struct sf_engine *engine = sf_alloc(sizeof *engine);
  if (!engine) return SF_ENOMEM;
  engine->options = *options;
  engine->sink = (struct sf_trace_sink){engine, on_trace_point};
  enum sf_status status = sf_device_create(&engine->device, options->device, options->gemm, NULL);
  if (status == SF_OK && options->device_memory > 0 && options->device_memory < (double)engine->device->memory_bytes_max) {
    engine->device->memory_bytes_max = (size_t)options->device_memory;
  }
  if (status == SF_OK) engine->products = sf_run_gemm_table_on(engine->device);
  if (status == SF_OK) status = sf_group_lists_create(&engine->groups);
  if (status != SF_OK) {
    sf_engine_destroy(engine);
    return status;
  }
  *out = engine;
  return SF_OK;
}

static void forget_reference(struct sf_engine *engine) {
  sf_collector_destroy(engine->collector);
  sf_expectations_destroy(engine->expectations);
  sf_catalog_destroy(engine->catalog);
  engine->collector = NULL;
  engine->expectations = NULL;
  engine->catalog = NULL;
  engine->has_reference = false;
  memset(&engine->judgement, 0, sizeof engine->judgement);
}

static void forget_ranks(struct sf_engine *engine) {
  for (int32_t i = 0; i < engine->rank_capacity; i++) sf_arena_destroy(engine->arenas[i]);
  engine->rank_capacity = 0;
}

void sf_engine_destroy(struct sf_engine *engine) {
  if (!engine) return;
  forget_reference(engine);
  forget_ranks(engine);
  sf_free(engine->arenas);
  sf_free(engine->ranks);
  sf_free(engine->rank_args);
  sf_plugin_target_destroy(engine->loaded);
  if (engine->device) sf_device_destroy(engine->device);
  sf_sim_destroy(engine->sim);
  sf_group_lists_destroy(engine->groups);
  sf_free(engine);
}

static enum sf_status grow_ranks(struct sf_engine *engine, int32_t count) {
  struct sf_arena **arenas = sf_realloc(engine->arenas, (size_t)count * sizeof *arenas);
  if (!arenas) return SF_ENOMEM;
  engine->arenas = arenas;
  struct sf_engine_rank *ranks = sf_realloc(engine->ranks, (size_t)count * sizeof *ranks);
  if (!ranks) return SF_ENOMEM;
  engine->ranks = ranks;
  void **args = sf_realloc(engine->rank_args, (size_t)count * sizeof *args);
  if (!args) return SF_ENOMEM;
  engine->rank_args = args;
  while (engine->rank_capacity < count) {
    struct sf_arena *arena = sf_arena_create_in(engine->device->memory, count > 64 ? ARENA_BLOCK_BYTES / 4 : ARENA_BLOCK_BYTES, true);
    if (!arena) return SF_ENOMEM;
    engine->arenas[engine->rank_capacity++] = arena;
  }
  return SF_OK;
}

enum sf_status sf_engine_prepare_ranks(struct sf_engine *engine, int32_t count) {
  if (count > engine->rank_capacity) {
    const enum sf_status status = grow_ranks(engine, count);
    if (status != SF_OK) return status;
  }
  /* Plugins compute on the CPU. If the device has memory of its own, a plugin's operands lie where the device's operations can read them,
   * and have no walls. */
  struct sf_walled_pool *walled = engine->plugin && !engine->device->memory ? engine->plugin->walled : NULL;
  if (walled) sf_walled_give_all(walled);
  sf_walled_watch(walled);
  sf_group_lists_reset(engine->groups);
  for (int32_t i = 0; i < count; i++) {
    sf_arena_reset(engine->arenas[i]);
    engine->ranks[i].env = (struct sf_rank_env){
        .c = engine->c,
        .catalog = engine->catalog,
        .mesh = engine->mesh,
        .default_mesh = sf_mesh_default_order(&engine->c->layout),
        .device = engine->device,
        .arena = engine->arenas[i],
        .groups = engine->groups,
        .sink = &engine->sink,
        .faults = engine->faults,
        .layers = engine->plugin && !engine->plugin->is_model ? &engine->plugin->layers : NULL,
        .model = engine->plugin && engine->plugin->is_model ? &engine->plugin->model : NULL,
        .walled = walled,
    };
    engine->ranks[i].mutator =
        (struct sf_mutator){.mutation = engine->is_mutant ? &engine->mutation : NULL, .mesh = &engine->mesh, .arena = engine->arenas[i]};
    engine->rank_args[i] = &engine->ranks[i];
  }
  return SF_OK;
}

/* --- one trial ------------------------------------------------------------------------------------------------- */

/* Kept, the memory of each rank grows to its own largest case; given back, the ranks and the reference of the next function share it.
 * Memory of a device costs too much to ask for that often. */
static enum sf_status ensure_catalog(struct sf_engine *engine, const struct sf_case *c) {
  const uint64_t hash = sf_case_logical_hash(c);
  if (engine->catalog && engine->logical_hash == hash) return SF_OK;
  forget_reference(engine);
  if (!engine->device->memory) forget_ranks(engine);
  engine->logical_hash = hash;
  return sf_catalog_create(&engine->catalog, c);
}

/* Now and then all that the largest of the last trials needed goes back to the system: seldom enough that taking it again costs nothing. */
static void return_memory(struct sf_engine *engine) {
  if (engine->costs.trials % TRIALS_PER_RETURN != 0) return;
  forget_ranks(engine);
  sf_sim_destroy(engine->sim);
  engine->sim = NULL;
  sf_memory_return();
}

/* Returns false, with the reason in the outcome, for a case that is too large. Before a large case it frees the ranks' memory, which
 * otherwise stays as large as their largest case. */
static bool make_room(struct sf_engine *engine, const struct sf_case *c, struct sf_outcome *outcome) {
  const double gib = 1 << 30, limit = engine->options.max_memory;
  if (limit == 0) return true;
  const struct sf_case_size size = sf_case_size(engine->catalog, c);
  if (sf_case_size_total(size) > limit / 4) forget_ranks(engine);
  if (sf_case_size_total(size) <= limit) return true;
  outcome->verdict = SF_VERDICT_SKIP;
  snprintf(
      outcome->text, sizeof outcome->text,
      "it needs about %.3g GiB of memory (%.3g for its ranks, %.3g for the reference, %.3g for the tensors of both), and a case may use "
      "%.3g: try "
      "fewer --jobs, --max-memory, or smaller ranges (--set) of layers, seq, steps and microbatches",
      sf_case_size_total(size) / gib, size.ranks / gib, size.reference / gib, size.trace / gib, limit / gib);
  return false;
}

static enum sf_status ensure_reference(struct sf_engine *engine, const struct sf_case *c) {
  if (engine->has_reference && (engine->collector || !is_judge(engine)))
    return engine->collector ? sf_collector_reset(engine->collector, c) : SF_OK;
  enum sf_status status = SF_OK;
  if (is_judge(engine)) {
    status = sf_expectations_create(&engine->expectations, engine->catalog, &engine->products);
    if (status == SF_OK) status = sf_collector_create(&engine->collector, c, engine->expectations);
    engine->costs.references++;
  }
  if (status != SF_OK) {
    forget_reference(engine);
    return status;
  }
  engine->has_reference = true;
  return SF_OK;
}

static enum sf_finding_class class_of_report(enum sf_status status) {
  if (status == SF_EDEADLOCK) return SF_CLASS_DEADLOCK;
  if (status == SF_EMISMATCH) return SF_CLASS_MISMATCH;
  return SF_CLASS_CRASH;
}

/* The summary of a comparison in words, when there is no finding to quote. */
static void describe_inconclusive(struct sf_outcome *outcome) {
  snprintf(outcome->text, sizeof outcome->text, "only %d of %d tensors could be judged, which is not a failure", outcome->checked,
           outcome->checked + outcome->unchecked);
}

static void tally_tensors(struct sf_tally *tally, const struct sf_catalog *catalog, const struct sf_judgement *judgement) {
  for (int32_t i = 0; i < judgement->result_count; i++) {
    const struct sf_tensor_result *r = &judgement->results[i];
    if (r->judged && !r->flagged && r->level >= SF_LEVEL_FULL) sf_tally_near(tally, sf_tensor_share(r));
    if (!r->judged && r->expected) sf_tally_unjudged(tally, sf_modules[catalog->modules[r->expected->spec.module].cls].name);
  }
}

static enum sf_status judge(struct sf_engine *engine, struct sf_outcome *outcome) {
  const int64_t runs = sf_expectations_runs(engine->expectations);
  sf_collector_be_quick(engine->collector, engine->is_quick);
  const enum sf_status status = sf_judge(engine->collector, true, &engine->judgement);
  if (status != SF_OK) return status;
  const struct sf_judgement *j = &engine->judgement;
  const int64_t more = sf_expectations_runs(engine->expectations) - runs;
  engine->costs.raised += more > 0;
  engine->costs.raised_runs += more;
  outcome->verdict = j->verdict;
  outcome->checked = j->checked;
  outcome->unchecked = j->unchecked;
  tally_tensors(&outcome->tally, engine->catalog, j);
  if (j->verdict == SF_VERDICT_FINDING) sf_outcome_from_judgement(outcome, engine->c, engine->catalog, j);
  if (j->verdict == SF_VERDICT_INCONCLUSIVE) describe_inconclusive(outcome);
  return SF_OK;
}

static void note_own(const struct sf_engine *engine, bool is_own) {
  if (engine->options.is_own) *engine->options.is_own = is_own;
}

static enum sf_status run_candidate(struct sf_engine *engine, struct sf_outcome *outcome, struct sf_error *error) {
  struct sf_comm_report report;
  memset(&report, 0, sizeof report);
  double start = sf_engine_now();
  note_own(engine, false);
  enum sf_status status = engine->options.mpi ? sf_engine_run_mpi(engine, outcome, &report) : sf_engine_run_sim(engine, outcome, &report);
  note_own(engine, true);
  engine->costs.candidate += sf_engine_now() - start;
  engine->costs.comm_reduce += report.seconds_reduce;
  engine->costs.comm_schedule += report.seconds_schedule;
  if (status != SF_OK) return sf_error_set(error, status, "%s while the case ran", sf_status_text(status));
  if (report.status == SF_ENOMEM)
    return sf_error_set(error, SF_ENOMEM, "%s while the case ran: %.400s", sf_status_text(SF_ENOMEM), report.text);
  if (report.status != SF_OK) {
    sf_outcome_from_failure(outcome, engine->c, class_of_report(report.status), report.manner, report.rank, report.label, report.text);
    return SF_OK;
  }
  if (!is_judge(engine)) return SF_OK;
  start = sf_engine_now();
  status = judge(engine, outcome);
  engine->costs.judge += sf_engine_now() - start;
  return status != SF_OK ? sf_error_set(error, status, "%s while the case ran", sf_status_text(status)) : SF_OK;
}

/* Sets what the trial is to have planted: nothing, faults or a mutant. */
static enum sf_status plant(struct sf_engine *engine, const char *id, struct sf_error *error) {
  engine->is_mutant = sf_mutation_is_named(id);
  engine->faults = 0;
  return engine->is_mutant ? sf_mutant_find(&engine->mutation, id, error) : sf_plants_read(&engine->faults, id, error);
}

/* Finds what a plugin replaces. */
static enum sf_status load_plugin(struct sf_engine *engine, const struct sf_case *c, struct sf_error *error) {
  const char *path = sf_plugin_target_path(c->target);
  engine->plugin = NULL;
  if (!path) return SF_OK;
  if (!engine->loaded || strcmp(engine->loaded_target, c->target) != 0) {
    sf_plugin_target_destroy(engine->loaded);
    engine->loaded = NULL;
    const enum sf_status status = sf_plugin_target_create(&engine->loaded, path, error);
    if (status != SF_OK) return status;
    snprintf(engine->loaded_target, sizeof engine->loaded_target, "%s", c->target);
  }
  engine->plugin = engine->loaded;
  if (engine->plugin->is_model && *c->plant)
    return sf_error_set(error, SF_ENOTSUP, "plant.id: planted bugs exist only for the built-in layers (--target builtin)");
  return sf_plugin_target_support(engine->plugin, c, error);
}

static enum sf_status try_run(struct sf_engine *engine, const struct sf_case *c, struct sf_outcome *outcome, struct sf_error *error) {
  enum sf_status status = sf_case_validate(c, error);
  if (status != SF_OK) return status;
  if (!sf_target_find(c->target)) return sf_error_set(error, SF_EINPUT, "target.name: there is no target '%s'", c->target);
  status = plant(engine, c->plant, error);
  if (status != SF_OK) return status;
  status = load_plugin(engine, c, error);
  if (status != SF_OK && status != SF_ENOTSUP) return status;
  if (status == SF_ENOTSUP) {
    outcome->verdict = SF_VERDICT_SKIP;
    snprintf(outcome->text, sizeof outcome->text, "%s", error->text);
    return SF_OK;
  }
  const double start = sf_engine_now();
  status = ensure_catalog(engine, c);
  return_memory(engine);
  if (status == SF_OK && !make_room(engine, c, outcome)) return SF_OK;
  if (status == SF_OK) status = ensure_reference(engine, c);
  engine->costs.reference += sf_engine_now() - start;
  if (status != SF_OK) return sf_error_set(error, status, "%s while the reference ran", sf_status_text(status));
  if (engine->collector) sf_collector_rounds_alike(engine->collector, !engine->plugin && engine->options.device == SF_DEVICE_CPU);
  return run_candidate(engine, outcome, error);
}

void sf_engine_run(struct sf_engine *engine, const struct sf_case *c, struct sf_chunk_log *record, struct sf_outcome *outcome) {
  struct sf_error error = {SF_OK, ""};
  const double start = sf_engine_now();
  memset(outcome, 0, sizeof *outcome);
  outcome->kind = outcome->module_class = outcome->rank = -1;
  outcome->row = -1;
  outcome->ranks = (int32_t)sf_case_ranks(c);
  memset(&engine->judgement, 0, sizeof engine->judgement);
  engine->c = c;
  engine->mesh = sf_mesh_from_layout(&c->layout);
  engine->second_mesh = sf_mesh_from_layout(&c->reload.layout);
  engine->record = record;
  engine->trace_hash = 0;
  engine->costs.trials++;
  note_own(engine, true);
  outcome->status = try_run(engine, c, outcome, &error);
  if (outcome->status != SF_OK) snprintf(outcome->text, sizeof outcome->text, "%s", error.text);
  outcome->trace_hash = engine->trace_hash;
  outcome->seconds = sf_engine_now() - start;
  engine->costs.collect += engine->collect_seconds;
  engine->collect_seconds = 0;
  engine->record = NULL;
}

void sf_engine_flat_bound(const struct sf_engine *engine, struct sf_outcome *outcome) {
  if (engine->judgement.result_count > 0) sf_flat_bound_judge(&outcome->flat, engine->collector);
}

void sf_engine_be_quick(struct sf_engine *engine, bool quick) { engine->is_quick = quick; }

void sf_engine_set_ranks(struct sf_engine *engine, int32_t first) { engine->options.mpi_first = first; }

const struct sf_judgement *sf_engine_judgement(const struct sf_engine *engine) { return &engine->judgement; }
const struct sf_catalog *sf_engine_catalog(const struct sf_engine *engine) { return engine->catalog; }
const struct sf_engine_costs *sf_engine_costs(const struct sf_engine *engine) { return &engine->costs; }

void sf_engine_set_tamper(struct sf_engine *engine, sf_engine_tamper tamper, void *ctx) {
  engine->tamper = tamper;
  engine->tamper_ctx = ctx;
}
