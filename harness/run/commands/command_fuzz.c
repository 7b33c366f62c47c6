#include "harness/base/alloc.h"
#include "harness/base/sinks.h"
#include "harness/base/system/launched.h"
#include "harness/run/campaign/job_campaign.h"
#include "harness/run/campaign/mpi_campaign.h"
#include "harness/run/campaign/signatures.h"
#include "harness/run/commands/command_common.h"
#include "harness/run/commands/commands.h"
#include "harness/run/commands/report_json.h"
#include "harness/run/figures/report_figures.h"
#include "harness/run/process/subject.h"
#include "harness/run/support/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct fuzz_flags {
  struct sf_common_flags common;
  int64_t cases, time_ms, stop_after;
  const char *store;
  struct sf_report_paths reports;
  bool resume, dry_run;
  int64_t share, share_count; /* K and N, counted from 1; N = 0: all cases */
};

/* "2/4" */
static enum sf_status store_share(void *target, const char *text, struct sf_error *error) {
  enum { SHARES_MAX = 65536 };
  struct fuzz_flags *flags = target;
  char first[24] = "";
  const char *slash = strchr(text, '/');
  if (slash) snprintf(first, sizeof first, "%.*s", (int)(slash - text), text);
  if (slash && sf_int_from_text(&flags->share_count, slash + 1, 1, SHARES_MAX, "", NULL) == SF_OK &&
      sf_int_from_text(&flags->share, first, 1, flags->share_count, "", NULL) == SF_OK) {
    return SF_OK;
  }
  return sf_error_set(error, SF_EUSAGE, "--share: \"%s\" is not K/N, such as 2/4 for the second of four jobs", text);
}

static const struct sf_option options[] = {
    SF_NUMBER_AT(struct fuzz_flags, "cases", cases, 1, INT64_MAX, "total number of cases, including those already in a resumed store"),
    SF_DURATION_AT(struct fuzz_flags, "time", time_ms,
                   "start cases for this long; shrinking may take half as long again, at most 10 minutes"),
    SF_NUMBER_AT(struct fuzz_flags, "stop-after", stop_after, 1, INT64_MAX,
                 "start no more cases once this run has N new findings; cases that are running still count"),
    SF_SPACE_OPTIONS(struct fuzz_flags, common),
    SF_NUMBER_AT(struct fuzz_flags, "max-elements", common.max_elements, 64, SF_OP_ELEMENTS_MOST,
                 "for operations: most elements of a case, all operands together; default 300000"),
    SF_OPTION_AT(struct fuzz_flags, "plant", TEXTS, common.plants, "ID",
                 "plant a known bug, or several with commas between (shardfuzz list plants)"),
    SF_OPTION_AT(struct fuzz_flags, "known", TEXT, common.known, "FILE", "list of known findings"),
    SF_OPTION_AT(struct fuzz_flags, "store", TEXT, store, "FILE", "the campaign's SQLite file; default: a new one under --out"),
    SF_OPTION_AT(struct fuzz_flags, "resume", FLAG, resume, NULL,
                 "continue the campaign of --store, or start it; without --store, continue the newest one under --out"),
    {.name = "share",
     .type = SF_OPTION_CALL,
     .value = "K/N",
     .call = store_share,
     .help =
         "run the K-th of N shares of the cases, so that N jobs with the same --seed run one campaign; shardfuzz merge joins their stores"},
    SF_OPTION_AT(struct fuzz_flags, "dry-run", FLAG, dry_run, NULL, "print the cases, one line of JSON each, and run none"),
    SF_OPTION_AT(struct fuzz_flags, "out", TEXT, common.out, "DIR", "write findings into this folder"),
    SF_REPORT_OPTIONS(struct fuzz_flags, reports) SF_BACKEND_OPTIONS(struct fuzz_flags, common),
};

static void default_store(char *out, size_t size, const char *folder) {
  for (int i = 1; i < 100000; i++) {
    snprintf(out, size, "%s/campaign-%04d.sqlite", folder, i);
    if (access(out, F_OK) != 0) return;
  }
}

/* Whether ranks are simulated, and a launcher has started several processes or the campaign is that of such a job: then all processes run
 * it together. */
static bool is_spread(const struct fuzz_flags *flags) {
  const bool simulates = flags->common.backend == SF_BACKEND_SIM && !flags->common.launcher;
  const bool goes_on = flags->resume && flags->store != NULL && sf_job_campaign_shares(flags->store) > 0;
  return simulates && flags->share_count == 0 && (sf_launched_size() > 1 || goes_on);
}

static struct sf_job_member launched_job(void) {
  const int32_t processes = sf_launched_size(), process = sf_launched_rank();
  return processes > 0 ? (struct sf_job_member){.process = process, .processes = processes} : (struct sf_job_member){.processes = 1};
}

/* Shares are blocks of indices: a few cases may all lie in another share. */
static enum sf_status choose_share(struct sf_campaign_options *out, const struct fuzz_flags *flags, struct sf_error *error) {
  out->share_block = SF_STORE_SHARE_BLOCK;
  if (is_spread(flags)) {
    const int32_t earlier = flags->resume ? sf_job_campaign_shares(out->store_path) : 0;
    out->share_index = launched_job().process;
    out->share_count = earlier > 0 ? earlier : launched_job().processes;
    out->share_block = sf_job_campaign_block(out);
  }
  if (flags->share_count == 0) return SF_OK;
  out->share_index = (int32_t)flags->share - 1;
  out->share_count = (int32_t)flags->share_count;
  if (out->cases > (flags->share - 1) * SF_STORE_SHARE_BLOCK) return SF_OK;
  return sf_error_set(error, SF_EUSAGE,
                      "--share %" PRId64 "/%" PRId64 " has none of the first %" PRId64
                      " cases: --cases counts those of all shares, which take turns every %d cases",
                      flags->share, flags->share_count, out->cases, SF_STORE_SHARE_BLOCK);
}

static enum sf_status choose_store(struct sf_campaign_options *out, const struct fuzz_flags *flags, struct sf_error *error) {
  char *path = out->store_path;
  const size_t size = sizeof out->store_path;
  if (!flags->store && is_spread(flags)) { /* all of the job must come to the same name */
    snprintf(path, size, "%s/campaign-job.sqlite", out->out_dir);
    return SF_OK;
  }
  if (!flags->store && flags->resume)
    return sf_common_newest_store(path, size, out->out_dir)
               ? SF_OK
               : sf_error_set(error, SF_EUSAGE, "--resume: there is no campaign-*.sqlite in %s; name the store with --store FILE",
                              out->out_dir);
  if (!flags->store)
    default_store(path, size, out->out_dir);
  else if (snprintf(path, size, "%s", flags->store) >= (int)size)
    return sf_error_set(error, SF_EUSAGE, "--store: the path is too long");
  return SF_OK;
}

static enum sf_status fill(struct sf_campaign_options *out, const struct fuzz_flags *flags, struct sf_error *error) {
  if (flags->dry_run && flags->cases == 0) return sf_error_set(error, SF_EUSAGE, "--dry-run needs --cases");
  enum sf_status status = sf_common_campaign(out, &flags->common, error);
  if (status == SF_OK) status = sf_campaign_cover(out, error);
  if (status != SF_OK) return status;
  if (flags->cases > 0) out->cases = flags->cases;
  out->seconds = (double)flags->time_ms / 1000;
  out->stop_after = flags->stop_after;
  out->resume = flags->resume;
  out->progress = true;
  status = choose_store(out, flags, error);
  return status == SF_OK ? choose_share(out, flags, error) : status;
}

/* "1 distinct finding, new:", "3 distinct findings under 5 signatures, 1 new:". */
static void print_distinct(FILE *to, const struct sf_signatures *signatures) {
  const int32_t count = signatures->cause_count, new_count = signatures->new_cause_count;
  sf_print(to, "%d distinct finding%s", count, sf_plural(count));
  if (signatures->count > count) sf_print(to, " under %d signatures", signatures->count);
  sf_print(to, ", ");
  if (new_count == 0)
    sf_print(to, "known:\n");
  else if (new_count < count)
    sf_print(to, "%d new:\n", new_count);
  else
    sf_print(to, count == 2 ? "both new:\n" : count > 2 ? "all new:\n" : "new:\n");
}

static double rate_of(int64_t cases, double seconds) { return seconds > 0 ? (double)cases / seconds : 0; }

/* "30 cases in 12.0 s (2.5/s), 6 of them now in 2.0 s (3.0/s)": time is counted as cases are, where earlier runs noted theirs. */
static void cases_text(char *out, size_t size, const struct sf_campaign_result *r) {
  char all[64] = "", now[64] = "";
  const int64_t cases = r->summary.cases;
  if (isfinite(r->seconds_all)) snprintf(all, sizeof all, " in %.1f s (%.1f/s)", r->seconds_all, rate_of(cases, r->seconds_all));
  if (r->cases_run != cases)
    snprintf(now, sizeof now, ", %" PRId64 " of them now in %.1f s (%.1f/s)", r->cases_run, r->seconds, rate_of(r->cases_run, r->seconds));
  snprintf(out, size, "%" PRId64 " case%s%s%s", cases, sf_plural(cases), all, now);
}

static void print_summary(const struct sf_campaign_options *used, const struct sf_campaign_result *r,
                          const struct sf_signatures *signatures, FILE *to) {
  struct sf_text text = {0};
  const struct sf_store_summary *s = &r->summary;
  char cases[160];
  cases_text(cases, sizeof cases, r);
  sf_print(to, "%s: %" PRId64 " passed, %" PRId64 " finding%s, %" PRId64 " inconclusive, %" PRId64 " skipped\n", cases,
           s->by_verdict[SF_VERDICT_PASS], s->by_verdict[SF_VERDICT_FINDING], sf_plural(s->by_verdict[SF_VERDICT_FINDING]),
           s->by_verdict[SF_VERDICT_INCONCLUSIVE], s->by_verdict[SF_VERDICT_SKIP]);
  if (*s->skip_reason) sf_print(to, "last skipped: %s\n", s->skip_reason);
  if (*s->inconclusive_reason) sf_print(to, "last inconclusive: %s\n", s->inconclusive_reason);
  if (s->checked + s->unchecked) {
    const struct sf_subject *subject = used->pool.operations ? &sf_subject_operation : &sf_subject_layers;
    sf_print(to, "%s judged: %" PRId64 " (%.2f %%)\n", subject->noun, s->checked,
             100.0 * (double)s->checked / (double)(s->checked + s->unchecked));
  }
  if (r->cover.pairs) {
    sf_print(to, "pairs of settings tried: %.1f %% of %" PRId64 "%s%s\n", 100.0 * (double)r->cover.pairs_run / (double)r->cover.pairs,
             r->cover.pairs, *r->not_covered ? "; not yet run together, for example: " : "", r->not_covered);
  }
  if (s->signatures) {
    print_distinct(to, signatures);
    sf_signatures_text(&text, signatures);
    sf_print_lines(to, text.failed ? "  (out of memory)\n" : text.data);
    sf_text_destroy(&text);
  }
  if (r->interrupted) {
    struct sf_text store = {0};
    sf_shell_append(&store, *used->job_path ? used->job_path : used->store_path);
    sf_print(to, "interrupted; go on with --store %s --resume\n", store.data ? store.data : "FILE");
    sf_text_destroy(&store);
  }
  if (r->waiting) {
    sf_print(to, "%" PRId64 " finding%s not confirmed yet, the first in case %" PRId64 ": --resume runs %s again\n", r->waiting,
             r->waiting == 1 ? " is" : "s are", r->waiting_first, r->waiting == 1 ? "its case" : "their cases");
  }
  sf_print(to, "store %s, seed %" PRIu64 "\n", used->store_path, r->seed);
}

static enum sf_status write_reports(const struct sf_campaign_options *used, const struct sf_campaign_result *result,
                                    const struct sf_signatures *signatures, const char *nothing, const struct sf_report_paths *paths,
                                    struct sf_error *error) {
  struct sf_report report = {0};
  sf_campaign_report(&report, result, signatures, nothing, &used->replay);
  const struct sf_figures_source source = {.store_path = used->store_path, .pool = &used->pool};
  enum sf_status status = paths->html ? sf_report_add_figures(&report, &source, error) : SF_OK;
  if (status == SF_OK) status = sf_report_write(&report, paths, error);
  sf_report_destroy(&report);
  return status;
}

static int finish(const struct sf_campaign_options *used, const struct sf_campaign_result *result, const struct fuzz_flags *flags) {
  const bool json = flags->common.json;
  char nothing[480] = "";
  struct sf_signatures signatures = {0};
  struct sf_error error = {SF_OK, ""};
  enum sf_status status = sf_signatures_read(&signatures, used, &error);
  if (status != SF_OK) return sf_exit_failure(status, &error);
  print_summary(used, result, &signatures, sf_people(json));
  if (sf_campaign_judged_nothing(result)) sf_campaign_nothing_text(nothing, sizeof nothing, result);
  if (*nothing) sf_complain(nothing);
  status = write_reports(used, result, &signatures, nothing, &flags->reports, &error);
  const int code = status != SF_OK ? sf_exit_failure(status, &error) : *nothing ? 3 : result->new_signatures ? 1 : 0;
  json_t *object = json ? sf_json_of_campaign(result, &signatures) : NULL;
  sf_signatures_destroy(&signatures);
  return json ? sf_exit_json(object, 0, code) : code;
}

static int print_cases(const struct sf_campaign_options *used) {
  struct sf_error error = {SF_OK, ""};
  enum sf_status status = SF_OK;
  for (int64_t i = 0; status == SF_OK && i < used->cases && !sf_interrupted; i++) {
    struct sf_case c;
    if (used->share_count && i / used->share_block % used->share_count != used->share_index) continue;
    status = sf_campaign_case(&c, used, i, &error);
    json_t *json = status == SF_OK ? sf_json_of_case(&c) : NULL;
    struct sf_text line = {0};
    if (status == SF_OK) status = sf_json_append(&line, json, JSON_PRESERVE_ORDER);
    if (status == SF_OK) sf_print(stdout, "%s\n", line.data);
    sf_text_destroy(&line);
    json_decref(json);
  }
  return status == SF_OK ? 0 : sf_exit_failure(status, &error);
}

static int run_in_mpi(struct sf_campaign_options *used, const struct fuzz_flags *flags) {
  struct sf_error error = {SF_OK, ""};
  struct sf_campaign_result result;
  int code = 0;
  struct sf_mpi *mpi = sf_common_mpi_create(&used->pool, &code);
  if (!mpi) return code;
  const enum sf_status status = sf_campaign_mpi_run(mpi, used, &result, &error);
  const bool root = sf_mpi_rank(mpi) == 0;
  sf_mpi_destroy(mpi);
  if (!root) return 0; /* rank 0 speaks for the job */
  return status != SF_OK ? sf_exit_failure(status, &error) : finish(used, &result, flags);
}

static int run_spread(struct sf_campaign_options *used, const struct fuzz_flags *flags) {
  struct sf_job_member job = launched_job();
  struct sf_error error = {SF_OK, ""};
  struct sf_campaign_result result;
  char line[200];
  const int32_t shares = used->share_count;
  const enum sf_status status = sf_job_campaign_run(used, &job, &result, &error);
  if (status != SF_OK) return sf_exit_failure(status, &error);
  if (job.process > 0) return 0; /* the first one speaks for the job */
  snprintf(line, sizeof line, "%d of the job's %d shares of the cases did not end%s", job.lost, shares,
           used->seconds > 0 ? "" : "; the first process has run what they left");
  if (job.lost > 0) sf_complain(line);
  return finish(used, &result, flags);
}

static int run(void *context) {
  const struct fuzz_flags *flags = context;
  static struct sf_campaign_options used;
  struct sf_error error = {SF_OK, ""};
  struct sf_campaign_result result;
  enum sf_status status = sf_common_inside_mpi(&flags->common, &error);
  if (status == SF_OK) status = sf_report_check(&flags->reports, &error);
  if (status == SF_OK) status = fill(&used, flags, &error);
  if (status != SF_OK) return sf_exit_failure(status, &error);
  sf_watch_interrupts();
  if (flags->dry_run) {
    const int code = print_cases(&used);
    sf_campaign_options_clear(&used);
    return code;
  }
  used.inside_mpi = sf_common_is_rank(&flags->common);
  if (used.inside_mpi) return run_in_mpi(&used, flags);
  int code;
  if (is_spread(flags)) {
    code = run_spread(&used, flags);
  } else {
    status = sf_campaign_run(&used, &result, &error);
    code = status != SF_OK ? sf_exit_failure(status, &error) : finish(&used, &result, flags);
  }
  sf_campaign_options_clear(&used);
  return code;
}

const struct sf_command sf_command_fuzz = {
    .name = "fuzz",
    .summary = "run a campaign of random cases",
    .help =
        "Draws random models and layouts, runs each on its ranks and on one device, compares every tensor, and shrinks failing cases.\n"
        "For operations (--target op:NAME, plugins of operations) it draws cases of one operation each, runs each twice and compares it "
        "with a\n"
        "reference in fp64. Without --cases and --time it goes on until it is interrupted.",
    SF_OPTIONS_ARE(options),
    .flags_bytes = sizeof(struct fuzz_flags),
    .set_defaults = sf_common_defaults,
    .run = run,
};
