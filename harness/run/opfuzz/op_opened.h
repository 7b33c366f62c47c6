/* A file's case on the target that it is to run on: what replay, shrink and the gate do with one. */
#ifndef SF_RUN_OP_OPENED_H
#define SF_RUN_OP_OPENED_H

#include "harness/run/opfuzz/op_worker.h"

/* Defaults of a campaign: deadline of a case, of which a file's case has twice as long; on a GPU, where a process's first case pays for a
 * context and for kernels and libraries that are loaded; elements of the largest case; trials for shrinking one finding. */
enum { SF_OP_DEADLINE_MS = 5000, SF_OP_GPU_DEADLINE_MS = 60000, SF_OP_ELEMENTS = 300000, SF_OP_BUDGET = 20000 };
/* Elements of the largest case that a file may hold. */
enum { SF_OP_ELEMENTS_MOST = 1 << 24 };

/* Of a case on the device: asked, unless it is 0. */
static inline int64_t sf_op_deadline_ms(int32_t device, int64_t asked) {
  return asked ? asked : device == SF_DEVICE_CPU ? SF_OP_DEADLINE_MS : SF_OP_GPU_DEADLINE_MS;
}

struct sf_op_run_options {
  const char *target;                /* in the place of the file's; NULL: the file's */
  int32_t device, gemm;              /* indices of sf_device_names and sf_gemm_names */
  int64_t deadline_ms;               /* 0: twice that of sf_op_deadline_ms */
  const volatile sig_atomic_t *stop; /* of sf_op_pool_options */
};

struct sf_op_opened {
  struct sf_op_file file;
  struct sf_op_target target;
  struct sf_op_pool_options pool;
  struct sf_op_case c;
};

/* Reads the file and makes its target. SF_EINPUT, SF_EUSAGE; as sf_op_target_make and sf_device_choose. Close it also after a failure. */
enum sf_status sf_op_open(struct sf_op_opened *out, const char *path, const struct sf_op_run_options *options,
                          struct sf_error *error) SF_MUST_USE;
void sf_op_close(struct sf_op_opened *opened);

/* Runs the case in a process of its own. measure: as of sf_op_trial_run. SF_ECANCELLED: stopped. */
enum sf_status sf_op_run_opened(struct sf_op_answer *out, const struct sf_op_opened *opened, bool measure,
                                struct sf_error *error) SF_MUST_USE;

const char *sf_op_verdict(const struct sf_op_outcome *outcome); /* "FINDING", "SKIP", "INCONCLUSIVE", "PASS" */
/* Whether the outcome is what the file expects; of a file that expects nothing, whether it passed. */
bool sf_op_as_expected(const struct sf_op_opened *opened, const struct sf_op_case *c, const struct sf_op_outcome *outcome);

/* Whose operations they are: a plugin brings its own. SF_EUSAGE; as sf_device_choose. */
enum sf_status sf_op_pool_device(struct sf_op_pool_options *out, int32_t device, int32_t gemm, const char *target,
                                 struct sf_error *error) SF_MUST_USE;

#endif
