#include "harness/run/campaign/signatures.h"

#include "harness/base/alloc.h"
#include "harness/base/sinks.h"
#include "harness/run/campaign/finding_files.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reading {
  struct sf_signatures list;
  const char *out_dir;
};

static enum sf_status add(void *context, const struct sf_store_finding *finding) {
  struct reading *reading = context;
  struct sf_signatures *list = &reading->list;
  struct sf_signature *grown = sf_grown(list->at, list->count, sizeof *grown);
  if (!grown) return SF_ENOMEM;
  list->at = grown;
  struct sf_signature *s = &grown[list->count++];
  *s = (struct sf_signature){.count = finding->count,
                             .first_index = finding->index,
                             .trials = finding->trials,
                             .trials_max = finding->trials_max,
                             .minimal = finding->minimal,
                             .known = finding->known,
                             .diagnosis = finding->diagnosis};
  snprintf(s->signature, sizeof s->signature, "%s", finding->signature);
  sf_finding_directory(s->directory, sizeof s->directory, reading->out_dir, finding->signature, finding->folder);
  s->report = strdup(finding->report ? finding->report : "");
  s->what = strdup(finding->what ? finding->what : "");
  if (!s->report || !s->what) return SF_ENOMEM;
  snprintf(s->min_path, sizeof s->min_path, "%s/%s", s->directory, finding->min_json ? "min.json" : "case.json");
  return SF_OK;
}

enum sf_status sf_signatures_read(struct sf_signatures *out, const struct sf_campaign_options *options, struct sf_error *error) {
  const struct sf_store_options store_options = {.path = options->store_path, .mode = SF_STORE_READ};
  struct reading reading = {.out_dir = options->out_dir};
  struct sf_store *store = NULL;
  enum sf_status status = sf_store_open(&store, &store_options, error);
  if (status != SF_OK) return status;
  status = sf_store_each_finding(store, add, &reading, error);
  sf_store_close(store);
  if (status == SF_ENOMEM) sf_error_set(error, status, "%s: out of memory", options->store_path);
  if (status == SF_OK) *out = reading.list;
  else sf_signatures_destroy(&reading.list);
  return status;
}

void sf_signatures_destroy(struct sf_signatures *signatures) {
  for (int32_t i = 0; i < signatures->count; i++) free(signatures->at[i].report), free(signatures->at[i].what);
  sf_free(signatures->at);
  memset(signatures, 0, sizeof *signatures);
}

static bool same_diagnosis(const struct sf_signature *a, const struct sf_signature *b) {
  char line[SF_DIAGNOSIS_LINE_TEXT], other[SF_DIAGNOSIS_LINE_TEXT];
  sf_diagnosis_line(line, &a->diagnosis);
  sf_diagnosis_line(other, &b->diagnosis);
  return *line && sf_diagnosis_same_line(line, other);
}

static void append_signature(struct sf_text *out, const struct sf_signature *s) {
  sf_line_append(out, "  %-60s %6" PRId64 " case%s, first %" PRId64 "%s  %s\n", s->signature, s->count, s->count == 1 ? "" : "s",
                 s->first_index, s->known ? " (known)" : "", s->directory);
}

static bool is_first_of_its_diagnosis(const struct sf_signatures *signatures, int32_t which) {
  for (int32_t i = 0; i < which; i++)
    if (same_diagnosis(&signatures->at[i], &signatures->at[which])) return false;
  return true;
}

void sf_signatures_text(struct sf_text *out, const struct sf_signatures *signatures) {
  for (int32_t i = 0; i < signatures->count; i++) {
    const struct sf_signature *first = &signatures->at[i];
    char line[SF_DIAGNOSIS_LINE_TEXT];
    int32_t alike = 1;
    if (!is_first_of_its_diagnosis(signatures, i)) continue;
    append_signature(out, first);
    for (int32_t j = i + 1; j < signatures->count; j++) {
      if (!same_diagnosis(first, &signatures->at[j])) continue;
      append_signature(out, &signatures->at[j]);
      alike++;
    }
    sf_diagnosis_line(line, &first->diagnosis);
    if (*line && alike > 1) sf_line_append(out, "    diagnosis of these %d: %s\n", alike, line);
    else if (*line) sf_line_append(out, "    diagnosis: %s\n", line);
  }
}

void sf_campaign_report(struct sf_report *report, const struct sf_campaign_result *result, const struct sf_signatures *signatures,
                        const char *nothing, const char *replay_options) {
  const struct sf_store_summary *s = &result->summary;
  report->title = "shardfuzz fuzz";
  report->passed = result->new_signatures == 0 && !*nothing;
  sf_report_fact(report, "seed", NULL, "%" PRIu64, result->seed);
  sf_report_fact(report, "cases", s->inconclusive_reason,
                 "%" PRId64 " in %.0f s: %" PRId64 " passed, %" PRId64 " with findings, %" PRId64 " inconclusive, %" PRId64 " skipped%s",
                 s->cases, result->seconds, s->by_verdict[SF_VERDICT_PASS], s->by_verdict[SF_VERDICT_FINDING],
                 s->by_verdict[SF_VERDICT_INCONCLUSIVE], s->by_verdict[SF_VERDICT_SKIP],
                 *s->inconclusive_reason ? "; last inconclusive: " : "");
  for (int32_t i = 0; i < signatures->count; i++) {
    const struct sf_signature *found = &signatures->at[i];
    struct sf_report_item *item =
        sf_report_add(report, "fuzz", found->known ? "known" : "new", found->known ? SF_REPORT_PASSED : SF_REPORT_FAILED);
    sf_text_append(&item->name, "%s", found->signature);
    sf_text_append(&item->text, "%s", found->report);
    sf_finding_message(&item->message, found->known ? NULL : found->signature, found->what, &found->diagnosis);
    sf_replay_append(&item->next, found->min_path, replay_options, 0);
  }
  sf_report_campaign(report, result->seconds, nothing);
}
