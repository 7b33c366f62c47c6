/* Cases of single operations, of the device or of a plugin. A trial takes microseconds, so a job is a range of a campaign's cases, which
 * the process draws itself. */
#include "harness/base/alloc.h"
#include "harness/base/system/clock.h"
#include "harness/run/evidence/evidence.h"
#include "harness/run/opfuzz/op_report.h"
#include "harness/run/opfuzz/op_table.h"
#include "harness/run/process/subject.h"
#include "targets/plugin/plugin_target.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* For one case of a range. A case from a file may be larger and has twice as long. On a GPU the first case of a process pays for the
 * context and for loading kernels and libraries. */
enum { CPU_SECONDS = 5, GPU_SECONDS = 60, FILE_FACTOR = 2 };

struct sf_operation_bench {
  struct sf_op_lab lab;
  struct sf_op_target target; /* used unless the pool has the target */
};

static double seconds(const struct sf_pool_options *options, const struct sf_case *c) {
  const int one = options->device == SF_DEVICE_CPU ? CPU_SECONDS : GPU_SECONDS;
  return *c->fields ? FILE_FACTOR * one : one;
}

/* Finds `known` if it has the name; else makes a target, which stays until the next call. */
static enum sf_status find_target(const struct sf_op_target **out, const struct sf_op_target *known, const char *name,
                                  struct sf_error *error) {
  static struct sf_op_target made;
  const struct sf_op_target *at = known && strcmp(known->name, name) == 0 ? known : strcmp(made.name, name) == 0 ? &made : NULL;
  const enum sf_status status = at ? SF_OK : sf_op_target_make(&made, name, SF_OP_ELEMENTS_MOST, error);
  if (status == SF_OK)
    *out = at ? at : &made;
  else
    memset(&made, 0, sizeof made);
  return status;
}

enum sf_status sf_operation_settle(struct sf_case *c, const struct sf_op_target **target, const char *name, const char *path,
                                   struct sf_error *error) {
  struct sf_op_case row;
  struct sf_error reason = {SF_OK, ""};
  enum sf_status status = find_target(target, NULL, name, error);
  if (status != SF_OK) return status;
  snprintf(c->target, sizeof c->target, "%s", (*target)->name);
  status = sf_op_case_of(&row, c, *target, &reason);
  return status == SF_OK ? SF_OK : sf_error_set(error, status, "%s: %s", path, reason.text);
}

/* Cases of a plugin's operations run on the plugin that is being fuzzed, if there is one. */
static enum sf_status check(struct sf_case *c, const struct sf_pool_options *options, const char *path, struct sf_error *error) {
  const struct sf_op_target *target = NULL, *fuzzed = options->operations;
  const bool moves = fuzzed && *fuzzed->path && sf_plugin_target_path(c->target);
  return sf_operation_settle(c, &target, moves ? fuzzed->name : c->target, path, error);
}

/* --- outcomes -------------------------------------------------------------------------------------------------- */

/* seen: the outcome of a case of op. */
static void outcome_from(struct sf_outcome *out, const struct sf_op *op, const struct sf_op_outcome *seen) {
  out->verdict = seen->verdict;
  out->cls = seen->cls;
  out->kind = out->module_class = out->rank = -1;
  out->row = -1;
  out->ranks = 1;
  out->checked = (int32_t)seen->judged;
  out->unchecked = (int32_t)(seen->elements - seen->judged);
  out->operation = *seen;
  if (seen->verdict == SF_VERDICT_SKIP) snprintf(out->text, sizeof out->text, "the plugin does not take the case");
  if (seen->verdict != SF_VERDICT_FINDING) return;
  out->finding_count = 1;
  snprintf(out->module, sizeof out->module, "%s", op->name);
  sf_op_signature(out->signature, sizeof out->signature, op, seen);
  snprintf(out->shrink_key, sizeof out->shrink_key, "%.*s", (int)sizeof out->shrink_key - 1, out->signature);
  sf_op_what(out->text, sizeof out->text, op, seen);
}

static void outcome_of_death(struct sf_process *process, const struct sf_pool_options *options, bool hang, struct sf_outcome *outcome) {
  const struct sf_job *job = &process->jobs[process->job_next];
  const struct sf_process_page *page = process->page;
  struct sf_op_outcome seen = {.verdict = SF_VERDICT_FINDING, .cls = hang ? SF_CLASS_HANG : SF_CLASS_CRASH, .operand = -1};
  const int how = sf_process_stop(process);
  const struct sf_op *op = sf_op_find(job->c.operation);
  if (!hang && sf_process_lacked(process, "", outcome)) return;
  if (job->range) {
    struct sf_op_case c;
    sf_op_case_draw(&c, options->operations, (uint64_t)job->c.seed, (uint64_t)(job->tag + sf_process_passes(process).count));
    op = sf_op_of(options->operations, &c);
  }
  seen.code = WIFSIGNALED(how) ? WTERMSIG(how) : -WEXITSTATUS(how) - 1;
  if (process->said.memory > 0) sf_said_last(&process->said, seen.said, sizeof seen.said);
  if (!hang && *page->fault) {
    seen.operand = page->operand;
    if (page->manner == SF_MANNER_WRITE) seen.cls = SF_CLASS_GUARD;
    snprintf(seen.said, sizeof seen.said, "%s", page->fault);
  }
  outcome_from(outcome, op, &seen);
}

/* --- the process ---------------------------------------------------------------------------------------- */

static enum sf_status open_lab(struct sf_workbench *bench, const char *name, struct sf_error *error) {
  const struct sf_op_target *target = NULL;
  if (bench->operations && strcmp(bench->operations->lab.target->name, name) == 0) return SF_OK;
  if (bench->operations)
    sf_op_lab_destroy(&bench->operations->lab);
  else
    bench->operations = sf_alloc(sizeof *bench->operations);
  if (!bench->operations) return SF_ENOMEM;
  enum sf_status status = find_target(&target, bench->options->operations, name, error);
  if (status == SF_OK && target != bench->options->operations) bench->operations->target = *target, target = &bench->operations->target;
  if (status == SF_OK) status = sf_op_lab_create(&bench->operations->lab, target, bench->options->device, bench->options->gemm, error);
  if (status == SF_OK) {
    sf_process_watch_operands(bench->operations->lab.memory.walled ? &bench->operations->lab.memory : NULL);
    return SF_OK;
  }
  sf_free(bench->operations);
  bench->operations = NULL;
  return status;
}

/* Leaves the wrong output as a picture. */
static void leave_evidence(const struct sf_workbench *bench, const struct sf_case *c, const struct sf_op_outcome *seen) {
  static struct sf_picture picture;
  struct sf_evidence evidence = {0};
  if (!bench->options->evidence || !sf_op_trial_picture(&picture, &bench->operations->lab.memory, seen)) return;
  sf_evidence_of_layout(&evidence, c);
  if (sf_evidence_add_picture(&evidence, "", &picture) == SF_OK) sf_evidence_write(bench->options->evidence, &evidence);
  sf_evidence_destroy(&evidence);
}

static void run_one(struct sf_workbench *bench, const struct sf_job *job, struct sf_job_result *result) {
  struct sf_op_lab *lab = &bench->operations->lab;
  struct sf_op_outcome seen;
  struct sf_op_case c;
  struct sf_error error = {SF_OK, ""};
  const double start = sf_clock_seconds();
  result->outcome.status = sf_op_case_of(&c, &job->c, lab->target, &error);
  if (result->outcome.status != SF_OK) {
    snprintf(result->outcome.text, sizeof result->outcome.text, "%s", error.text);
    return;
  }
  sf_op_trial_run(&seen, &lab->memory, &lab->runner, lab->target, &c, job->diagnose);
  outcome_from(&result->outcome, sf_op_of(lab->target, &c), &seen);
  leave_evidence(bench, &job->c, &seen);
  result->outcome.seconds = sf_clock_seconds() - start;
}

/* Keeps the page up to date: the case that runs is the one after those that have passed. */
static void begin_piece(struct sf_workbench *bench, int64_t first, struct sf_job_result *result) {
  memset(result, 0, offsetof(struct sf_job_result, min));
  result->tag = first;
  result->of_range = true;
  memset((void *)(uintptr_t)&bench->page->passes, 0, sizeof bench->page->passes);
  bench->page->range_first = first;
}

static void run_range(struct sf_workbench *bench, const struct sf_job *job, struct sf_job_result *result) {
  struct sf_op_lab *lab = &bench->operations->lab;
  volatile struct sf_passes *passes = &bench->page->passes;
  const int64_t end = job->tag + job->range;
  double start = sf_clock_seconds();
  begin_piece(bench, job->tag, result);
  for (int64_t i = job->tag; i < end; i++) {
    struct sf_op_outcome seen;
    struct sf_op_case c;
    sf_op_case_draw(&c, lab->target, (uint64_t)job->c.seed, (uint64_t)i);
    sf_op_trial_run(&seen, &lab->memory, &lab->runner, lab->target, &c, false);
    if (*lab->target->path) sf_said_pass_on(bench->said);
    if (seen.verdict == SF_VERDICT_PASS) {
      passes->checked += seen.judged;
      passes->unchecked += seen.elements - seen.judged;
      passes->count++;
      continue;
    }
    memcpy(&result->passes, (const void *)(uintptr_t)passes, sizeof result->passes);
    result->passes.seconds = sf_clock_seconds() - start;
    result->has_outcome = true;
    outcome_from(&result->outcome, sf_op_of(lab->target, &c), &seen);
    if (i + 1 == end) return;
    if (!sf_process_answer(bench->fd, result)) {
      bench->page->leaving = SF_LEAVING_UNREACHED;
      _exit(0);
    }
    begin_piece(bench, i + 1, result);
    start = sf_clock_seconds();
  }
  memcpy(&result->passes, (const void *)(uintptr_t)passes, sizeof result->passes);
  result->passes.seconds = sf_clock_seconds() - start;
}

static void run(struct sf_workbench *bench, const struct sf_job *job, struct sf_job_result *result) {
  struct sf_error error = {SF_OK, ""};
  sf_said_begin(bench->said);
  result->outcome.status = open_lab(bench, job->c.target, &error);
  if (result->outcome.status == SF_OK) {
    if (job->range)
      run_range(bench, job, result);
    else
      run_one(bench, job, result);
  } else {
    result->has_outcome = true;
    snprintf(result->outcome.text, sizeof result->outcome.text, "%s", *error.text ? error.text : sf_status_text(result->outcome.status));
  }
  sf_said_end(bench->said);
}

/* --- shrinking, reports ---------------------------------------------------------------------------------------- */

static enum sf_status table(struct sf_subject_table *out, const struct sf_case *c, const struct sf_pool_options *options,
                            enum sf_table_purpose purpose) {
  const struct sf_op_target *target = NULL;
  struct sf_op_case row;
  enum sf_status status = find_target(&target, options->operations, c->target, NULL);
  if (status == SF_OK) status = sf_op_case_of(&row, c, target, NULL);
  if (status != SF_OK) return status;
  out->operation = (struct sf_op_table){target, &target->entries[row.entry]};
  out->table = sf_op_table(&out->operation, purpose == SF_TABLE_SHRINK_SLOWLY);
  return SF_OK;
}

static void tell(struct sf_text *out, const struct sf_case *c, const struct sf_outcome *outcome) {
  sf_op_tell(out, c, &outcome->operation, outcome->text);
}

static void tell_case(struct sf_text *out, const struct sf_case *c, const struct sf_outcome *outcome) {
  sf_op_tell_case(out, c, &outcome->operation);
}

const struct sf_subject sf_subject_operation = {.noun = "elements",
                                                .shrink_budget = 20000,
                                                .slow_budget = SF_OP_SLOW_BUDGET,
                                                .counts_starving = true,
                                                .check = check,
                                                .shrinks_key_once = true,
                                                .seconds = seconds,
                                                .run = run,
                                                .outcome_of_death = outcome_of_death,
                                                .table = table,
                                                .tell = tell,
                                                .tell_case = tell_case};
