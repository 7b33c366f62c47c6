#include "harness/run/commands/check_report.h"

#include "harness/base/sinks.h"
#include "harness/run/commands/report_json.h"
#include "harness/run/support/json.h"
#include "harness/run/trial/outcome.h"

#include <inttypes.h>
#include <string.h>

enum { REASONS_MAX = 16, START_TEXT = 512 };

/* A reason why tensors could not be judged, and their number. */
struct reason {
  const char *text;
  int32_t count;
};

static int32_t count_reasons(struct reason *out, const struct sf_check_report *report) {
  int32_t count = 0;
  for (int32_t i = 0; i < report->result_count; i++) {
    const char *why_not = report->results[i].why_not;
    int32_t at = 0;
    if (!why_not) continue;
    while (at < count && strcmp(out[at].text, why_not) != 0) at++;
    if (at == count && count == REASONS_MAX) continue;
    if (at == count) out[count++] = (struct reason){why_not, 0};
    out[at].count++;
  }
  return count;
}

/* Explains a short reason to somebody who sees it for the first time. */
static const char *reason_text(const char *reason) {
  static const struct {
    const char *reason, *text;
  } texts[] = {
      {"values alike", "all their values are alike, so a misplaced shard would not show"},
      {"ill-conditioned", "rounding alone changes them so much that an error would not show"},
      {"zero", "zero in the reference"},
      {"empty", "without elements"},
      {"reference not finite", "NaN or infinite in the reference"},
      {"reference lacks it", "the reference has no such tensor"},
      {"no first pass", "recomputed, and the trace has no first pass to compare with"},
      {"main gradients not finite", "a norm of main gradients that are NaN or infinite"},
  };
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
    if (strcmp(texts[i].reason, reason) == 0) return texts[i].text;
  return reason;
}

/* One sentence about runs, or ranks of one run, that start from different parameters; NULL when they start alike. */
static const char *start_text(char out[START_TEXT], const struct sf_check_report *report) {
  if (report->start_differ == 0) return NULL;
  const struct sf_trace_name *first = &report->results[report->culprits[0].result].tensor->name;
  const bool among_ranks = report->start_conflicts == report->start_differ;
  snprintf(out, START_TEXT, "the %s do not start from the same parameters: %d of %d differ, first %.*s; %s before the traced step",
           among_ranks ? "ranks of this run" : "runs", report->start_differ, report->start_count, first->subject_length, first->subject,
           among_ranks ? "set the same seed on each rank, or broadcast the parameters," : "set the same seed or load the same state");
  return out;
}

static const char *consequences_text(const struct sf_check_report *report) {
  if (report->start_differ == 0) return "; this is the first in execution order";
  return report->findings > report->start_differ ? "; all others may follow from the parameters" : "";
}

static void append_first(struct sf_text *out, const struct sf_check_result *r) {
  sf_line_append(out, "first        %s\n", r->tensor->text);
  if (r->rank >= 0) sf_line_append(out, "rank         %d\n", r->rank);
  if (r->row >= 0) sf_line_append(out, "row          %" PRId64 "\n", r->row);
  if (r->ratio > 0) sf_line_append(out, "error        %.3g, %.3g times what rounding explains\n", r->error, r->ratio);
  sf_line_append(out, "what         %s%s%s\n", r->text, r->hint ? ": " : "", r->hint ? r->hint : "");
}

/* The other culprits of an isolated trace, or of one that anchors its reference. */
static void append_further(struct sf_text *out, const struct sf_check_report *report) {
  char line[SF_DIAGNOSIS_LINE_TEXT];
  for (int32_t i = 1; i < report->culprit_count; i++) {
    const struct sf_check_result *result = &report->results[report->culprits[i].result];
    sf_diagnosis_line(line, &report->culprits[i].diagnosis);
    sf_line_append(out, "also wrong   %s: %s%s%s\n", result->tensor->text, result->text, *line ? "; " : "", line);
  }
}

void sf_check_append(struct sf_text *out, const struct sf_check_report *report, const struct sf_trace_set *candidate) {
  struct reason reasons[REASONS_MAX];
  char line[SF_DIAGNOSIS_LINE_TEXT], text[START_TEXT];
  const struct sf_check_culprit *culprit = report->culprit_count > 0 ? &report->culprits[0] : NULL;
  const struct sf_check_result *first = culprit ? &report->results[culprit->result] : NULL;
  const char *start = start_text(text, report);
  const int32_t reason_count = count_reasons(reasons, report);
  sf_line_append(out, "candidate    %s (%d ranks, %s%s)\n", candidate->path, candidate->ranks, sf_trace_set_mode(candidate),
                 report->anchored ? ", the reference was given its tensors" : "");
  sf_line_append(out, "verdict      %s%s%s%s\n", sf_verdict_name(report->verdict), first ? " (" : "",
                 first ? sf_finding_class_name(first->cls) : "", first ? ")" : "");
  if (start) sf_line_append(out, "start        %s\n", start);
  if (first) append_first(out, first);
  if (culprit) sf_diagnosis_line(line, &culprit->diagnosis);
  if (culprit) sf_numbers_append(out, &culprit->diagnosis.numbers, first->tensor->name.kind);
  if (culprit && *line) sf_line_append(out, "diagnosis    %s\n", line);
  if (*report->pattern) sf_line_append(out, "pattern      %s\n", report->pattern);
  append_further(out, report);
  if (first) sf_line_append(out, "findings     %d in this trace%s\n", report->findings, consequences_text(report));
  sf_line_append(out, "judged       %d of %d tensors\n", report->judged, report->judged + report->not_judged);
  for (int32_t i = 0; i < reason_count; i++) sf_line_append(out, "not judged   %d: %s\n", reasons[i].count, reason_text(reasons[i].text));
}

void sf_check_table(FILE *to, const struct sf_check_report *report) {
  sf_print(to, "%-72s %14s %11s %11s %10s %10s  %s\n", "tensor", "elements", "norm", "noise", "err/noise", "worst row", "state");
  for (int32_t i = 0; i < report->result_count; i++) {
    const struct sf_check_result *r = &report->results[i];
    sf_print(to, "%-72s %14" PRId64 " %11.3g %11.3g %10.3g %10.3g  %s%s\n", r->tensor->text, r->tensor->count, r->norm, r->tensor_noise,
             r->tensor_ratio, r->row_ratio,
             r->flagged  ? "FLAGGED "
             : r->judged ? "ok"
                         : r->why_not,
             r->flagged ? sf_finding_class_name(r->cls) : "");
  }
}

/* A tensor that is reported. */
static json_t *finding_of(const struct sf_check_result *r) {
  const struct sf_trace_name *name = &r->tensor->name;
  char subject[256];
  snprintf(subject, sizeof subject, "%.*s", (int)name->subject_length, name->subject);
  return json_pack("{s:o, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "id", sf_json_text(r->tensor->text), "class",
                   sf_finding_class_name(r->cls), "kind", sf_kind_name(name->kind), "subject", sf_json_text(subject), "rank",
                   sf_json_count(r->rank), "row", sf_json_count(r->row), "error", sf_json_real(r->error), "noise", sf_json_real(r->noise),
                   "ratio", sf_json_real(r->ratio), "what", sf_json_text(r->text), "hint", sf_json_text(r->hint));
}

json_t *sf_json_of_check(const struct sf_check_report *report, const struct sf_trace_set *candidate) {
  struct reason reasons[REASONS_MAX];
  char start[START_TEXT];
  const struct sf_check_culprit *first = report->culprit_count > 0 ? report->culprits : NULL;
  const int32_t reason_count = count_reasons(reasons, report);
  json_t *because = json_object(), *further = json_array(), *flagged = json_array();
  for (int32_t i = 0; i < reason_count; i++) json_object_set_new(because, reasons[i].text, json_integer(reasons[i].count));
  for (int32_t i = 1; i < report->culprit_count; i++)
    json_array_append_new(further, finding_of(&report->results[report->culprits[i].result]));
  for (int32_t i = 0; i < report->result_count; i++)
    if (report->results[i].flagged) json_array_append_new(flagged, finding_of(&report->results[i]));
  return json_pack("{s:o, s:i, s:s, s:s, s:i, s:i, s:o, s:o, s:o*, s:o, s:o, s:o, s:i, s:o}", "path", sf_json_text(candidate->path),
                   "ranks", candidate->ranks, "mode", sf_trace_set_mode(candidate), "verdict", sf_verdict_name(report->verdict), "judged",
                   report->judged, "not_judged", report->not_judged, "not_judged_because", because, "start",
                   sf_json_text(start_text(start, report)), "first", first ? finding_of(&report->results[first->result]) : NULL,
                   "diagnosis", first ? sf_json_diagnosis(&first->diagnosis) : json_null(), "pattern", sf_json_text(report->pattern),
                   "further", further, "findings", report->findings, "flagged", flagged);
}
