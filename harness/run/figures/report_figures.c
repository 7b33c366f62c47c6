#include "harness/run/figures/report_figures.h"

#include "harness/base/sinks.h"
#include "harness/run/figures/figures.h"
#include "harness/run/process/subject.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A line in place of pictures. */
static void say(struct sf_text *out, const char *format, const char *text) {
  sf_text_append(out, "<p class=\"note\">");
  sf_html_append(out, format, text);
  sf_text_append(out, "</p>\n");
}

/* A case that hangs would take its deadline again, and a flaky one may show anything. */
static bool runs_again(const struct sf_store_finding *finding) {
  static const char *const not_again[] = {"hang/", "flaky/"};
  for (size_t i = 0; i < sizeof not_again / sizeof not_again[0]; i++)
    if (strncmp(finding->signature, not_again[i], strlen(not_again[i])) == 0) return false;
  return true;
}

/* Runs a job's case once more, unless it could not be read (status, error), and adds what it shows. */
static void add_case(struct sf_report_item *item, const struct sf_figures_source *source, struct sf_job *job, struct sf_shrunk_texts shrunk,
                     enum sf_status status, struct sf_error error) {
  static struct sf_outcome outcome;
  struct sf_evidence evidence = {0};
  memset(&outcome, 0, sizeof outcome);
  if (status == SF_OK)
    status = source->show ? source->show(source->context, &evidence, &outcome, job, &error)
                          : sf_case_show(&evidence, &outcome, job, source->pool, &error);
  if (status == SF_OK && outcome.status != SF_OK) {
    error = sf_outcome_error(&outcome);
    status = outcome.status;
  }
  if (status != SF_OK)
    say(&item->figures, "The case could not be run again for pictures: %s", *error.text ? error.text : sf_status_text(status));
  else if (outcome.verdict != SF_VERDICT_FINDING)
    say(&item->figures, "Run again for this page, the case did not fail: %s.", sf_verdict_name(outcome.verdict));
  else
    sf_figures_of_outcome(&item->figures, &job->c, &outcome, &evidence, shrunk);
  sf_evidence_destroy(&evidence);
}

static void add_finding(struct sf_report_item *item, const struct sf_figures_source *source, const struct sf_store_finding *finding) {
  static struct sf_job job;
  struct sf_error error = {SF_OK, ""};
  const char *json = finding->min_json ? finding->min_json : finding->case_json;
  if (!runs_again(finding)) {
    say(&item->figures, "%s", "Hangs and flaky findings are not run again for pictures.");
    return;
  }
  memset(&job, 0, sizeof job);
  snprintf(job.shrink_key, sizeof job.shrink_key, "%s", finding->shrink_key);
  const enum sf_status status = sf_case_from_json(&job.c, json, strlen(json), "", &error);
  add_case(item, source, &job, (struct sf_shrunk_texts){finding->steps, finding->contrast}, status, error);
}

/* Of the corpus: the item's name is the case's file. */
static void add_corpus_case(struct sf_report_item *item, const struct sf_figures_source *source) {
  static struct sf_job job;
  struct sf_error error = {SF_OK, ""};
  memset(&job, 0, sizeof job);
  const enum sf_status status = sf_case_read(&job.c, item->name.data, &error);
  add_case(item, source, &job, (struct sf_shrunk_texts){0}, status, error);
}

/* A case of the corpus that failed, or a finding that the store has. store: NULL, or open. *shown: how many items have pictures so far. */
static enum sf_status add_to_item(struct sf_report_item *item, const struct sf_figures_source *source, struct sf_store *store,
                                  int32_t *shown, struct sf_error *error) {
  const bool of_corpus = strcmp(item->group, "corpus") == 0;
  struct sf_store_finding finding;
  bool found = false;
  enum sf_status status = SF_OK;
  if (item->is_quiet || !item->name.data || !item->next.data) return SF_OK;
  if (store && !of_corpus) status = sf_store_find(store, &finding, &found, item->name.data, error);
  if (status != SF_OK || (!found && (!of_corpus || item->outcome != SF_REPORT_FAILED))) return status;
  if (++*shown > SF_FIGURES_FINDINGS_MAX)
    say(&item->figures, "%s", "There are pictures of the first findings only.");
  else if (found)
    add_finding(item, source, &finding);
  else
    add_corpus_case(item, source);
  return SF_OK;
}

enum sf_status sf_report_add_figures(struct sf_report *report, const struct sf_figures_source *source, struct sf_error *error) {
  const struct sf_store_options options = {.path = source->store_path, .mode = SF_STORE_READ};
  struct sf_store *store = NULL;
  int32_t shown = 0;
  const bool has_store = access(source->store_path, F_OK) == 0; /* a gate without time for fuzzing has none */
  enum sf_status status = has_store ? sf_store_open(&store, &options, error) : SF_OK;
  if (store) status = sf_figures_of_campaign(&report->figures, store, error);
  for (int32_t i = 0; i < report->item_count && status == SF_OK; i++) status = add_to_item(&report->items[i], source, store, &shown, error);
  sf_store_close(store);
  return status;
}
