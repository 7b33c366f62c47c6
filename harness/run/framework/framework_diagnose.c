/* What a finding is asked beyond its judgement: which choice of the case explains it, and which operation went wrong. */
#include "harness/base/alloc.h"
#include "harness/run/framework/framework_internal.h"
#include "harness/run/framework/framework_judge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- suppositions ------------------------------------------------------------------------------------------------ */

enum { SUPPOSED_MAX = 24 };

/* Runs the reference with this field at its plainest choice, and adds the run. A worker that does not take that leaves it out. */
static enum sf_status suppose(struct sf_framework *f, struct sf_suppositions *supposed, const int64_t *row, int32_t field,
                              const char *folder, struct sf_error *error) {
  struct sf_framework_outcome outcome = {.lack = ""};
  struct sf_supposed_run *run = &supposed->runs[supposed->count];
  char path[SF_FRAMEWORK_PATH];
  int64_t other[SF_SPACE_FIELDS_MAX];
  bool good = false;
  memcpy(other, row, sizeof other);
  other[field] = 0;
  json_t *c = sf_description_case(other, f->description, SF_DESCRIPTION_ALL);
  char *was = sf_description_choice_text(f->description, field, row[field]), *is = sf_description_choice_text(f->description, field, 0);
  enum sf_status status = c != NULL && was != NULL && is != NULL ? SF_OK : SF_ENOMEM;
  snprintf(path, sizeof path, "%.370s/supposed-%d", folder, supposed->count);
  if (status == SF_OK && sf_description_refusal(f->description, c) == NULL)
    status = sf_framework_run_one(f, &good, &outcome, c, "reference", -1, path, error);
  if (status == SF_OK && good && sf_trace_set_open(&run->set, path, NULL) == SF_OK) {
    const char *name = sf_description_field_path(f->description, field);
    snprintf(run->name, sizeof run->name, "%.60s were %.20s: here it is %.20s", name, is, was);
    snprintf(run->without, sizeof run->without, "%.63s", name);
    supposed->count++;
  } else {
    sf_remove_tree(path);
  }
  json_decref(c);
  free(was);
  free(is);
  return status;
}

enum sf_status sf_framework_judge_supposing(struct sf_framework *f, struct sf_framework_outcome *outcome, const json_t *c,
                                            const char *folder, const char *candidate, const struct sf_framework_outcome *before,
                                            struct sf_error *error) {
  struct sf_supposed_run *runs = sf_alloc(SUPPOSED_MAX * sizeof *runs);
  struct sf_suppositions supposed = {.runs = runs};
  struct sf_framework_outcome again = *before;
  char noise[SF_FRAMEWORK_PATH], path[SF_FRAMEWORK_PATH];
  int64_t row[SF_SPACE_FIELDS_MAX];
  bool good = true;
  double margin;
  const int32_t draws = f->draws_made;
  enum sf_status status = runs != NULL ? sf_description_row(row, f->description, c, error) : SF_ENOMEM;
  for (int32_t i = 0; status == SF_OK && i < sf_description_field_count(f->description) && supposed.count < SUPPOSED_MAX; i++)
    if (row[i] > 0 && !sf_description_field_is_layout(f->description, i)) status = suppose(f, &supposed, row, i, folder, error);
  sf_framework_noise_path(noise, sizeof noise, f, f->reference, draws);
  if (status == SF_OK && supposed.count > 0)
    status = sf_framework_judge(&good, &margin, &again, noise, f->reference, candidate, &supposed, error);
  if (status == SF_OK && good && supposed.count > 0) *outcome = again;
  for (int32_t i = 0; i < supposed.count; i++) {
    sf_trace_set_close(&runs[i].set);
    snprintf(path, sizeof path, "%.370s/supposed-%d", folder, i);
    if (!f->options.keep) sf_remove_tree(path);
  }
  sf_free(runs);
  return status;
}

/* --- operations -------------------------------------------------------------------------------------------------- */

/* Runs the case with a request that names the wrong tensor and the folder for the notes. *good: all ranks answered; *report is to be
 * cleared. */
static enum sf_status run_noting(struct sf_framework *f, bool *good, struct sf_worker_report *report,
                                 const struct sf_framework_outcome *outcome, const json_t *c, const char *run, const char *notes,
                                 const char *folder, struct sf_error *error) {
  const bool is_candidate = strcmp(run, "candidate") == 0;
  const int32_t ranks = is_candidate ? sf_description_ranks(f->description, c) : 1;
  json_t *request = sf_framework_request(c, run, -1, ranks, is_candidate ? "" : f->anchors, folder);
  const struct sf_numbers *numbers = &outcome->what.diagnosis.numbers;
  const int32_t rank = outcome->what.rank < 0 && numbers->elements.all > 0 ? numbers->worst_rank : outcome->what.rank;
  json_t *asked = json_pack("{s:s, s:i, s:s}", "tensor", outcome->what.first_id, "rank", (int)rank, "folder", notes);
  memset(report, 0, sizeof *report);
  *good = false;
  if (!request || !asked || json_object_set(request, "operations", asked) != 0) {
    json_decref(request);
    json_decref(asked);
    return SF_ENOMEM;
  }
  json_decref(asked);
  enum sf_status status = sf_framework_make_folder(folder, error);
  if (status != SF_OK) {
    json_decref(request);
    return status;
  }
  status = sf_framework_ask_to_run(f, report, request, ranks, folder, error);
  *good = status == SF_OK && report->end == SF_WORKER_ANSWERED;
  return status;
}

enum sf_status sf_framework_find_operation(struct sf_framework *f, struct sf_framework_outcome *outcome, const json_t *c,
                                           const char *folder, struct sf_error *error) {
  struct sf_worker_report report;
  char notes[SF_FRAMEWORK_PATH], run[SF_FRAMEWORK_PATH];
  bool good = true;
  snprintf(notes, sizeof notes, "%.370s/operations", folder);
  snprintf(run, sizeof run, "%.370s/noting", folder);
  enum sf_status status = sf_framework_make_folder(notes, error);
  if (status == SF_OK) {
    status = run_noting(f, &good, &report, outcome, c, "candidate", notes, run, error);
    sf_worker_report_clear(&report);
  }
  if (status == SF_OK && good) {
    status = run_noting(f, &good, &report, outcome, c, "reference", notes, run, error);
    const char *text = good ? json_string_value(json_object_get(report.value, "operation")) : NULL;
    if (text) snprintf(outcome->what.diagnosis.operation, sizeof outcome->what.diagnosis.operation, "%s", text);
    sf_worker_report_clear(&report);
  }
  sf_remove_tree(run);
  sf_remove_tree(notes);
  /* A folder that cannot be made is no reason to lose the finding. */
  return status == SF_ECANCELLED || status == SF_ENOMEM ? status : SF_OK;
}
