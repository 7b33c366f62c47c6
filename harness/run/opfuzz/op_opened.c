#include "harness/run/opfuzz/op_opened.h"

#include "harness/run/trial/device_choice.h"

#include <string.h>

enum sf_status sf_op_pool_device(struct sf_op_pool_options *out, int32_t device, int32_t gemm, const char *target, struct sf_error *error) {
  if (device != SF_DEVICE_CPU && strncmp(target, "op:", 3) != 0)
    return sf_error_set(error, SF_EUSAGE, "--device is of op: targets, a plugin has its own");
  out->device = (enum sf_device_kind)device;
  return sf_device_choose(&out->gemm, NULL, device, gemm, error);
}

enum sf_status sf_op_open(struct sf_op_opened *out, const char *path, const struct sf_op_run_options *options, struct sf_error *error) {
  memset(out, 0, sizeof *out);
  enum sf_status status = sf_op_file_read(&out->file, path, error);
  if (status != SF_OK) return status;
  const char *target = options->target ? options->target : out->file.target;
  out->pool =
      (struct sf_op_pool_options){.target = &out->target,
                                  .deadline_ms = options->deadline_ms ? options->deadline_ms : 2 * sf_op_deadline_ms(options->device, 0),
                                  .stop = options->stop};
  if (!sf_op_target_is_one(target)) return sf_error_set(error, SF_EINPUT, "%s: target: op:NAME or plugin:LIB.so", path);
  status = sf_op_pool_device(&out->pool, options->device, options->gemm, target, error);
  if (status == SF_OK) status = sf_op_target_make(&out->target, target, SF_OP_ELEMENTS_MOST, error);
  return status == SF_OK ? sf_op_file_case(&out->c, &out->file, &out->target, path, error) : status;
}

void sf_op_close(struct sf_op_opened *opened) { sf_op_file_destroy(&opened->file); }

enum sf_status sf_op_run_opened(struct sf_op_answer *out, const struct sf_op_opened *opened, bool measure, struct sf_error *error) {
  const struct sf_op_job job = {.one = opened->c, .measure = measure};
  struct sf_op_worker *worker = NULL;
  enum sf_status status = sf_op_worker_create(&worker, &opened->pool);
  if (status == SF_OK) status = sf_op_worker_run(worker, &job, out, error);
  sf_op_worker_destroy(worker);
  return status;
}

const char *sf_op_verdict(const struct sf_op_outcome *outcome) {
  return sf_op_is_finding((enum sf_op_class)outcome->cls) ? "FINDING"
         : outcome->cls == SF_OP_SKIPPED                  ? "SKIP"
         : outcome->cls == SF_OP_INCONCLUSIVE             ? "INCONCLUSIVE"
                                                          : "PASS";
}

bool sf_op_as_expected(const struct sf_op_opened *opened, const struct sf_op_case *c, const struct sf_op_outcome *outcome) {
  const struct sf_op_file *file = &opened->file;
  const char *seen = sf_op_verdict(outcome);
  char signature[128];
  if (strcmp(seen, *file->verdict ? file->verdict : "PASS") != 0) return false;
  if (!*file->signature) return true;
  sf_op_signature(signature, sizeof signature, sf_op_of(&opened->target, c), outcome);
  return strcmp(signature, file->signature) == 0;
}
