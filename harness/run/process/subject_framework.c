/* Cases of a framework, which a worker of its own drives. */
#include "harness/base/sinks.h"
#include "harness/run/framework/framework_case.h"
#include "harness/run/framework/framework_table.h"
#include "harness/run/framework/framework_target.h"
#include "harness/run/process/subject.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A framework's runs have deadlines of their own. */
static double seconds(const struct sf_pool_options *options, const struct sf_case *c) {
  (void)options, (void)c;
  return 120;
}

/* A worker has described itself to the campaign, but does not start in this process. That says nothing about the case, and the next case
 * tries again. */
static void excuse_start(const struct sf_case *c, struct sf_outcome *outcome) {
  if (outcome->status == SF_OK || outcome->status == SF_ECANCELLED) return;
  char reason[sizeof outcome->text];
  memcpy(reason, outcome->text, sizeof reason);
  sf_outcome_of_lack(outcome, c);
  outcome->lacked = true;
  snprintf(outcome->text, sizeof outcome->text, "the worker did not start again: %.400s", reason);
}

/* The framework's sets live as long as this process. Without a worker that describes itself there are no verdicts. */
static void run(struct sf_workbench *bench, const struct sf_job *job, struct sf_job_result *result) {
  struct sf_error error = {SF_OK, ""};
  struct sf_worker_report report = {.end = SF_WORKER_ANSWERED};
  struct sf_outcome *outcome = &result->outcome;
  struct sf_evidence seen = {0};
  if (!bench->options->framework)
    outcome->status =
        sf_error_set(&error, SF_EINPUT, "target.name: the case is for the framework \"%s\": give it as --target", job->c.target);
  else if (!bench->framework)
    outcome->status = sf_framework_create(&bench->framework, &report, bench->options->framework, &error);
  if (outcome->status == SF_OK) {
    sf_framework_suppose(bench->framework, job->diagnose);
    sf_framework_be_thorough(bench->framework, job->effort == SF_EFFORT_THOROUGH);
    sf_framework_be_quick(bench->framework, job->effort == SF_EFFORT_QUICK);
    sf_framework_show(bench->framework, bench->options->evidence ? &seen : NULL);
    sf_framework_trial(bench->framework, &job->c, outcome);
    if (bench->options->evidence && seen.tensor_count > 0) sf_evidence_write(bench->options->evidence, &seen);
    sf_framework_show(bench->framework, NULL);
    sf_evidence_destroy(&seen);
    sf_outcome_turn_to_wanted(outcome, job);
  } else {
    snprintf(outcome->text, sizeof outcome->text, "%s", *error.text ? error.text : sf_status_text(outcome->status));
    if (!bench->framework) excuse_start(&job->c, outcome);
  }
  sf_worker_report_clear(&report);
  if (outcome->status != SF_OK || outcome->verdict != SF_VERDICT_FINDING || !job->diagnose) return;
  if (sf_framework_script(bench->framework, result->script, sizeof result->script, &job->c, outcome, &error) != SF_OK)
    *result->script = '\0';
}

/* Only the framework's worker knows its fields. */
static enum sf_status table(struct sf_subject_table *out, const struct sf_case *c, const struct sf_pool_options *options,
                            enum sf_table_purpose purpose) {
  (void)purpose;
  out->choices = (struct sf_choice_space){.description = options->description, .ranks_max = (int32_t)sf_case_ranks(c)};
  out->table = sf_framework_table(&out->choices);
  return SF_OK;
}

static void tell_case(struct sf_text *out, const struct sf_case *c, const struct sf_outcome *outcome) {
  char axes[SF_AXES_TEXT];
  (void)outcome;
  sf_signature_axes(axes, c, NULL);
  sf_line_append(out, "case         %" PRId64 " rank%s (%s), %s, %s\n", sf_case_ranks(c), sf_plural(sf_case_ranks(c)), axes, c->target,
                 c->fields);
}

const struct sf_subject sf_subject_framework = {.noun = "tensors",
                                                .shrink_budget = 300,
                                                .has_ranks = true,
                                                .has_own_deadlines = true,
                                                .judges_quickly = true,
                                                .contains = sf_framework_case_contains,
                                                .keeps_processes = true,
                                                .takes_over = true,
                                                .seconds = seconds,
                                                .run = run,
                                                .outcome_of_death = sf_ranks_outcome_of_death,
                                                .table = table,
                                                .tell = sf_layers_tell,
                                                .tell_case = tell_case};
