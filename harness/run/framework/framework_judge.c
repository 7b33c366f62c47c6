#include "harness/run/framework/framework_judge.h"

#include "harness/base/alloc.h"
#include "harness/base/bytes.h"
#include "harness/base/names.h"

#include <stdio.h>
#include <string.h>

enum sf_status sf_framework_blame(struct sf_framework_outcome *outcome, const char *run, enum sf_status status,
                                  const struct sf_error *error) {
  static const struct {
    enum sf_status status;
    enum sf_verdict verdict;
    const char *lack, *before;
  } meanings[] = {
      {SF_EINPUT, SF_VERDICT_FINDING, "", ""},
      {SF_ENOTFOUND, SF_VERDICT_FINDING, "", ""},
      {SF_ENOSPC, SF_VERDICT_INCONCLUSIVE, "space", "no room to judge the case: "},
      {SF_ENOMEM, SF_VERDICT_INCONCLUSIVE, "memory", "no memory to judge the case: "},
      {SF_EIO, SF_VERDICT_INCONCLUSIVE, "", "this machine could not read or write a trace: "},
  };
  for (size_t i = 0; i < sizeof meanings / sizeof meanings[0]; i++) {
    if (meanings[i].status != status) continue;
    outcome->verdict = meanings[i].verdict;
    outcome->lack = meanings[i].lack;
    outcome->what.cls = SF_CLASS_PROTOCOL;
    snprintf(outcome->run, sizeof outcome->run, "%s", run);
    snprintf(outcome->what.text, sizeof outcome->what.text, "%s%s", meanings[i].before,
             error && *error->text ? error->text : sf_status_text(status));
    return SF_OK;
  }
  return status;
}

enum sf_status sf_framework_noise(bool *good, struct sf_framework_outcome *outcome, const char *noise, const char *reference,
                                  const char (*draws)[SF_FRAMEWORK_PATH], int32_t draw_count, bool first, int32_t *distinct,
                                  struct sf_error *error) {
  char run[24] = "reference";
  struct sf_trace_set set = {0};
  struct sf_trace_set *opened = sf_alloc((size_t)draw_count * sizeof *opened);
  enum sf_status status = opened ? sf_trace_set_open(&set, reference, error) : SF_ENOMEM;
  for (int32_t i = 0; status == SF_OK && i < draw_count; i++) {
    snprintf(run, sizeof run, "draw %d", i);
    status = sf_trace_set_open(&opened[i], draws[i], error);
  }
  const struct sf_noise_draws all = {
      .sets = opened, .count = draw_count, .distinct_min = first ? 0 : 1, .distinct = distinct, .first = first};
  if (status == SF_OK) status = sf_noise_make(noise, &set, &all, error);
  for (int32_t i = 0; opened && i < draw_count; i++) sf_trace_set_close(&opened[i]);
  sf_trace_set_close(&set);
  sf_free(opened);
  *good = status == SF_OK;
  return sf_framework_blame(outcome, run, status, error);
}

enum sf_status sf_framework_culprit(struct sf_culprit *out, const struct sf_check_report *report, int32_t which) {
  const struct sf_check_result *result = &report->results[report->culprits[which].result];
  *out = (struct sf_culprit){.cls = result->cls,
                             .kind = result->tensor->name.kind,
                             .module_class = -1,
                             .rank = result->rank,
                             .row = result->row,
                             .error = result->error,
                             .noise = result->noise,
                             .ratio = result->ratio,
                             .diagnosis = report->culprits[which].diagnosis};
  sf_name_fit(out->first_id, sizeof out->first_id, result->tensor->text, strlen(result->tensor->text));
  snprintf(out->text, sizeof out->text, "%s", result->text);
  return sf_trace_name_module(out->module, sizeof out->module, &result->tensor->name);
}

static enum sf_status tally_tensors(struct sf_tally *tally, const struct sf_check_report *report) {
  enum sf_status status = SF_OK;
  *tally = (struct sf_tally){.unjudged = ""};
  for (int32_t i = 0; i < report->result_count && status == SF_OK; i++) {
    const struct sf_check_result *r = &report->results[i];
    char module[SF_MODULE_TEXT];
    if (r->judged && !r->flagged) sf_tally_near(tally, sf_check_share(report, r));
    if (r->judged) continue;
    status = sf_trace_name_module(module, sizeof module, &r->tensor->name);
    if (status == SF_OK) sf_tally_unjudged(tally, module);
  }
  return status;
}

static enum sf_status outcome_of_report(struct sf_framework_outcome *out, const struct sf_check_report *report) {
  out->verdict = report->verdict;
  out->judged = report->judged;
  out->not_judged = report->not_judged;
  out->findings = report->findings;
  memcpy(out->pattern, report->pattern, sizeof out->pattern);
  out->further_count = report->culprit_count > 0 ? report->culprit_count - 1 : 0;
  enum sf_status status = tally_tensors(&out->tally, report);
  for (int32_t i = 0; i < report->culprit_count && status == SF_OK; i++)
    status = sf_framework_culprit(i == 0 ? &out->what : &out->further[i - 1], report, i);
  return status;
}

enum sf_status sf_framework_judge(bool *good, double *margin, struct sf_framework_outcome *outcome, const char *noise,
                                  const char *reference, const char *candidate, const struct sf_suppositions *supposed,
                                  struct sf_error *error) {
  struct sf_trace_set reference_set = {0}, candidate_set = {0};
  struct sf_noise_file levels = {0};
  struct sf_check_report report = {0};
  enum sf_status status = sf_trace_set_open(&reference_set, reference, error);
  if (status == SF_OK) status = sf_noise_open(&levels, noise, &reference_set, error);
  if (status == SF_OK) status = sf_trace_set_open(&candidate_set, candidate, error);
  if (status == SF_OK) status = sf_check_run(&report, &reference_set, &levels, &candidate_set, supposed, error);
  if (status == SF_OK) status = outcome_of_report(outcome, &report);
  if (status == SF_OK && outcome->evidence) {
    sf_evidence_destroy(outcome->evidence);
    status = sf_evidence_of_check(outcome->evidence, &report, &candidate_set);
  }
  if (status == SF_OK) *margin = sf_check_report_margin(&report);
  *good = status == SF_OK;
  status = sf_framework_blame(outcome, "candidate", status, error);
  sf_check_report_destroy(&report);
  sf_trace_set_close(&candidate_set);
  sf_noise_close(&levels);
  sf_trace_set_close(&reference_set);
  return status;
}
