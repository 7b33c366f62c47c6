#include "harness/run/opfuzz/op_gate.h"

#include "harness/base/sinks.h"
#include "harness/base/system/clock.h"
#include "harness/base/utf8.h"

#include <stdio.h>
#include <string.h>

static enum sf_status open_one(struct sf_op_opened *out, const char *path, const struct sf_op_gate_options *options,
                               struct sf_error *error) {
  struct sf_op_file file;
  struct sf_op_run_options run = options->run;
  enum sf_status status = sf_op_file_read(&file, path, error);
  memset(out, 0, sizeof *out);
  if (status != SF_OK) return status == SF_EIO ? SF_EINPUT : status;
  if (strncmp(file.target, "op:", 3) == 0) run.target = NULL;
  else run.device = SF_DEVICE_CPU, run.gemm = 0; /* a plugin brings its own */
  sf_op_file_destroy(&file);
  return sf_op_open(out, path, &run, error);
}

enum sf_status sf_op_gate_check(const char *path, const struct sf_op_gate_options *options, struct sf_error *error) {
  static struct sf_op_opened opened;
  const enum sf_status status = open_one(&opened, path, options, error);
  sf_op_close(&opened);
  return status;
}

static void tell(struct sf_op_gate_answer *out, const struct sf_op_opened *opened, const struct sf_op_answer *answer) {
  const struct sf_op_file *file = &opened->file;
  const bool found = sf_op_is_finding((enum sf_op_class)answer->outcome.cls);
  struct sf_text text = {0};
  sf_line_append(&text, "expected %s%s%s, saw %s%s%s%s", *file->verdict ? file->verdict : "PASS", *file->signature ? " " : "",
                 file->signature, sf_op_verdict(&answer->outcome), found ? " " : "", out->seen, found ? ":\n" : "");
  if (found) sf_op_report(&text, &opened->target, &answer->c, &answer->outcome, NULL, NULL);
  if (text.data) snprintf(out->text, sizeof out->text, "%.*s", (int)sf_utf8_cut(text.data, sizeof out->text - 1), text.data);
  sf_text_destroy(&text);
  out->is_gone = *opened->target.path && answer->outcome.cls == SF_OP_PASSED && strcmp(file->verdict, "FINDING") == 0;
}

enum sf_status sf_op_gate_replay(struct sf_op_gate_answer *out, const char *path, const struct sf_op_gate_options *options,
                                 struct sf_error *error) {
  static struct sf_op_opened opened;
  struct sf_op_answer answer;
  const double start = sf_clock_seconds();
  memset(out, 0, sizeof *out);
  enum sf_status status = open_one(&opened, path, options, error);
  if (status == SF_OK) status = sf_op_run_opened(&answer, &opened, false, error);
  if (status == SF_OK) {
    snprintf(out->expected, sizeof out->expected, "%s", opened.file.signature);
    if (sf_op_is_finding((enum sf_op_class)answer.outcome.cls)) {
      sf_op_signature(out->seen, sizeof out->seen, sf_op_of(&opened.target, &answer.c), &answer.outcome);
    }
    out->as_expected = sf_op_as_expected(&opened, &answer.c, &answer.outcome);
    if (!out->as_expected) tell(out, &opened, &answer);
  }
  out->seconds = sf_clock_seconds() - start;
  sf_op_close(&opened);
  return status;
}
