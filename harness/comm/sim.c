#include "harness/comm/sim.h"

#include "harness/base/system/clock.h"
#include "harness/comm/sim_internal.h"

#include <string.h>

/* --- the ready heap --------------------------------------------------------------------------------------------- */

static void heap_push(struct sf_sim *sim, struct sim_ready entry) {
  struct sim_ready *heap = sim->ready;
  int32_t at = sim->ready_count++;
  while (at > 0) {
    const int32_t parent = (at - 1) / 2;
    if (heap[parent].priority <= entry.priority) break;
    heap[at] = heap[parent];
    at = parent;
  }
  heap[at] = entry;
}

static int32_t heap_pop(struct sf_sim *sim) {
  struct sim_ready *heap = sim->ready;
  const int32_t rank = heap[0].rank, count = --sim->ready_count;
  const struct sim_ready entry = heap[count];
  int32_t at = 0;
  for (int32_t child; (child = 2 * at + 1) < count; at = child) {
    if (child + 1 < count && heap[child + 1].priority < heap[child].priority) child++;
    if (entry.priority <= heap[child].priority) break;
    heap[at] = heap[child];
  }
  heap[at] = entry;
  return rank;
}

/* Schedule 0: first in, first out. Otherwise a hash of the rank and of its progress; the rank is in the low bits, so that no two are
 * equal. */
void sim_wake(struct sf_sim *sim, struct sim_rank *rank) {
  uint64_t priority = sim->ready_serial++;
  if (sim->options.schedule != 0) {
    const uint64_t hash = sf_hash_u64(sf_hash_u64(sim->options.schedule, (uint64_t)rank->comm.rank), rank->calls);
    priority = (hash & ~UINT64_C(0xffffff)) | (uint64_t)rank->comm.rank;
  }
  rank->state = SIM_READY;
  rank->blocked_on = NULL;
  heap_push(sim, (struct sim_ready){.priority = priority, .rank = rank->comm.rank});
}

/* --- switching -------------------------------------------------------------------------------------------------- */

/* The next rank to run; NULL when no rank can go on. */
static struct sim_rank *pick_next(struct sf_sim *sim) {
  while (sim->ready_count == 0)
    if (!sim_stall_resolve(sim)) return NULL;
  return sim->ranks[heap_pop(sim)];
}

static void run_instead(struct sf_sim *sim, struct sim_rank *self, struct sim_rank *next) {
  next->state = SIM_RUNNING;
  if (next == self) return;
  sim->report.switches++;
  sf_fiber_switch(&self->fiber, &next->fiber, self->state == SIM_FINISHED);
}

void sim_end(struct sf_sim *sim) {
  struct sf_fiber abandoned = {0};
  sf_fiber_switch(&abandoned, &sim->thread, true);
  __builtin_unreachable();
}

void sim_out_of_memory(struct sf_sim *sim) {
  sim->status = sim->report.status = SF_ENOMEM;
  strcpy(sim->report.text, "the simulated world is out of memory");
  sim_end(sim);
}

/* Suspends self until its blocked_on part is complete. */
static void block_until_complete(struct sf_sim *sim, struct sim_rank *self, struct sim_part *part) {
  if (part->complete) return;
  self->state = SIM_BLOCKED;
  self->blocked_on = part;
  struct sim_rank *next = pick_next(sim);
  if (next == NULL) sim_report_deadlock(sim);
  run_instead(sim, self, next);
  sf_comm_show_progress(&self->comm, part->call.label);
}

/* With a schedule other than 0, other ranks overtake this one before one in four of its calls. */
static void maybe_yield(struct sf_sim *sim, struct sim_rank *self, const char *label) {
  if (sim->options.schedule == 0 || sim->ready_count == 0) return;
  const uint64_t hash = sf_hash_u64(sf_hash_u64(sim->options.schedule ^ UINT64_C(0x79), (uint64_t)self->comm.rank), self->calls);
  if ((hash & 3) != 0) return;
  sim_wake(sim, self);
  run_instead(sim, self, pick_next(sim));
  sf_comm_show_progress(&self->comm, label);
}

/* --- the backend's operations ----------------------------------------------------------------------------------- */

/* From enter to leave, on any fiber, the time counts as the scheduler's. */
static void clock_enter(struct sf_sim *sim) {
  if (sim->options.measure) sim->clock_mark = sf_clock_seconds();
}

static void clock_leave(struct sf_sim *sim) {
  if (sim->options.measure) sim->report.seconds_schedule += sf_clock_seconds() - sim->clock_mark;
}

static sf_request sim_start(struct sf_comm *comm, const struct sf_comm_call *call, bool blocking) {
  struct sim_rank *self = comm->impl;
  struct sf_sim *sim = self->sim;
  clock_enter(sim);
  sim->report.calls++;
  self->calls++;
  sim_rank_count_call(self);
  maybe_yield(sim, self, call->label);
  struct sim_part *part = call->group != NULL ? sim_match_collective(self, call) : sim_match_message(self, call);
  sf_request request = 0;
  if (!blocking) {
    sim_request_open(sim, part);
    request = part->request;
  }
  sim_part_post(sim, part, blocking);
  if (blocking) {
    block_until_complete(sim, self, part);
    sim_part_finish(sim, part);
  }
  clock_leave(sim);
  return request;
}

static void sim_wait(struct sf_comm *comm, sf_request request) {
  struct sim_rank *self = comm->impl;
  struct sf_sim *sim = self->sim;
  clock_enter(sim);
  struct sim_part *part = sim_request_find(sim, request);
  if (part == NULL || part->rank != self) sim_report_request(sim, self, request);
  sf_comm_show_progress(comm, part->call.label);
  sim_part_wait(sim, part);
  block_until_complete(sim, self, part);
  if (!part->written && sim_call_writes(&part->call)) sim_part_write_late(sim, part);
  sim_request_close(sim, part);
  sim_part_finish(sim, part);
  clock_leave(sim);
}

__attribute__((noreturn)) static void sim_fail(struct sf_comm *comm, enum sf_status status, enum sf_manner manner, const char *text) {
  struct sim_rank *self = comm->impl;
  struct sf_comm_report *report = &self->sim->report;
  report->status = status == SF_OK ? SF_ERANK : status;
  report->manner = manner;
  report->rank = comm->rank;
  const char *label = comm->last_label != NULL ? comm->last_label : "";
  memccpy(report->label, label, '\0', sizeof report->label - 1);
  memccpy(report->text, text, '\0', sizeof report->text - 1);
  sim_end(self->sim);
}

static const struct sf_comm_ops sim_ops = {.name = "sim", .start = sim_start, .wait = sim_wait, .fail = sim_fail};

/* --- ranks ------------------------------------------------------------------------------------------------------ */

/* A rank begins while the one that ran before it is inside a call. */
static void show_start(struct sf_comm *comm) {
  if (comm->progress == NULL) return;
  sf_comm_show_progress(comm, "");
  comm->last_label = NULL;
  comm->progress->in_call = 0;
}

static void rank_entry(void *arg) {
  struct sim_rank *self = arg;
  struct sf_sim *sim = self->sim;
  sf_fiber_entered(&self->fiber, &sim->thread);
  clock_leave(sim);
  show_start(&self->comm);
  sim->rank_main(&self->comm, self->arg);
  clock_enter(sim);
  if (self->open != NULL) sim_report_leak(sim, self);
  self->state = SIM_FINISHED;
  if (++sim->finished == sim->options.world) sim_end(sim);
  struct sim_rank *next = pick_next(sim);
  if (next == NULL) sim_report_deadlock(sim);
  run_instead(sim, self, next);
  __builtin_unreachable();
}

static void rank_prepare(struct sf_sim *sim, int32_t r, void *arg) {
  struct sim_rank *self = sim->ranks[r];
  const struct sf_fiber fiber = self->fiber;
  memset(self, 0, sizeof *self);
  self->fiber = fiber;
  self->sim = sim;
  self->arg = arg;
  self->comm = (struct sf_comm){.ops = &sim_ops,
                                .impl = self,
                                .rank = r,
                                .world = sim->options.world, .progress = sim->options.progress};
  sf_fiber_prepare(&self->fiber, rank_entry, self, (size_t)r);
  sim_wake(sim, self);
}

/* Makes room for `world` ranks with stacks. What was made before a failure stays for the next run. */
static enum sf_status ranks_reserve(struct sf_sim *sim, int32_t world, size_t stack_bytes) {
  if (world > sim->rank_capacity) {
    struct sim_rank **ranks = sf_realloc(sim->ranks, (size_t)world * sizeof *ranks);
    if (ranks == NULL) return SF_ENOMEM;
    memset(ranks + sim->rank_capacity, 0, (size_t)(world - sim->rank_capacity) * sizeof *ranks);
    sim->ranks = ranks;
    sim->rank_capacity = world;
    sf_free(sim->ready);
    sim->ready = NULL;
  }
  if (sim->ready == NULL && (sim->ready = sf_alloc((size_t)sim->rank_capacity * sizeof *sim->ready)) == NULL) return SF_ENOMEM;
  for (int32_t r = 0; r < world; r++) {
    if (sim->ranks[r] == NULL && (sim->ranks[r] = sf_alloc(sizeof **sim->ranks)) == NULL) return SF_ENOMEM;
    if (sf_fiber_map(&sim->ranks[r]->fiber, stack_bytes) != SF_OK) return SF_ENOMEM;
  }
  return SF_OK;
}

enum sf_status sf_sim_create(struct sf_sim **out) {
  struct sf_sim *sim = sf_alloc(sizeof *sim);
  if (sim == NULL) return SF_ENOMEM;
  sim->arena = sf_arena_create((size_t)1 << 18, false);
  sim->scratch = sf_alloc((size_t)SIM_TREE_LEVELS * SIM_BLOCK * sizeof(double));
  if (sim->arena == NULL || sim->scratch == NULL || sim_tables_create(sim) != SF_OK) {
    sf_sim_destroy(sim);
    return SF_ENOMEM;
  }
  *out = sim;
  return SF_OK;
}

void sf_sim_destroy(struct sf_sim *sim) {
  if (sim == NULL) return;
  for (int32_t r = 0; r < sim->rank_capacity; r++) {
    if (sim->ranks[r] == NULL) continue;
    sf_fiber_unmap(&sim->ranks[r]->fiber);
    sf_free(sim->ranks[r]);
  }
  sf_free(sim->ranks);
  sf_free(sim->ready);
  sim_tables_destroy(sim);
  sf_free(sim->scratch);
  sf_arena_destroy(sim->arena);
  sf_free(sim);
}

static void reset_for_run(struct sf_sim *sim, const struct sf_sim_options *options, sf_rank_main rank_main, void *const *args) {
  sim->options = *options;
  sim->rank_main = rank_main;
  sim->report = (struct sf_comm_report){.status = SF_OK, .rank = -1};
  sim->status = SF_OK;
  sim->thread = (struct sf_fiber){0};
  sim->finished = sim->ready_count = 0;
  sim->ready_serial = 0;
  sim->stall_first = sim->stall_last = NULL;
  sim_tables_reset(sim);
  for (int32_t r = 0; r < options->world; r++) rank_prepare(sim, r, args != NULL ? args[r] : NULL);
}

enum sf_status sf_sim_run(struct sf_sim *sim, const struct sf_sim_options *options, sf_rank_main rank_main, void *const *args,
                          struct sf_comm_report *report) {
  SF_ASSERT_LE(1, options->world);
  SF_ASSERT_LT(options->world, 1 << 24);
  const size_t stack_bytes = options->stack_bytes != 0 ? options->stack_bytes : (size_t)256 << 10;
  if (ranks_reserve(sim, options->world, stack_bytes) != SF_OK) return SF_ENOMEM;
  reset_for_run(sim, options, rank_main, args);
  const double start = options->measure ? sf_clock_seconds() : 0;
  struct sim_rank *first = sim->ranks[heap_pop(sim)];
  first->state = SIM_RUNNING;
  clock_enter(sim);
  sf_fiber_switch(&sim->thread, &first->fiber, false);
  if (options->measure) sim->report.seconds_total = sf_clock_seconds() - start;
  *report = sim->report;
  return sim->status;
}
