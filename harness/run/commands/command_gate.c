#include "harness/run/commands/command_common.h"
#include "harness/run/commands/commands.h"
#include "harness/run/commands/report_json.h"
#include "harness/run/figures/report_figures.h"
#include "harness/run/gate/gate.h"

#include "harness/base/hash.h"
#include "harness/base/sinks.h"
#include "harness/base/system/temporary.h"
#include "targets/plugin/plugin_target.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct gate_flags {
  struct sf_common_flags common;
  int64_t cases, time_ms;
  const char *corpus, *base, *framework_base;
  bool allow_empty_corpus;
  struct sf_report_paths reports;
  struct sf_gate_identity identity;
};

static const struct sf_option options[] = {
    SF_OPTION_AT(struct gate_flags, "corpus", TEXT, corpus, "DIR",
                 "first replay the *.json cases of this folder, including cases of operations"),
    SF_OPTION_AT(struct gate_flags, "allow-empty-corpus", FLAG, allow_empty_corpus, NULL,
                 "a corpus folder without a case is no error: there is none yet"),
    SF_OPTION_AT(struct gate_flags, "base", TEXT, base, "BIN|DIR",
                 "shardfuzz of the base revision: a finding that it shows too does not fail the gate"),
    SF_OPTION_AT(struct gate_flags, "framework-base", TEXT, framework_base, "DIR",
                 "the framework's base revision: a finding that it shows too does not fail the gate"),
    SF_OPTION_AT(struct gate_flags, "known", TEXT, common.known, "FILE", "list of known findings"),
    SF_DURATION_AT(struct gate_flags, "time", time_ms,
                   "time for all of it: corpus, fuzzing, confirming and shrinking, the base; default 10m. Exits with 3 when the corpus "
                   "takes longer"),
    SF_NUMBER_AT(struct gate_flags, "cases", cases, 1, INT64_MAX, "stop after this many cases"),
    SF_REPORT_OPTIONS(struct gate_flags, reports) SF_SPACE_OPTIONS(struct gate_flags, common),
    SF_OPTION_AT(struct gate_flags, "plant", TEXTS, common.plants, "ID", "plant a known bug, to see the gate fail"),
    SF_OPTION_AT(struct gate_flags, "out", TEXT, common.out, "DIR", "write findings into this folder"),
    SF_BACKEND_OPTIONS(struct gate_flags, common),
};

/* Without --seed the seed comes from the commit of the working directory; outside git it is 0. seed_from: tells the user where it comes
 * from. */
static void choose_seed(struct gate_flags *flags) {
  struct sf_gate_identity *identity = &flags->identity;
  char line[128] = "";
  snprintf(identity->seed_from, sizeof identity->seed_from, "--seed");
  FILE *git = popen("git rev-parse HEAD 2>/dev/null", "r");
  if (git && !fgets(line, sizeof line, git)) *line = '\0';
  if (git) pclose(git);
  snprintf(identity->commit, sizeof identity->commit, "%.*s", (int)strcspn(line, "\n"), line);
  if (flags->common.seed < 0) {
    flags->common.seed = *line ? (int64_t)(sf_hash_string(0, line) >> 1) : 0;
    if (*line)
      snprintf(identity->seed_from, sizeof identity->seed_from, "from commit %.12s of the working directory", line);
    else
      snprintf(identity->seed_from, sizeof identity->seed_from,
               "the working directory is in no git repository: always the same cases without --seed");
  }
  identity->seed = (uint64_t)flags->common.seed;
}

static void print_item(FILE *to, const struct sf_gate_item *item) {
  static const char indent[] = "               ";
  char line[SF_DIAGNOSIS_LINE_TEXT];
  struct sf_text text = {0};
  sf_line_append(&text, "%-14s %s\n", sf_gate_state_text(item->state), item->name);
  if (item->state == SF_GATE_UNEXPECTED || item->state == SF_GATE_STALE) sf_line_append_all(&text, indent, item->text);
  if (*item->cause && strcmp(item->cause, item->name) != 0) sf_line_append(&text, "%sone cause with %s\n", indent, item->cause);
  sf_diagnosis_line(line, &item->diagnosis);
  if (*line) sf_line_append(&text, "%s%s\n", indent, line);
  if (*item->min_path) {
    sf_text_append(&text, "%s", indent);
    sf_gate_append_replay(&text, item);
    sf_text_append(&text, "\n");
  }
  sf_print_lines(to, text.data);
  sf_text_destroy(&text);
}

static void print_result(const struct sf_gate_result *r, const struct sf_gate_options *used, const char *seed_from, FILE *to) {
  const struct sf_store_summary *s = &r->campaign.summary;
  sf_print(to, "seed: %" PRIu64 " (%s)\n", used->campaign.seed, seed_from);
  sf_print(to, "corpus: %d case%s, %d not as expected, %d not replayed\n", r->corpus_count, sf_plural(r->corpus_count), r->corpus_failed,
           r->corpus_not_run);
  if (r->known_count) sf_print(to, "known: %d of %d entries seen\n", r->known_seen, r->known_count);
  sf_print(to, "fuzzed: %" PRId64 " case%s in %.1f s, %" PRId64 " finding%s, %" PRId64 " inconclusive, %" PRId64 " skipped\n",
           r->campaign.cases_run, sf_plural(r->campaign.cases_run), r->campaign.seconds, s->by_verdict[SF_VERDICT_FINDING],
           sf_plural(s->by_verdict[SF_VERDICT_FINDING]), s->by_verdict[SF_VERDICT_INCONCLUSIVE], s->by_verdict[SF_VERDICT_SKIP]);
  if (*s->skip_reason) sf_print(to, "last skipped: %s\n", s->skip_reason);
  if (*s->inconclusive_reason) sf_print(to, "last inconclusive: %s\n", s->inconclusive_reason);
  for (int32_t i = 0; i < r->item_count; i++)
    if (r->items[i].state != SF_GATE_OK && r->items[i].state != SF_GATE_NOT_RUN) print_item(to, &r->items[i]);
  if (*r->nothing) sf_complain(r->nothing);
  sf_print(to, "gate: %s\n", r->passed ? "passed" : "FAILED");
}

static int tell(const struct gate_flags *flags, const struct sf_gate_options *used, const struct sf_gate_result *result) {
  struct sf_error error = {SF_OK, ""};
  struct sf_report report = {0};
  print_result(result, used, flags->identity.seed_from, sf_people(flags->common.json));
  sf_gate_report(&report, result, &flags->identity);
  const struct sf_figures_source source = {.store_path = used->campaign.store_path, .pool = &used->campaign.pool};
  enum sf_status status = flags->reports.html ? sf_report_add_figures(&report, &source, &error) : SF_OK;
  if (status == SF_OK) status = sf_report_write(&report, &flags->reports, &error);
  sf_report_destroy(&report);
  if (status != SF_OK) return sf_exit_failure(status, &error);
  const int code = result->passed ? 0 : result->failed_count > 0 ? 1 : 3;
  if (!flags->common.json) return code;
  json_t *object = sf_json_of_gate(result);
  json_object_set_new(object, "seed", json_integer((json_int_t)used->campaign.seed));
  json_object_set_new(object, "seed_from", json_string(flags->identity.seed_from));
  return sf_exit_json(object, 0, code);
}

static enum sf_status fill(struct sf_gate_options *out, struct gate_flags *flags, struct sf_error *error) {
  choose_seed(flags);
  enum sf_status status = sf_common_outside_mpi(&flags->common, error);
  if (status == SF_OK) status = sf_report_check(&flags->reports, error);
  const bool is_framework = flags->common.target && sf_framework_is_target(flags->common.target),
             of_operations = flags->common.target && sf_op_target_is_one(flags->common.target);
  if (status == SF_OK && (is_framework ? flags->base : flags->framework_base)) {
    status = sf_error_set(error, SF_EUSAGE, "%s",
                          is_framework ? "--base is for the built-in layers: --framework-base names the base of a framework"
                                       : "--framework-base needs a framework as --target");
  }
  if (status == SF_OK && of_operations && flags->base && sf_plugin_target_path(flags->common.target))
    status = sf_error_set(error, SF_EUSAGE, "--base compares two programs shardfuzz, which would load the same plugin: leave --base out");
  if (status == SF_OK) status = sf_common_campaign(&out->campaign, &flags->common, error);
  if (status == SF_OK) status = sf_campaign_cover(&out->campaign, error);
  if (status != SF_OK) return status;
  out->campaign.seconds = (double)flags->time_ms / 1000;
  if (flags->cases > 0) out->campaign.cases = flags->cases;
  out->campaign.progress = true;
  out->corpus = flags->corpus;
  out->allow_empty_corpus = flags->allow_empty_corpus;
  out->base = (struct sf_gate_base){.program = flags->base,
                                    .framework_path = flags->framework_base,
                                    .launcher = flags->common.launcher,
                                    .target = out->campaign.framework ? flags->common.target : NULL};
  return SF_OK;
}

/* The gate's campaign is not kept: its store lies in a folder of its own. */
static enum sf_status make_store_folder(struct sf_temporary *out, struct sf_error *error) {
  const char *base = getenv("TMPDIR");
  const enum sf_status status = sf_temporary_create(out, base && *base ? base : "/tmp", error);
  if (status == SF_OK) sf_temporary_keep(out);
  return status;
}

static int run(void *context) {
  struct gate_flags *flags = context;
  static struct sf_gate_options used;
  struct sf_gate_result result;
  struct sf_error error = {SF_OK, ""};
  struct sf_temporary folder = {.lock = -1};
  enum sf_status status = fill(&used, flags, &error);
  if (status == SF_OK) status = make_store_folder(&folder, &error);
  if (status != SF_OK) return sf_exit_failure(status, &error);
  snprintf(used.campaign.store_path, sizeof used.campaign.store_path, "%s/store.sqlite", folder.path);
  sf_watch_interrupts();
  status = sf_gate_run(&used, &result, &error);
  const int code = status != SF_OK ? sf_exit_failure(status, &error) : tell(flags, &used, &result);
  sf_temporary_remove(&folder);
  if (status == SF_OK) sf_gate_destroy(&result);
  sf_campaign_options_clear(&used.campaign);
  return code;
}

static void set_defaults(void *context) {
  struct gate_flags *flags = context;
  sf_common_defaults(&flags->common);
  flags->common.seed = -1;
  flags->time_ms = 10 * 60 * 1000;
}

const struct sf_command sf_command_gate = {
    .name = "gate",
    .summary = "replay the corpus and fuzz; fail on what is new",
    .help = "Replays the corpus, then fuzzes until --time is over. Fails (exit 1) when a corpus case is not as it expects, or on a finding "
            "that is\n"
            "neither known nor in the base. The last quarter of the time is for confirming and shrinking; a finding for which it does not\n"
            "suffice counts as it was found. Exits with 3, which is not a pass, when there was no time to replay the whole corpus and "
            "to fuzz, or when\n"
            "the fuzzing could judge nothing; the reports say so. Known findings that no longer show are listed.\n"
            "Cases of operations in the corpus run too; with --target op:NAME or a plugin of operations it fuzzes these, and cases of the "
            "corpus that were\n"
            "found on a plugin run on that one.\n"
            "Without --seed the seed comes from the commit of the working directory (git rev-parse HEAD), so that a rerun of the same "
            "commit is the same.",
    SF_OPTIONS_ARE(options),
    .flags_bytes = sizeof(struct gate_flags),
    .set_defaults = set_defaults,
    .run = run,
};
