#include "harness/run/figures/case_report.h"

#include "harness/base/sinks.h"
#include "harness/run/figures/figures.h"
#include "harness/run/process/subject.h"
#include "harness/run/process/witness.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void sf_case_show_simulated(struct sf_evidence *evidence, const struct sf_outcome *outcome, const struct sf_job *job,
                            const struct sf_pool_options *pool) {
  static struct sf_job_result result;
  struct sf_pool_options simulated = *pool;
  const bool has_tensor = outcome->verdict == SF_VERDICT_FINDING && !sf_class_cuts_off(outcome->cls);
  if (!pool->launcher || !has_tensor || sf_subject_of(&job->c) != &sf_subject_layers) return;
  simulated.processes = 1;
  simulated.launcher = NULL;
  simulated.nccl = false;
  simulated.evidence = tmpfile();
  if (!simulated.evidence) return;
  if (sf_pool_run_one(&simulated, job, &result) == SF_OK && strcmp(result.outcome.shrink_key, outcome->shrink_key) == 0)
    sf_evidence_read(evidence, simulated.evidence);
  fclose(simulated.evidence);
}

enum sf_status sf_case_show(struct sf_evidence *evidence, struct sf_outcome *outcome, struct sf_job *job,
                            const struct sf_pool_options *pool, struct sf_error *error) {
  static struct sf_job_result result;
  struct sf_pool_options single = *pool;
  single.processes = 1;
  single.evidence = pool->launcher ? NULL : tmpfile();
  const enum sf_status status = sf_diagnose_one(&single, job, &result);
  if (status != SF_OK) {
    sf_pool_failure_text(error->text, sizeof error->text, &single, status);
  } else {
    *outcome = result.outcome;
    if (single.evidence) sf_evidence_read(evidence, single.evidence);
  }
  if (single.evidence) fclose(single.evidence);
  if (status == SF_OK) sf_case_show_simulated(evidence, outcome, job, pool);
  return status;
}

/* "2 ranks (tp), 1 layer, fp32, isolated": as the report for people has it, behind the name of its line. */
static void add_case(struct sf_report *report, const struct sf_case *c, const struct sf_outcome *outcome) {
  enum { NAME_LENGTH = 13 };
  struct sf_text line = {0};
  sf_subject_of(c)->tell_case(&line, c, outcome);
  if (line.data && line.length > NAME_LENGTH)
    sf_report_fact(report, "case", NULL, "%.*s", (int)strcspn(line.data + NAME_LENGTH, "\n"), line.data + NAME_LENGTH);
  sf_text_destroy(&line);
}

void sf_case_report(struct sf_report *report, const struct sf_case *c, const struct sf_outcome *outcome, const struct sf_case_told *told) {
  const struct sf_subject *subject = sf_subject_of(c);
  report->passed = outcome->verdict == SF_VERDICT_PASS;
  struct sf_report_item *item = sf_report_add(report, "replay", sf_verdict_name(outcome->verdict),
                                              report->passed                           ? SF_REPORT_PASSED
                                              : outcome->verdict == SF_VERDICT_FINDING ? SF_REPORT_FAILED
                                                                                       : SF_REPORT_ERROR);
  char ranks[32] = "";
  if (subject->has_ranks) snprintf(ranks, sizeof ranks, ", on %d rank%s", outcome->ranks, sf_plural(outcome->ranks));
  if (outcome->checked + outcome->unchecked > 0) /* an operation ends with the first wrong element */
    sf_report_fact(report, subject->noun, NULL, "%d of %d judged%s", outcome->checked, outcome->checked + outcome->unchecked, ranks);
  add_case(report, c, outcome);
  if (c->expect.present)
    sf_report_fact(report, "the file expects", NULL, "%s%s%s, %s", c->expect.verdict, *c->expect.signature ? " " : "", c->expect.signature,
                   sf_outcome_as_expected(outcome, &c->expect) ? "as it was" : "which this run did not show");
  if (told->evidence) sf_report_fact(report, "seed of the data", NULL, "%" PRId64, (int64_t)c->seed);
  sf_text_append(&item->name, "%s", told->name);
  item->seconds = outcome->seconds;
  sf_text_append(&item->text, "%s", told->text);
  sf_finding_message(&item->message, NULL, outcome->text, &outcome->diagnosis);
  item->has_command = true;
  sf_report_case(item, told->path);
  sf_replay_append(&item->next, told->path, told->way, 0);
  if (told->evidence) sf_figures_of_outcome(&item->figures, c, outcome, told->evidence, told->shrunk);
}
