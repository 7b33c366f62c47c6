#include "harness/run/power/power_mutants.h"

#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/run/power/searching.h"
#include "harness/run/trial/mutants.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *sf_mutant_fate_name(enum sf_mutant_fate fate) {
  static const char *const names[SF_MUTANT_FATES] = {
#define X(name, text) [SF_MUTANT_##name] = text,
      SF_MUTANT_FATE_MAP(X)
#undef X
  };
  SF_ASSERT_LT((unsigned)fate, SF_MUTANT_FATES);
  return names[fate];
}

bool sf_finding_class_is_loud(enum sf_finding_class cls) {
  return cls == SF_CLASS_NONFINITE || cls == SF_CLASS_DEADLOCK || cls == SF_CLASS_MISMATCH || cls == SF_CLASS_CRASH || cls == SF_CLASS_HANG;
}

enum run { MUTATED, OBSERVED, POISONED, RUNS };
struct attempt {
  bool fired, found;
  uint64_t outputs[RUNS], trace[RUNS];
};

/* SEARCHING ends with the first finding, or the last case; then the fired cases are run again, one by one. */
enum state { SEARCHING, PROVING, DONE };
struct progress {
  enum state state;
  int64_t handed_out, answered; /* SEARCHING: cases; PROVING: jobs, of which there are as many as `jobs` */
  int64_t jobs, next_index;
  struct attempt *attempts; /* one per case handed out */
};

struct power {
  struct sf_searching searching; /* stands first */
  const struct sf_mutant_power_options *options;
  struct sf_mutant_power_result *result;
  struct progress *progress;
  bool poisons;
};

/* Tags: search number, run, case index. */
enum { RUN_SHIFT = 30, SEARCH_SHIFT = 32 };
static int64_t tag_of(int64_t search, enum run run, int64_t index) { return search << SEARCH_SHIFT | (int64_t)run << RUN_SHIFT | index; }

static void fill_job(struct power *p, struct sf_job *job, int32_t number, enum run run, int64_t index) {
  p->searching.status = sf_campaign_job(job, &p->options->campaign, tag_of(number, run, index), index, &p->searching.error);
  if (p->searching.status != SF_OK) return;
  const char *id = p->result->searches[number].id;
  struct sf_mutation mutation;
  p->searching.status = sf_mutant_find(&mutation, id, &p->searching.error);
  if (p->searching.status != SF_OK) return;
  char occurrence[24] = "";
  if (mutation.occurrence >= 0) snprintf(occurrence, sizeof occurrence, ":%lld", (long long)mutation.occurrence);
  const enum sf_mutation_kind kind = run == MUTATED ? mutation.kind : run == OBSERVED ? SF_MUTATION_OBSERVE : SF_MUTATION_POISON;
  memset(job->c.plant, 0, sizeof job->c.plant);
  const int length = snprintf(job->c.plant, sizeof job->c.plant, "mutant:%s:%s%s", mutation.label, sf_mutation_kind_name(kind), occurrence);
  SF_ASSERT_LT(length, (int)sizeof job->c.plant);
}

static int32_t next_cases(struct power *p, int32_t number, struct sf_job *jobs, int32_t max) {
  struct progress *progress = &p->progress[number];
  const int64_t layouts = p->options->campaign.layouts;
  int64_t stop = (progress->handed_out / layouts + 1) * layouts;
  if (stop > p->options->cases) stop = p->options->cases;
  int32_t count = 0;
  while (count < max && progress->handed_out < stop) {
    struct attempt *attempts = sf_grown(progress->attempts, progress->handed_out, sizeof *attempts);
    if (!attempts) p->searching.status = SF_ENOMEM;
    if (!attempts) return 0;
    progress->attempts = attempts;
    fill_job(p, &jobs[count++], number, MUTATED, progress->handed_out++);
    if (p->searching.status != SF_OK) return 0;
  }
  return count;
}

/* The runs that show whether a fired case is equivalent; one process gets both runs of a case. */
static int32_t next_proofs(struct power *p, int32_t number, struct sf_job *jobs, int32_t max) {
  struct progress *progress = &p->progress[number];
  int32_t count = 0;
  for (; progress->next_index < progress->handed_out && count + 2 <= max; progress->next_index++) {
    if (!progress->attempts[progress->next_index].fired) continue;
    fill_job(p, &jobs[count++], number, OBSERVED, progress->next_index);
    if (p->poisons && p->searching.status == SF_OK) fill_job(p, &jobs[count++], number, POISONED, progress->next_index);
    if (p->searching.status != SF_OK) return 0;
  }
  return count;
}

static int32_t next_jobs(void *ctx, struct sf_job *jobs, int32_t max) {
  struct power *p = ctx;
  for (int32_t i = 0; i < p->result->count && p->searching.status == SF_OK; i++) {
    const struct progress *progress = &p->progress[i];
    int32_t count = 0;
    if (progress->state == SEARCHING && p->result->searches[i].found_at < 0) count = next_cases(p, i, jobs, max);
    if (progress->state == PROVING) count = next_proofs(p, i, jobs, max);
    if (count > 0) return count;
  }
  return 0;
}

/* Counts up to the first finding, so that the figures do not depend on the number of processes. */
static int64_t count_fired(const struct progress *progress, int64_t found_at) {
  int64_t fired = 0;
  for (int64_t i = 0; i < progress->handed_out && (found_at < 0 || i <= found_at); i++) fired += progress->attempts[i].fired;
  return fired;
}

static void end_search(struct power *p, int32_t number) {
  struct sf_mutant_search *search = &p->result->searches[number];
  struct progress *progress = &p->progress[number];
  search->fired = count_fired(progress, search->found_at);
  if (search->found_at >= 0) {
    search->fate = sf_finding_class_is_loud(search->outcome.cls) ? SF_MUTANT_LOUD : SF_MUTANT_SILENT;
  } else if (search->fired == 0) {
    search->fate = SF_MUTANT_NOT_REACHED;
  } else {
    progress->state = PROVING;
    progress->jobs = search->fired * (p->poisons ? 2 : 1);
    progress->answered = 0;
    return;
  }
  progress->state = DONE;
  p->searching.done++;
}

static void end_proof(struct power *p, int32_t number) {
  struct sf_mutant_search *search = &p->result->searches[number];
  struct progress *progress = &p->progress[number];
  for (int64_t i = 0; i < progress->handed_out; i++) {
    const struct attempt *a = &progress->attempts[i];
    if (!a->fired) continue;
    const bool equal = a->outputs[MUTATED] == a->outputs[OBSERVED];
    const bool unread = !equal && p->poisons && a->trace[POISONED] == a->trace[OBSERVED];
    search->equal_outputs += equal;
    search->unread_outputs += unread;
    if (!equal && !unread && search->survived_at < 0) search->survived_at = i;
  }
  search->fate = search->survived_at < 0 ? SF_MUTANT_EQUIVALENT : SF_MUTANT_SURVIVED;
  progress->state = DONE;
  p->searching.done++;
}

static void on_case(struct power *p, int32_t number, int64_t index, const struct sf_outcome *outcome) {
  struct sf_mutant_search *search = &p->result->searches[number];
  struct progress *progress = &p->progress[number];
  struct attempt *attempt = &progress->attempts[index];
  attempt->found = outcome->verdict == SF_VERDICT_FINDING;
  attempt->fired = outcome->mutant_fired > 0 || attempt->found;
  attempt->outputs[MUTATED] = outcome->mutant_outputs;
  progress->answered++;
  if (attempt->found && (search->found_at < 0 || index < search->found_at)) {
    search->found_at = index;
    search->outcome = *outcome;
  }
  const bool last = progress->handed_out >= p->options->cases || search->found_at >= 0;
  if (last && progress->answered == progress->handed_out) end_search(p, number);
}

static void job_done(void *ctx, const struct sf_job *job, const struct sf_job_result *result) {
  struct power *p = ctx;
  const int32_t number = (int32_t)(job->tag >> SEARCH_SHIFT);
  const enum run run = (enum run)(job->tag >> RUN_SHIFT & 3);
  const int64_t index = job->tag & ((INT64_C(1) << RUN_SHIFT) - 1);
  struct progress *progress = &p->progress[number];
  if (result->outcome.status != SF_OK) {
    if (p->searching.status == SF_OK)
      p->searching.status = sf_error_set(&p->searching.error, result->outcome.status, "%s, case %" PRId64 ": %s",
                                         p->result->searches[number].id, index, result->outcome.text);
  } else if (run == MUTATED) {
    on_case(p, number, index, &result->outcome);
  } else {
    progress->attempts[index].outputs[run] = result->outcome.mutant_outputs;
    progress->attempts[index].trace[run] = result->outcome.trace_hash;
    if (++progress->answered == progress->jobs) end_proof(p, number);
  }
}

enum sf_status sf_mutant_power_run(const struct sf_mutant_power_options *options, struct sf_mutant_power_result *result,
                                   struct sf_error *error) {
  struct power p = {.options = options, .result = result, .poisons = options->campaign.pool.launcher == NULL};
  struct sf_pool_options pool = options->campaign.pool;
  SF_ASSERT_LT(options->cases, INT64_C(1) << RUN_SHIFT);
  memset(result, 0, sizeof *result);
  result->searches = sf_alloc((size_t)(options->id_count + 1) * sizeof *result->searches);
  p.progress = sf_alloc((size_t)(options->id_count + 1) * sizeof *p.progress);
  enum sf_status status = result->searches && p.progress ? SF_OK : sf_error_set(error, SF_ENOMEM, "%s", sf_status_text(SF_ENOMEM));
  for (int32_t i = 0; status == SF_OK && i < options->id_count; i++) {
    struct sf_mutant_search *search = &result->searches[result->count++];
    *search = (struct sf_mutant_search){.id = options->ids[i], .found_at = -1, .survived_at = -1};
  }
  p.searching.count = result->count;
  pool.hash_trace = true;
  if (status == SF_OK) status = sf_searching_run(&p.searching, &options->campaign, &pool, next_jobs, job_done, error);
  for (int32_t i = 0; p.progress && i < result->count; i++) sf_free(p.progress[i].attempts);
  sf_free(p.progress);
  if (status != SF_OK) sf_mutant_power_destroy(result);
  return status;
}

void sf_mutant_power_destroy(struct sf_mutant_power_result *result) {
  sf_free(result->searches);
  memset(result, 0, sizeof *result);
}
