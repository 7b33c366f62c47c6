#include "harness/run/campaign/finding_files.h"
#include "harness/run/commands/command_common.h"
#include "harness/run/commands/commands.h"
#include "harness/run/commands/report_json.h"
#include "harness/run/process/subject.h"
#include "harness/run/trial/engine.h"

#include "harness/base/alloc.h"
#include "harness/base/sinks.h"

#include <stdio.h>
#include <string.h>

struct shrink_flags {
  struct sf_common_flags common;
  struct sf_texts files;
  const char *min;
};

static const struct sf_option options[] = {
    {.name = "out",
     .type = SF_OPTION_TEXT,
     .offset = offsetof(struct shrink_flags, min),
     .letter = 'o',
     .value = "MIN.json",
     .help = "write the smallest case that still fails in the same way into this file"},
    SF_NUMBER_AT(struct shrink_flags, "budget", common.shrink_budget, 1, 1000000,
                 "at most this many trials; default 300, for an operation 20000"),
    SF_BACKEND_OPTIONS(struct shrink_flags, common),
    SF_CASE_TARGET_OPTIONS(struct shrink_flags, common),
};

/* A field whose value the generator does not draw can only stay, or get a drawn value. This tells the user which ones stayed. */
static void show_kept(FILE *to, const struct sf_case *min, const struct sf_space *space) {
  const char *paths[SF_SPACE_FIELDS_MAX];
  const int32_t count = *min->fields ? 0 : sf_codec_undrawn(paths, min, space);
  for (int32_t i = 0; i < count; i++) sf_print(to, "%s was kept: the generator does not draw its value\n", paths[i]);
}

static int finish(const struct shrink_flags *flags, const struct sf_space *space, const struct sf_job_result *result) {
  struct sf_error error = {SF_OK, ""};
  FILE *const to = sf_people(flags->common.json);
  char *text = NULL;
  const struct sf_case min = sf_case_expecting(&result->min, &result->min_outcome);
  enum sf_status status = sf_case_write(&min, flags->min, &error);
  struct sf_replay_way way = {0};
  if (status == SF_OK) status = sf_common_replay_way(&way, &flags->common);
  const struct sf_finding_story story = {.replay_path = flags->min, .replay = &way, .shrunk = result};
  if (status == SF_OK) status = sf_finding_report(&text, &min, &result->min_outcome, &story);
  sf_replay_way_clear(&way);
  if (status != SF_OK) return sf_exit_failure(status, &error);
  sf_print_lines(to, text);
  sf_free(text);
  show_kept(to, &result->min, space);
  return flags->common.json ? sf_exit_json(sf_json_of_shrink(result, &min, flags->min), 0, 1) : 1;
}

static int nothing_shrunk(const struct shrink_flags *flags, const char *verdict, int32_t evaluations, int code) {
  return flags->common.json ? sf_exit_json(sf_json_of_no_shrink(verdict, evaluations), 0, code) : code;
}

/* Finds out how the case fails, then shrinks it in a worker. */
static int shrink(const struct sf_case *c, const struct shrink_flags *flags, const struct sf_pool_options *pool) {
  static struct sf_job job;
  static struct sf_job_result result;
  struct sf_error error = {SF_OK, ""};
  enum sf_status status = sf_common_run_one(&job, &result, c, &flags->common, pool, &error);
  if (status == SF_OK && result.outcome.status != SF_OK) {
    error = sf_outcome_error(&result.outcome);
    status = result.outcome.status;
  }
  if (status != SF_OK) return sf_exit_failure(status, &error);
  if (result.outcome.verdict != SF_VERDICT_FINDING) {
    sf_print(sf_people(flags->common.json), "verdict %s: there is nothing to shrink\n", sf_verdict_name(result.outcome.verdict));
    return nothing_shrunk(flags, sf_verdict_name(result.outcome.verdict), 1, 0);
  }
  job.kind = SF_JOB_SHRINK;
  job.budget = sf_common_shrink_budget(&flags->common, sf_subject_of(c));
  job.contrast = SF_CONTRAST_BUDGET;
  job.was_hang = result.outcome.cls == SF_CLASS_HANG;
  memcpy(job.shrink_key, result.outcome.shrink_key, sizeof job.shrink_key);
  status = sf_pool_run_one(pool, &job, &result);
  if (status != SF_OK) return sf_exit_failure(status, NULL);
  if (result.outcome.status != SF_OK) {
    error = sf_outcome_error(&result.outcome);
    return sf_exit_failure(result.outcome.status, &error);
  }
  if (result.end == SF_SHRINK_LOST || result.end == SF_SHRINK_UNCONFIRMED) {
    char why[sizeof error.text];
    sf_finding_shrink_text(why, sizeof why, &result);
    return sf_exit_failure(sf_error_set(&error, SF_EIO, "the case was not shrunk: %s", why + strlen("no: ")), &error);
  }
  if (result.end == SF_SHRINK_FLAKY) {
    sf_print(sf_people(flags->common.json), "the case did not fail in the same way again (flaky); it was not shrunk\n");
    return nothing_shrunk(flags, "flaky", 2, 1);
  }
  return finish(flags, pool->space, &result);
}

static int run(void *context) {
  const struct shrink_flags *flags = context;
  static struct sf_case c;
  static struct sf_space space;
  static struct sf_common_framework framework;
  struct sf_error error = {SF_OK, ""};
  struct sf_pool_options pool;
  if (!flags->min) {
    sf_error_set(&error, SF_EUSAGE, "-o MIN.json is missing: name the file for the smallest case");
    return sf_exit_failure(SF_EUSAGE, &error);
  }
  sf_space_init(&space);
  enum sf_status status = sf_common_outside_mpi(&flags->common, &error);
  if (status == SF_OK) status = sf_input_status(sf_case_read(&c, flags->files.items[0], &error));
  if (status == SF_OK) status = sf_output_check(flags->min, &error);
  if (status == SF_OK) status = sf_common_pool_of_case(&pool, &framework, &flags->common, &c, flags->files.items[0], &error);
  if (status != SF_OK) return sf_exit_failure(status, &error);
  pool.space = &space;
  return shrink(&c, flags, &pool);
}

const struct sf_command sf_command_shrink = {
    .name = "shrink",
    .summary = "find the smallest case that fails in the same way",
    .arguments = "CASE.json",
    .help = "Makes a failing case smaller (ranks, layers, sizes, features) as long as it fails with the same class, kind and module;\n"
            "a case of an operation (shape, formats, strides, values) as long as it fails with the same class in the same operand.",
    SF_OPTIONS_ARE(options),
    SF_ARGUMENTS_ARE(1, 1, struct shrink_flags, files),
    .flags_bytes = sizeof(struct shrink_flags),
    .set_defaults = sf_common_defaults_of_case,
    .run = run,
};
