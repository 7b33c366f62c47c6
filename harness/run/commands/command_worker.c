#include "harness/base/alloc.h"
#include "harness/base/reals.h"
#include "harness/base/sinks.h"
#include "harness/base/system/directories.h"
#include "harness/run/commands/command_common.h"
#include "harness/run/commands/commands.h"
#include "harness/run/commands/report_json.h"
#include "harness/run/framework/framework_case.h"
#include "harness/run/support/json.h"
#include "harness/run/trial/outcome.h"
#include "harness/worker/shell.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { RECORD_DIGITS = 12 };

struct worker_flags {
  struct sf_texts arguments;
  const char *launcher, *memory, *traces, *record;
  int64_t start_ms, deadline_ms, draws;
  bool describe, json;
};

static const struct sf_option options[] = {
    SF_OPTION_AT(struct worker_flags, "launcher", TEXT, launcher, "CMD",
                 "command that starts {n} ranks; default: 'mpirun --oversubscribe -n {n}'"),
    SF_DURATION_AT(struct worker_flags, "start", start_ms, "give up if not all ranks have connected within this time; default: 60s"),
    SF_DURATION_AT(struct worker_flags, "deadline", deadline_ms,
                   "report a hang when a rank is silent for this long, or for ten times as long if it gives signs of life; default: 60s"),
    SF_NUMBER_AT(struct worker_flags, "draws", draws, 1, 64, "perturbed runs of each reference; default: what the worker asks for"),
    SF_OPTION_AT(struct worker_flags, "memory", TEXT, memory, "DIR",
                 "folder for traces while they are judged; default: /dev/shm, or /tmp where that is small"),
    SF_OPTION_AT(struct worker_flags, "traces", TEXT, traces, "DIR", "keep all traces in this folder"),
    SF_OPTION_AT(struct worker_flags, "record", TEXT, record, "FILE", "append one JSON line for each case: the case, its verdict and why"),
    SF_OPTION_AT(struct worker_flags, "describe", FLAG, describe, NULL, "print the worker's description of itself, and run nothing"),
    SF_OPTION_AT(struct worker_flags, "json", FLAG, json, NULL, "print one JSON object as the last line of stdout"),
};

struct session {
  const struct worker_flags *flags;
  struct sf_framework *framework;
  FILE *record;
  int64_t cases, counts[SF_VERDICT_COUNT];
  char reason[SF_FRAMEWORK_TEXT]; /* of the last case that was not judged; one line */
  double seconds;
};

/* --- reports ---------------------------------------------------------------------------------------------------- */

static bool has_class(const struct sf_framework_outcome *outcome) { return outcome->verdict == SF_VERDICT_FINDING || *outcome->lack; }

static json_t *json_of_outcome(const struct sf_framework_outcome *outcome) {
  return json_pack("{s:s, s:s, s:o, s:i, s:o, s:o, s:o, s:o, s:I, s:I, s:o}", "verdict", sf_verdict_name(outcome->verdict), "class",
                   has_class(outcome) ? sf_framework_word(outcome) : "", "run", sf_json_text(outcome->run), "rank", outcome->what.rank,
                   "first", sf_json_text(outcome->what.first_id), "reason", sf_json_text(outcome->what.text), "diagnosis",
                   sf_json_diagnosis(&outcome->what.diagnosis), "output", sf_json_text(outcome->output), "judged",
                   (json_int_t)outcome->judged, "not_judged", (json_int_t)outcome->not_judged, "seconds", sf_json_real(outcome->seconds));
}

/* {"case": .., "verdict": .., ..}, flushed: a campaign that is killed keeps what it has seen. */
static enum sf_status record_case(struct session *s, const json_t *c, const struct sf_framework_outcome *outcome, struct sf_error *error) {
  struct sf_text line = {0}, text = {0};
  if (!s->record) return SF_OK;
  json_t *seen = json_of_outcome(outcome);
  enum sf_status status = sf_json_append(&line, seen, JSON_COMPACT | JSON_REAL_PRECISION(RECORD_DIGITS));
  if (status == SF_OK) status = sf_json_append(&text, c, JSON_COMPACT);
  if (status == SF_OK) {
    sf_reals_shorten(text.data);
    sf_print(s->record, "{\"case\": %s, %s\n", text.data, line.data + 1);
    if (ferror(s->record) || fflush(s->record) != 0) status = sf_error_set(error, SF_EIO, "%s: %s", s->flags->record, strerror(errno));
  }
  json_decref(seen);
  sf_text_destroy(&text);
  sf_text_destroy(&line);
  return status;
}

/* Prints the output of the ranks with a mark on each line, so that it is not taken for our own. */
static void print_output(FILE *to, const char *output) {
  struct sf_text text = {0};
  sf_line_append_all(&text, SF_SAID_PREFIX, output);
  sf_print_lines(to, text.data);
  sf_text_destroy(&text);
}

static void print_outcome(const struct session *s, const struct sf_framework_outcome *outcome) {
  FILE *const to = sf_people(s->flags->json);
  char diagnosis[SF_DIAGNOSIS_LINE_TEXT];
  struct sf_text line = {0};
  sf_line_append(&line, "case %" PRId64 "  %s", s->cases, sf_verdict_name(outcome->verdict));
  if (has_class(outcome)) sf_line_append(&line, "  %s", sf_framework_word(outcome));
  if (*outcome->run) sf_line_append(&line, "  in the %s", outcome->run);
  if (*outcome->what.first_id) sf_line_append(&line, "  %s", outcome->what.first_id);
  if (*outcome->what.text) sf_line_append(&line, "  %s", outcome->what.text);
  sf_diagnosis_line(diagnosis, &outcome->what.diagnosis);
  if (*diagnosis) sf_line_append(&line, "; %s", diagnosis);
  if (outcome->judged + outcome->not_judged)
    sf_line_append(&line, "  (%" PRId64 " tensors judged, %" PRId64 " not)", outcome->judged, outcome->not_judged);
  sf_line_append(&line, "\n");
  sf_print_lines(to, line.data);
  sf_text_destroy(&line);
  print_output(to, outcome->output);
  fflush(to);
}

/* One line that says that nothing was judged, with the reason of the last case. */
static void nothing_text(struct sf_text *out, const struct session *s) {
  sf_text_append(out, "nothing was judged: %" PRId64 " inconclusive, %" PRId64 " skipped", s->counts[SF_VERDICT_INCONCLUSIVE],
                 s->counts[SF_VERDICT_SKIP]);
  if (!*s->reason) return;
  sf_text_append(out, " (last: ");
  sf_line_append(out, "%s)", s->reason);
}

static json_t *json_of_session(const struct session *s, const char *nothing) {
  return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:o*}", "target", sf_description_name(sf_framework_description(s->framework)),
                   "cases", (json_int_t)s->cases, "passed", (json_int_t)s->counts[SF_VERDICT_PASS], "findings",
                   (json_int_t)s->counts[SF_VERDICT_FINDING], "inconclusive", (json_int_t)s->counts[SF_VERDICT_INCONCLUSIVE], "skipped",
                   (json_int_t)s->counts[SF_VERDICT_SKIP], "ended_early", (json_int_t)sf_framework_restarts(s->framework), "seconds",
                   s->seconds, "reason", nothing ? json_string(nothing) : NULL);
}

static int report(const struct session *s) {
  FILE *const to = sf_people(s->flags->json);
  struct sf_text nothing = {0};
  const bool judged_nothing = s->cases > 0 && s->counts[SF_VERDICT_PASS] + s->counts[SF_VERDICT_FINDING] == 0;
  if (judged_nothing) nothing_text(&nothing, s);
  int code = judged_nothing ? 3 : s->counts[SF_VERDICT_FINDING] > 0 ? 1 : 0;
  sf_print(to,
           "%" PRId64 " case%s in %.1f s (%.1f/s): %" PRId64 " passed, %" PRId64 " finding%s, %" PRId64 " inconclusive, %" PRId64
           " skipped; %" PRId64 " set%s ended early\n",
           s->cases, sf_plural(s->cases), s->seconds, s->seconds > 0 ? (double)s->cases / s->seconds : 0, s->counts[SF_VERDICT_PASS],
           s->counts[SF_VERDICT_FINDING], sf_plural(s->counts[SF_VERDICT_FINDING]), s->counts[SF_VERDICT_INCONCLUSIVE],
           s->counts[SF_VERDICT_SKIP], sf_framework_restarts(s->framework), sf_plural(sf_framework_restarts(s->framework)));
  if (judged_nothing) sf_complain(nothing.data ? nothing.data : "out of memory");
  if (s->flags->json) code = sf_exit_json(json_of_session(s, nothing.data), 0, code);
  sf_text_destroy(&nothing);
  return code;
}

/* --- cases ------------------------------------------------------------------------------------------------------ */

static enum sf_status run_case(struct session *s, const json_t *c, struct sf_error *error) {
  struct sf_framework_outcome outcome;
  enum sf_status status = sf_framework_run(s->framework, &outcome, c, error);
  if (status != SF_OK) return status;
  s->counts[outcome.verdict]++;
  if (outcome.verdict == SF_VERDICT_SKIP || outcome.verdict == SF_VERDICT_INCONCLUSIVE)
    memcpy(s->reason, outcome.what.text, sizeof s->reason);
  s->seconds += outcome.seconds;
  status = record_case(s, c, &outcome, error);
  print_outcome(s, &outcome);
  s->cases++;
  if (status == SF_OK && sf_framework_is_exhausted(s->framework))
    return sf_error_set(error, SF_EIO, "the ranks of three cases in a row did not start; no more cases are run");
  return status;
}

/* A case in the worker's own words, or as a campaign saves and lists it, where those stand under "framework". */
static enum sf_status complete_case(json_t **out, const struct sf_description *description, const json_t *value, struct sf_error *error) {
  struct sf_case saved;
  if (!json_is_object(json_object_get(value, "framework")) || !json_object_get(value, "schema"))
    return sf_description_complete(out, description, value, error);
  char *text = json_dumps(value, 0);
  enum sf_status status = text ? sf_case_from_json(&saved, text, strlen(text), "a saved case", error) : SF_ENOMEM;
  free(text);
  if (status == SF_OK) status = sf_framework_case_complete(out, description, &saved, error);
  return status;
}

/* Cases stand one after the other, with white space between them. Fills array. */
static enum sf_status read_cases(json_t *array, const struct session *s, FILE *file, const char *name, struct sf_error *error) {
  json_error_t wrong;
  for (int64_t number = 0;; number++) {
    int c;
    while ((c = getc(file)) == ' ' || c == '\n' || c == '\t' || c == '\r') continue;
    if (c == EOF) return ferror(file) ? sf_error_set(error, SF_EIO, "%s: %s", name, strerror(errno)) : SF_OK;
    ungetc(c, file);
    struct sf_error detail = {SF_OK, ""};
    json_t *value = json_loadf(file, JSON_REJECT_DUPLICATES | JSON_DISABLE_EOF_CHECK, &wrong), *complete = NULL;
    if (!value) return sf_error_set(error, SF_EINPUT, "%s: case %" PRId64 ": %s", name, number, wrong.text);
    const enum sf_status status = complete_case(&complete, sf_framework_description(s->framework), value, &detail);
    json_decref(value);
    if (status != SF_OK)
      return sf_error_set(error, status, "%s: case %" PRId64 ": %s", name, number, *detail.text ? detail.text : sf_status_text(status));
    if (json_array_append_new(array, complete) != 0) return SF_ENOMEM;
  }
}

/* Reads and checks all cases before the first one runs. */
static enum sf_status read_all(json_t *array, const struct session *s, struct sf_error *error) {
  const struct sf_texts *files = &s->flags->arguments;
  if (files->count == 1) return read_cases(array, s, stdin, "stdin", error);
  for (int32_t i = 1; i < files->count; i++) {
    FILE *file = fopen(files->items[i], "r");
    if (!file) return sf_error_set(error, SF_EINPUT, "%s: %s", files->items[i], strerror(errno));
    const enum sf_status status = read_cases(array, s, file, files->items[i], error);
    fclose(file);
    if (status != SF_OK) return status;
  }
  return SF_OK;
}

static enum sf_status run_cases(struct session *s, struct sf_error *error) {
  json_t *cases = json_array(), *c;
  size_t i;
  enum sf_status status = cases ? read_all(cases, s, error) : SF_ENOMEM;
  if (status == SF_OK && s->flags->record && !(s->record = fopen(s->flags->record, "ae"))) {
    status = sf_error_set(error, SF_EUSAGE, "%s: %s", s->flags->record, strerror(errno));
  }
  json_array_foreach(cases, i, c) {
    if (status == SF_OK) status = run_case(s, c, error);
  }
  json_decref(cases);
  return status;
}

static enum sf_status open_framework(struct session *s, struct sf_error *error) {
  const struct worker_flags *flags = s->flags;
  const struct sf_framework_options framework_options = {.command = flags->arguments.items[0],
                                                         .launcher = flags->launcher ? flags->launcher : sf_shell_launcher_default,
                                                         .may_fork = !flags->launcher,
                                                         .ranks_max = 2 * SF_WORKER_RANKS_MAX,
                                                         .start_seconds = (double)flags->start_ms / 1000,
                                                         .silent_seconds = (double)flags->deadline_ms / 1000,
                                                         .draws = (int32_t)flags->draws,
                                                         .memory = flags->memory,
                                                         .keep = flags->traces,
                                                         .stop = &sf_interrupted};
  struct sf_worker_report ended;
  enum sf_status status = sf_shell_launcher_check(framework_options.launcher, error);
  if (status == SF_OK) status = sf_output_check(flags->record, error);
  if (status == SF_OK && flags->traces) status = sf_make_directories(flags->traces, error);
  if (status != SF_OK) return status;
  status = sf_framework_create(&s->framework, &ended, &framework_options, error);
  if (status != SF_OK) print_output(stderr, ended.output);
  sf_worker_report_clear(&ended);
  return status;
}

static int run(void *context) {
  const struct worker_flags *flags = context;
  sf_watch_interrupts();
  struct session s = {.flags = flags};
  struct sf_error error = {SF_OK, ""};
  enum sf_status status = open_framework(&s, &error);
  if (status == SF_OK && flags->describe) {
    struct sf_text text = {0};
    status = sf_json_append(&text, sf_framework_described(s.framework), JSON_INDENT(2));
    sf_text_append(&text, "\n");
    if (status == SF_OK) sf_print_lines(stdout, text.data);
    sf_text_destroy(&text);
    sf_framework_destroy(s.framework);
    return status == SF_OK ? 0 : sf_exit_failure(status, NULL);
  }
  if (status == SF_OK) status = run_cases(&s, &error);
  const bool cancelled = status == SF_ECANCELLED;
  int code = s.framework && (status == SF_OK || cancelled || s.cases) ? report(&s) : 0;
  if (status != SF_OK && !cancelled) code = sf_exit_failure(status, &error);
  if (s.record) fclose(s.record);
  sf_framework_destroy(s.framework);
  return code;
}

static void set_defaults(void *context) {
  struct worker_flags *flags = context;
  flags->start_ms = flags->deadline_ms = 60000;
}

const struct sf_command sf_command_worker = {
    .name = "worker",
    .summary = "run cases of a framework that a worker drives",
    .arguments = "CMD [CASES.jsonl...]",
    .help = "Runs cases of a framework that CMD drives (targets/worker.md): reference and perturbed runs on one rank, the candidate on as "
            "many as\n"
            "the case says. Reads cases as JSON objects, one after the other, from the files or stdin: in the worker's own fields, or as\n"
            "saved by a campaign or listed by fuzz --dry-run. Prints a line for each case.",
    SF_OPTIONS_ARE(options),
    SF_ARGUMENTS_ARE(1, 1000, struct worker_flags, arguments),
    .flags_bytes = sizeof(struct worker_flags),
    .set_defaults = set_defaults,
    .run = run,
};
