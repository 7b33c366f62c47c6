/* report: a page about a case, a finding's folder or a campaign's store. */
#include "harness/run/campaign/signatures.h"
#include "harness/run/commands/command_common.h"
#include "harness/run/commands/commands.h"
#include "harness/run/figures/report_figures.h"
#include "harness/run/support/json.h"

#include "harness/base/alloc.h"
#include "harness/base/sinks.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct report_flags {
  struct sf_common_flags common;
  struct sf_texts inputs;
  const char *page, *findings;
};

static const struct sf_option options[] = {
    {.name = "page",
     .letter = 'o',
     .type = SF_OPTION_TEXT,
     .offset = offsetof(struct report_flags, page),
     .value = "FILE.html",
     .help = "the page to write; default: beside the input, with its name"},
    SF_OPTION_AT(struct report_flags, "findings", TEXT, findings, "DIR",
                 "where the folders of the findings are; default: the folder of the store"),
    SF_CASE_TARGET_OPTIONS(struct report_flags, common),
    SF_BACKEND_OPTIONS(struct report_flags, common),
};

enum input { CASE, STORE };
struct page {
  const struct report_flags *flags;
  enum input input;
  char in[SF_PATH_TEXT], out[SF_PATH_TEXT];
  /* The pool for cases, once one was made. */
  bool has_pool;
  struct sf_pool_options pool;
  struct sf_common_framework framework;
};

/* --- inputs ------------------------------------------------------------------------------------------------------- */

static enum sf_status too_long(const char *path, struct sf_error *error) {
  return sf_error_set(error, SF_EUSAGE, "%.80s..: the path is too long", path);
}

/* "a/b.json" and ".json" give "a/b.html". */
static enum sf_status replace_end(char *out, const char *path, struct sf_error *error) {
  const char *slash = strrchr(path, '/'), *dot = strrchr(path, '.');
  const int stem = (int)(dot && (!slash || dot > slash) ? (size_t)(dot - path) : strlen(path));
  return snprintf(out, SF_PATH_TEXT, "%.*s.html", stem, path) < SF_PATH_TEXT ? SF_OK : too_long(path, error);
}

/* A finding's folder, or one with stores. path: may end in slashes. */
static enum sf_status look_into(struct page *page, const char *path, struct sf_error *error) {
  static const char *const cases[] = {"min.json", "case.json"};
  char folder[SF_PATH_TEXT];
  int length = (int)strlen(path);
  while (length > 1 && path[length - 1] == '/') length--;
  if (snprintf(folder, sizeof folder, "%.*s", length, path) >= (int)sizeof folder) return too_long(path, error);
  if (snprintf(page->out, sizeof page->out, "%s/report.html", folder) >= (int)sizeof page->out) return too_long(folder, error);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    page->input = CASE;
    if (snprintf(page->in, sizeof page->in, "%s/%s", folder, cases[i]) >= (int)sizeof page->in) return too_long(folder, error);
    if (access(page->in, F_OK) == 0) return SF_OK;
  }
  page->input = STORE;
  if (sf_common_newest_store(page->in, sizeof page->in, folder)) return SF_OK;
  return sf_error_set(error, SF_EINPUT,
                      "%s: there is neither a finding (min.json, case.json) nor a campaign (campaign-*.sqlite) in this folder; for traces "
                      "there is shardfuzz check --html",
                      folder);
}

static bool is_database(const char *path) {
  static const char magic[16] = "SQLite format 3";
  char begin[sizeof magic] = "";
  FILE *file = fopen(path, "rb");
  const bool is = file && fread(begin, sizeof begin, 1, file) == 1 && memcmp(begin, magic, sizeof magic) == 0;
  if (file) fclose(file);
  return is;
}

/* Finds out what the argument is, and where the page goes. */
static enum sf_status find_input(struct page *page, struct sf_error *error) {
  const char *path = page->flags->inputs.items[0];
  struct stat info;
  if (stat(path, &info) != 0) return sf_error_set(error, SF_EINPUT, "%s: there is no such file or folder", path);
  enum sf_status status = SF_OK;
  if (S_ISDIR(info.st_mode)) {
    status = look_into(page, path, error);
  } else {
    page->input = is_database(path) ? STORE : CASE;
    status = snprintf(page->in, sizeof page->in, "%s", path) < (int)sizeof page->in ? replace_end(page->out, path, error)
                                                                                    : too_long(path, error);
  }
  if (status == SF_OK && page->flags->page && snprintf(page->out, sizeof page->out, "%s", page->flags->page) >= (int)sizeof page->out)
    status = too_long(page->flags->page, error);
  return status == SF_OK ? sf_output_check(page->out, error) : status;
}

/* --- cases -------------------------------------------------------------------------------------------------------- */

/* A framework's worker is started once; the pool for other cases follows from each case. */
static enum sf_status make_pool(struct page *page, struct sf_case *c, struct sf_error *error) {
  const bool is_framework = sf_case_is_framework(c);
  if (page->has_pool && is_framework && page->pool.framework) return SF_OK;
  if (page->has_pool && is_framework) return sf_error_set(error, SF_EINPUT, "the worker did not start");
  page->has_pool |= is_framework;
  return sf_common_pool_of_case(&page->pool, &page->framework, &page->flags->common, c, page->in, error);
}

static enum sf_status show(void *context, struct sf_evidence *evidence, struct sf_outcome *outcome, struct sf_job *job,
                           struct sf_error *error) {
  struct page *page = context;
  const enum sf_status status = make_pool(page, &job->c, error);
  job->deadline = (double)page->flags->common.deadline_ms / 1000;
  return status == SF_OK ? sf_case_show(evidence, outcome, job, &page->pool, error) : status;
}

static enum sf_status fill_of_case(struct sf_report *report, const struct page *page, const struct sf_case *c,
                                   const struct sf_outcome *outcome, const struct sf_evidence *evidence, struct sf_error *error) {
  struct sf_replay_way way = {0};
  struct sf_bytes steps = {0}, contrast = {0};
  char *text = NULL;
  const bool is_finding = outcome->verdict == SF_VERDICT_FINDING;
  const struct sf_shrunk_texts shrunk = {.steps = sf_finding_read_beside(&steps, page->in, SF_FINDING_STEPS_FILE),
                                         .contrast = sf_finding_read_beside(&contrast, page->in, SF_CONTRAST_FILE)};
  const struct sf_finding_story story = {.contrast = shrunk.contrast};
  if (is_finding && sf_finding_report(&text, c, outcome, &story) != SF_OK) return sf_error_set(error, SF_ENOMEM, "out of memory");
  const enum sf_status status = sf_common_replay_way(&way, &page->flags->common);
  const struct sf_case_told told = {.name = is_finding ? outcome->signature : page->in,
                                    .path = page->in,
                                    .way = &way,
                                    .text = text ? text : outcome->text,
                                    .evidence = evidence,
                                    .shrunk = shrunk};
  sf_case_report(report, c, outcome, &told);
  sf_bytes_destroy(&steps);
  sf_bytes_destroy(&contrast);
  sf_replay_way_clear(&way);
  sf_free(text);
  return status;
}

static enum sf_status report_case(struct sf_report *report, struct page *page, struct sf_error *error) {
  static struct sf_job job;
  static struct sf_outcome outcome;
  struct sf_evidence evidence = {0};
  enum sf_status status = sf_input_status(sf_case_read(&job.c, page->in, error));
  if (status == SF_OK) status = show(page, &evidence, &outcome, &job, error);
  if (status == SF_OK && outcome.status != SF_OK) {
    *error = sf_outcome_error(&outcome);
    status = outcome.status;
  }
  if (status == SF_OK) status = fill_of_case(report, page, &job.c, &outcome, &evidence, error);
  sf_evidence_destroy(&evidence);
  return status;
}

/* --- stores ------------------------------------------------------------------------------------------------------- */

/* What the store tells of its campaign. */
static enum sf_status read_result(struct sf_campaign_result *out, const char *path, struct sf_error *error) {
  const struct sf_store_options store_options = {.path = path, .mode = SF_STORE_READ};
  struct sf_store *store = NULL;
  enum sf_status status = sf_input_status(sf_store_open(&store, &store_options, error));
  if (status != SF_OK) return status;
  memset(out, 0, sizeof *out);
  status = sf_store_summarise(store, &out->summary, error);
  sf_store_seeds(out->seeds, sizeof out->seeds, store);
  out->seed = strtoull(out->seeds, NULL, 10);
  if (strchr(out->seeds, ',') == NULL) *out->seeds = '\0';
  out->seconds = out->summary.seconds;
  out->new_signatures = out->summary.signatures - out->summary.signatures_known;
  sf_store_close(store);
  return status;
}

static enum sf_status report_store(struct sf_report *report, struct page *page, struct sf_error *error) {
  static struct sf_campaign_options used;
  static struct sf_campaign_result result;
  struct sf_signatures signatures = {0};
  struct sf_replay_way way = {0};
  char nothing[480] = "";
  const char *slash = strrchr(page->in, '/');
  memset(&used, 0, sizeof used);
  snprintf(used.store_path, sizeof used.store_path, "%s", page->in);
  if (page->flags->findings)
    snprintf(used.out_dir, sizeof used.out_dir, "%s", page->flags->findings);
  else
    snprintf(used.out_dir, sizeof used.out_dir, "%.*s", slash ? (int)(slash - page->in) : 1, slash ? page->in : ".");
  enum sf_status status = read_result(&result, page->in, error);
  if (status == SF_OK) status = sf_signatures_read(&signatures, &used, error);
  if (status != SF_OK) return status;
  if (sf_campaign_judged_nothing(&result)) sf_campaign_nothing_text(nothing, sizeof nothing, &result);
  status = sf_common_replay_way(&way, &page->flags->common);
  if (status == SF_OK) {
    const struct sf_figures_source source = {.store_path = page->in, .show = show, .context = page};
    sf_campaign_report(report, &result, &signatures, nothing, &way);
    report->title = "shardfuzz report";
    status = sf_report_add_figures(report, &source, error);
  }
  sf_signatures_destroy(&signatures);
  sf_replay_way_clear(&way);
  return status;
}

static int run(void *context) {
  static struct page page;
  struct sf_error error = {SF_OK, ""};
  struct sf_report report = {.title = "shardfuzz report"};
  page = (struct page){.flags = context};
  enum sf_status status = sf_common_outside_mpi(&page.flags->common, &error);
  if (status == SF_OK) status = find_input(&page, &error);
  if (status == SF_OK) status = page.input == STORE ? report_store(&report, &page, &error) : report_case(&report, &page, &error);
  const struct sf_report_paths paths = {.html = page.out};
  if (status == SF_OK) status = sf_report_write(&report, &paths, &error);
  sf_report_destroy(&report);
  if (status != SF_OK) return sf_exit_failure(status, &error);
  const bool json = page.flags->common.json;
  sf_print(sf_people(json), "wrote %s\n", page.out);
  return json ? sf_exit_json(json_pack("{s:o}", "page", sf_json_text(page.out)), 0, 0) : 0;
}

const struct sf_command sf_command_report = {
    .name = "report",
    .summary = "write a page for a browser about a finding or a campaign",
    .arguments = "DIR|STORE|CASE.json",
    .help =
        "Writes one HTML file that needs no network. Of a case, or of a finding's folder: its cause, the wrong tensor, the modules and\n"
        "the ranks. Of a campaign's store: its findings, and what the campaign has tried. The smallest cases run once more for the\n"
        "pictures. Exits with 0 once the page is written, whatever it tells of.",
    SF_OPTIONS_ARE(options),
    SF_ARGUMENTS_ARE(1, 1, struct report_flags, inputs),
    .flags_bytes = sizeof(struct report_flags),
    .set_defaults = sf_common_defaults_of_case,
    .run = run,
};
