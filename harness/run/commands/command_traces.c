/* check, noise and anchors: traces of any framework. */
#include "harness/run/campaign/finding_files.h"
#include "harness/run/commands/check_report.h"
#include "harness/run/commands/command_common.h"
#include "harness/run/commands/commands.h"
#include "harness/run/figures/figures.h"
#include "harness/run/support/json.h"

#include "harness/base/alloc.h"
#include "harness/base/sinks.h"
#include "harness/check/whole.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

enum { WIDENING_TEXT = 64, CHECK_DIGITS = 12 };

struct check_flags {
  struct sf_texts traces;
  const char *noise;
  struct sf_report_paths reports;
  bool table, json;
};

static const struct sf_option check_options[] = {
    SF_OPTION_AT(struct check_flags, "noise", TEXT, noise, "FILE", "noise levels, instead of noise.safetensors in REF"),
    SF_REPORT_OPTIONS(struct check_flags, reports)
        SF_OPTION_AT(struct check_flags, "table", FLAG, table, NULL, "print every tensor's error against its noise level"),
    SF_OPTION_AT(struct check_flags, "json", FLAG, json, NULL, "print one JSON object as the last line of stdout"),
};

struct anchors_flags {
  struct sf_texts traces;
};

struct noise_flags {
  struct sf_texts traces;
  const char *out;
};

static const struct sf_option noise_options[] = {
    {.name = "out",
     .letter = 'o',
     .type = SF_OPTION_TEXT,
     .offset = offsetof(struct noise_flags, out),
     .value = "FILE",
     .help = "instead of noise.safetensors in REF"},
};

/* A trace holds one file open per rank. */
static void allow_many_files(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

static enum sf_status noise_path(char *out, const char *given, const char *reference, struct sf_error *error) {
  const int length = given ? snprintf(out, SF_PATH_TEXT, "%s", given) : snprintf(out, SF_PATH_TEXT, "%s/noise.safetensors", reference);
  return length < SF_PATH_TEXT ? SF_OK : sf_error_set(error, SF_EUSAGE, "%.80s..: the path is too long", out);
}

static enum sf_status open_reference(struct sf_trace_set *out, const char *path, struct sf_error *error) {
  enum sf_status status = sf_input_status(sf_trace_set_open(out, path, error));
  return status == SF_OK ? sf_reference_check(out, error) : status;
}

/* A remark about noise levels that were measured with few perturbed runs. */
static const char *widening_text(char out[WIDENING_TEXT], double widening) {
  *out = '\0';
  if (widening != 1) snprintf(out, WIDENING_TEXT, ", widened %.3g times since they are few", widening);
  return out;
}

/* --- check ------------------------------------------------------------------------------------------------------- */

struct judging {
  const struct check_flags *flags;
  struct sf_trace_set reference;
  struct sf_noise_file noise;
  json_t *json; /* one object for each candidate */
  struct sf_report report;
  bool found;
};

/* figures: whether the item gets pictures. */
static enum sf_status add_item(struct sf_report *report, const struct sf_check_report *seen, const struct sf_trace_set *candidate,
                               const char *path, const char *text, bool figures) {
  static const struct sf_diagnosis none = {.text = ""};
  const enum sf_report_outcome outcome = seen->verdict == SF_VERDICT_PASS      ? SF_REPORT_PASSED
                                         : seen->verdict == SF_VERDICT_FINDING ? SF_REPORT_FAILED
                                                                               : SF_REPORT_ERROR;
  struct sf_report_item *item = sf_report_add(report, "check", sf_verdict_name(seen->verdict), outcome);
  sf_text_append(&item->name, "%s", path);
  sf_text_append(&item->text, "%s", text);
  sf_finding_message(&item->message, NULL, text, &none);
  sf_text_append(&item->next, "%d of %d tensors judged", seen->judged, seen->judged + seen->not_judged);
  return figures ? sf_figures_of_check(&item->figures, seen, candidate) : SF_OK;
}

static enum sf_status judge(struct judging *judging, const char *path, struct sf_error *error) {
  struct sf_trace_set candidate = {0};
  struct sf_check_report report = {0};
  enum sf_status status = sf_input_status(sf_trace_set_open(&candidate, path, error));
  if (status == SF_OK) status = sf_input_status(sf_check_run(&report, &judging->reference, &judging->noise, &candidate, NULL, error));
  if (status == SF_OK) {
    if (judging->flags->table) sf_check_table(stdout, &report);
    struct sf_text text = {0};
    sf_check_append(&text, &report, &candidate);
    sf_print_lines(sf_people(judging->flags->json), text.data);
    status = add_item(&judging->report, &report, &candidate, path, text.data ? text.data : "", judging->flags->reports.html != NULL);
    sf_text_destroy(&text);
    if (judging->flags->json && json_array_append_new(judging->json, sf_json_of_check(&report, &candidate)) != 0) status = SF_ENOMEM;
    judging->found |= report.verdict == SF_VERDICT_FINDING;
  }
  sf_check_report_destroy(&report);
  sf_trace_set_close(&candidate);
  return status;
}

static json_t *json_of_all(const struct judging *judging) {
  return json_pack("{s:o, s:I, s:o, s:O, s:s}", "reference", sf_json_text(judging->reference.path), "draws",
                   (json_int_t)judging->noise.draws, "widening", sf_json_real(judging->noise.widening), "candidates", judging->json,
                   "verdict", sf_verdict_name(judging->found ? SF_VERDICT_FINDING : SF_VERDICT_PASS));
}

static int check(void *context) {
  const struct check_flags *flags = context;
  struct judging judging = {.flags = flags, .json = json_array(), .report = {.title = "shardfuzz check"}};
  struct sf_error error = {SF_OK, ""};
  char path[SF_PATH_TEXT], text[WIDENING_TEXT];
  allow_many_files();
  enum sf_status status = sf_report_check(&flags->reports, &error);
  if (status == SF_OK) status = open_reference(&judging.reference, flags->traces.items[0], &error);
  if (status == SF_OK) status = noise_path(path, flags->noise, flags->traces.items[0], &error);
  if (status == SF_OK) status = sf_input_status(sf_noise_open(&judging.noise, path, &judging.reference, &error));
  if (status == SF_OK)
    sf_print(sf_people(flags->json), "reference    %s (%d tensors, noise levels of %lld draws%s)\n", judging.reference.path,
             judging.reference.count, (long long)judging.noise.draws, widening_text(text, judging.noise.widening));
  for (int32_t i = 1; status == SF_OK && i < flags->traces.count; i++) status = judge(&judging, flags->traces.items[i], &error);
  judging.report.passed = status == SF_OK && !judging.found;
  if (status == SF_OK) status = sf_report_write(&judging.report, &flags->reports, &error);
  int code = status != SF_OK ? sf_exit_failure(status, &error) : judging.found;
  if (status == SF_OK && flags->json) code = sf_exit_json(json_of_all(&judging), JSON_REAL_PRECISION(CHECK_DIGITS), code);
  sf_report_destroy(&judging.report);
  json_decref(judging.json);
  sf_noise_close(&judging.noise);
  sf_trace_set_close(&judging.reference);
  return code;
}

const struct sf_command sf_command_check = {
    .name = "check",
    .summary = "judge traces of any framework by a reference's",
    .arguments = "REF CAND...",
    .help =
        "Judges traces of any framework by the trace of one device. Each is a folder with one safetensors file per rank, in the format of\n"
        "targets/trace_format.md; REF also has the noise levels that shardfuzz noise makes. Exits 0 when nothing was found, 1 on a "
        "finding.",
    SF_OPTIONS_ARE(check_options),
    SF_ARGUMENTS_ARE(2, 100000, struct check_flags, traces),
    .flags_bytes = sizeof(struct check_flags),
    .run = check,
};

/* --- noise ------------------------------------------------------------------------------------------------------- */

static int noise(void *context) {
  const struct noise_flags *flags = context;
  struct sf_error error = {SF_OK, ""};
  struct sf_trace_set reference = {0}, *draws = NULL;
  char path[SF_PATH_TEXT], text[WIDENING_TEXT];
  const int32_t draw_count = flags->traces.count - 1;
  allow_many_files();
  enum sf_status status = noise_path(path, flags->out, flags->traces.items[0], &error);
  if (status == SF_OK) status = open_reference(&reference, flags->traces.items[0], &error);
  if (status == SF_OK) status = sf_output_check(path, &error);
  draws = sf_alloc((size_t)draw_count * sizeof *draws);
  if (status == SF_OK && !draws) status = sf_error_set(&error, SF_ENOMEM, "out of memory");
  for (int32_t i = 0; status == SF_OK && i < draw_count; i++)
    status = sf_input_status(sf_trace_set_open(&draws[i], flags->traces.items[1 + i], &error));
  const struct sf_noise_draws all = {.sets = draws, .count = draw_count, .distinct_min = draw_count};
  if (status == SF_OK) status = sf_noise_make(path, &reference, &all, &error);
  if (status == SF_OK)
    sf_print(stdout, "%s: noise levels of %d tensors from %d draws%s\n", path, reference.count, draw_count,
             widening_text(text, sf_draws_widening(draw_count)));
  for (int32_t i = 0; draws && i < draw_count; i++) sf_trace_set_close(&draws[i]);
  sf_free(draws);
  sf_trace_set_close(&reference);
  return status != SF_OK ? sf_exit_failure(status, &error) : 0;
}

const struct sf_command sf_command_noise = {
    .name = "noise",
    .summary = "measure a reference's noise levels from perturbed runs",
    .arguments = "REF DRAW...",
    .help =
        "Measures how far rounding alone moves each tensor of REF, from perturbed runs of it, and writes REF/noise.safetensors\n"
        "for shardfuzz check. Nine draws or more give the bounds of the method; fewer give wider ones, because the largest of a\n"
        "few distances is too small by chance.",
    SF_OPTIONS_ARE(noise_options),
    SF_ARGUMENTS_ARE(2, 100000, struct noise_flags, traces),
    .flags_bytes = sizeof(struct noise_flags),
    .run = noise,
};

/* --- anchors ----------------------------------------------------------------------------------------------------- */

static int anchors(void *context) {
  const struct anchors_flags *flags = context;
  const char *folder = flags->traces.items[1];
  struct sf_error error = {SF_OK, ""};
  struct sf_trace_set candidate = {0};
  allow_many_files();
  enum sf_status status = sf_input_status(sf_trace_set_open(&candidate, flags->traces.items[0], &error));
  if (status == SF_OK) status = sf_whole_write(folder, &candidate, &error);
  if (status == SF_OK) sf_print(stdout, "%s: the tensors of %s, each of them whole\n", folder, candidate.path);
  sf_trace_set_close(&candidate);
  return status != SF_OK ? sf_exit_failure(status, &error) : 0;
}

const struct sf_command sf_command_anchors = {
    .name = "anchors",
    .summary = "merge a candidate's tensors, so that a reference can be given them",
    .arguments = "CAND FOLDER",
    .help =
        "Merges the shards of CAND, a trace of several ranks, and writes each tensor whole into FOLDER, as a trace of one rank.\n"
        "FOLDER must exist. A reference that is given these tensors is compared with CAND module by module, so that much smaller\n"
        "errors show than between two whole runs (harness/docs/tolerance.md).",
    SF_ARGUMENTS_ARE(2, 2, struct anchors_flags, traces),
    .flags_bytes = sizeof(struct anchors_flags),
    .run = anchors,
};
