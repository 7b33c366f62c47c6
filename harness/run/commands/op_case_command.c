/* What is done with a file that has a case of an operation: replay, shrink. */
#include "harness/base/sinks.h"
#include "harness/run/commands/commands.h"
#include "harness/run/commands/op_command_shared.h"
#include "harness/run/opfuzz/case/op_operands.h"
#include "harness/run/opfuzz/op_opened.h"
#include "harness/run/opfuzz/op_shrink.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

bool sf_op_is_case_file(const char *path) { return sf_op_file_is_one(path); }

static enum sf_status check_flags(const struct sf_common_flags *flags, struct sf_error *error) {
  const char *other = flags->backend != SF_BACKEND_SIM ? "--backend"
                      : flags->launcher                ? "--launcher"
                      : flags->framework_path          ? "--framework-path"
                      : flags->max_memory_mib          ? "--max-memory"
                                                       : NULL;
  if (other) return sf_error_set(error, SF_EUSAGE, "%s is not for cases of operations", other);
  if (!flags->target || sf_op_target_is_one(flags->target)) return SF_OK;
  return sf_error_set(error, SF_EUSAGE, "--target %.200s: a case of an operation runs on op:NAME or plugin:LIB.so", flags->target);
}

static enum sf_status open_file(struct sf_op_opened *out, const char *path, const struct sf_common_flags *flags, struct sf_error *error) {
  const struct sf_op_run_options options = {
      .target = flags->target, .device = flags->device, .gemm = flags->gemm, .deadline_ms = flags->deadline_ms};
  memset(out, 0, sizeof *out);
  const enum sf_status status = check_flags(flags, error);
  return status == SF_OK ? sf_op_open(out, path, &options, error) : status;
}

static void print_report(FILE *to, const struct sf_op_target *target, const struct sf_op_case *c, const struct sf_op_outcome *outcome,
                         const char *replay_path, const struct sf_common_flags *flags) {
  struct sf_text text = {0}, options = {0};
  sf_common_replay_options(&options, flags);
  sf_op_report(&text, target, c, outcome, replay_path, options.data);
  sf_print_lines(to, text.data);
  sf_text_destroy(&options);
  sf_text_destroy(&text);
}

/* --- replay ------------------------------------------------------------------------------------------------------------------ */

static int report(const struct sf_op_opened *opened, const struct sf_op_answer *answer, const struct sf_common_flags *flags) {
  const bool found = sf_op_is_finding((enum sf_op_class)answer->outcome.cls), json = flags->json;
  const struct sf_op_file *file = &opened->file;
  char signature[128] = "";
  if (found) sf_op_signature(signature, sizeof signature, sf_op_of(&opened->target, &answer->c), &answer->outcome);
  print_report(sf_people(json), &opened->target, &answer->c, &answer->outcome, NULL, flags);
  const bool expected = sf_op_as_expected(opened, &answer->c, &answer->outcome);
  if (*file->verdict)
    sf_print(sf_people(json), "expected     %s%s%s: %s\n", file->verdict, *file->signature ? " " : "", file->signature,
             expected ? "yes" : "NO");
  const int code = found ? 1 : 0;
  if (!json) return code;
  struct sf_json_out *out = sf_json_out_create();
  sf_json_out_text(out, "verdict", sf_op_verdict(&answer->outcome));
  sf_json_out_text(out, "signature", found ? signature : NULL);
  if (*file->verdict) sf_json_out_bool(out, "as_expected", expected);
  sf_op_json_case(out, &opened->target, &answer->c);
  sf_op_json_error(out, &answer->outcome);
  return sf_op_json_print(out, code);
}

static enum sf_status write_operands(const struct sf_op_opened *opened, const char *folder, struct sf_error *error) {
  static struct sf_op_operands values;
  enum sf_status status = sf_op_operands_create(&values, &opened->target, &opened->c);
  if (status == SF_OK) status = sf_op_operands_write(&values, &opened->target, folder, error);
  sf_op_operands_destroy(&values);
  return status;
}

int sf_op_replay(const char *path, const struct sf_common_flags *flags, const char *trace) {
  static struct sf_op_opened opened;
  struct sf_error error = {SF_OK, ""};
  struct sf_op_answer answer;
  enum sf_status status = open_file(&opened, path, flags, &error);
  if (status == SF_OK && trace) status = write_operands(&opened, trace, &error);
  if (status == SF_OK) status = sf_op_run_opened(&answer, &opened, true, &error);
  const int code = status != SF_OK ? sf_exit_failure(status, &error) : report(&opened, &answer, flags);
  sf_op_close(&opened);
  return code;
}

/* --- shrink ------------------------------------------------------------------------------------------------------------------ */

static int shrink_json(const struct sf_op_opened *opened, const char *verdict, const char *signature, const char *min,
                       const struct sf_op_shrunk *shrunk, int code) {
  struct sf_json_out *out = sf_json_out_create();
  sf_json_out_text(out, "verdict", verdict);
  sf_json_out_text(out, "signature", signature);
  sf_json_out_text(out, "min", min);
  sf_json_out_int(out, "evaluations", shrunk->trials);
  sf_json_out_bool(out, "minimal", shrunk->minimal);
  if (min) sf_op_json_case(out, &opened->target, &shrunk->c);
  return sf_op_json_print(out, code);
}

static int write_min(const struct sf_op_opened *opened, const struct sf_op_shrunk *shrunk, const char *min,
                     const struct sf_common_flags *flags) {
  const bool json = flags->json;
  struct sf_error error = {SF_OK, ""};
  struct sf_text text = {0};
  char signature[128];
  sf_op_signature(signature, sizeof signature, sf_op_of(&opened->target, &shrunk->c), &shrunk->outcome);
  enum sf_status status = sf_op_case_to_json(&text, &opened->target, &shrunk->c, signature);
  if (status == SF_OK) status = sf_bytes_write_file(min, text.data, text.length, &error);
  sf_text_destroy(&text);
  if (status != SF_OK) return sf_exit_failure(status, &error);
  print_report(sf_people(json), &opened->target, &shrunk->c, &shrunk->outcome, min, flags);
  sf_print(sf_people(json), "%" PRId64 " trials%s\n", shrunk->trials,
           shrunk->minimal ? "; no single step makes it smaller" : "; the budget ran out before it was minimal");
  return json ? shrink_json(opened, "FINDING", signature, min, shrunk, 1) : 1;
}

/* Finds out how the case fails, then shrinks it. */
static int shrink(const struct sf_op_opened *opened, struct sf_op_worker *worker, const char *min, const struct sf_common_flags *flags) {
  static struct sf_op_shrunk shrunk;
  struct sf_error error = {SF_OK, ""};
  struct sf_op_answer answer;
  const struct sf_op_job job = {.one = opened->c};
  const int64_t budget = flags->shrink_budget ? flags->shrink_budget : SF_OP_BUDGET;
  enum sf_status status = sf_op_worker_run(worker, &job, &answer, &error);
  if (status != SF_OK) return sf_exit_failure(status, &error);
  if (!sf_op_is_finding((enum sf_op_class)answer.outcome.cls)) {
    const char *verdict = sf_op_verdict(&answer.outcome);
    sf_print(sf_people(flags->json), "verdict %s: there is nothing to shrink\n", verdict);
    return flags->json ? shrink_json(opened, verdict, "", NULL, &(struct sf_op_shrunk){.trials = 1}, 0) : 0;
  }
  status = sf_op_shrink(&shrunk, worker, &opened->target, &opened->c, &answer.outcome, budget, &error);
  if (status != SF_OK) return sf_exit_failure(status, &error);
  if (shrunk.again) return write_min(opened, &shrunk, min, flags);
  sf_print(sf_people(flags->json), "the case did not fail in the same way again (flaky); it was not shrunk\n");
  return flags->json ? shrink_json(opened, "flaky", "", NULL, &(struct sf_op_shrunk){.trials = 2}, 1) : 1;
}

int sf_op_shrink_file(const char *path, const char *min, const struct sf_common_flags *flags) {
  static struct sf_op_opened opened;
  struct sf_error error = {SF_OK, ""};
  struct sf_op_worker *worker = NULL;
  enum sf_status status = open_file(&opened, path, flags, &error);
  if (status == SF_OK) status = sf_output_check(min, &error);
  if (status == SF_OK) status = sf_op_worker_create(&worker, &opened.pool);
  const int code = status != SF_OK ? sf_exit_failure(status, &error) : shrink(&opened, worker, min, flags);
  sf_op_worker_destroy(worker);
  sf_op_close(&opened);
  return code;
}
