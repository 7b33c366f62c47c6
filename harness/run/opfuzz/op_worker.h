/* A process that runs cases of operations, so that one which crashes or hangs costs that process and nothing else. */
#ifndef SF_RUN_OP_WORKER_H
#define SF_RUN_OP_WORKER_H

#include "harness/run/opfuzz/op_target.h"

#include <signal.h>

struct sf_op_pool_options {
  const struct sf_op_target *target;
  enum sf_device_kind device;
  enum sf_cpu_gemm gemm;
  uint64_t seed;
  int64_t deadline_ms; /* of one case */
  const volatile sig_atomic_t *stop; /* NULL; or, once it is not zero: no case begins, and what runs is given a second */
};

/* Cases first .. first + count - 1 of the campaign, up to the first finding; or, with count 0, `one`. */
struct sf_op_job {
  int64_t first, count;
  bool measure;
  struct sf_op_case one;
};
struct sf_op_answer {
  int64_t done, skipped, inconclusive; /* cases run, the finding's included */
  int64_t judged, elements;
  int64_t index;         /* of the finding; in the campaign */
  bool given_up;         /* stopped before the job was done: there is no outcome, and counts are of the cases that ended */
  bool unfinished; /* the same of a process that cases before had left too little time: the rest is to be sent again, to a fresh one */
  struct sf_op_case c;   /* the case of the outcome */
  struct sf_op_outcome outcome; /* of the finding, or of the last case */
};

struct sf_op_worker;
/* SF_ENOMEM, SF_EIO. */
enum sf_status sf_op_worker_create(struct sf_op_worker **out, const struct sf_op_pool_options *options) SF_MUST_USE;
void sf_op_worker_destroy(struct sf_op_worker *worker); /* ends its process */

/* Hands out a job; the worker must be idle. */
enum sf_status sf_op_worker_send(struct sf_op_worker *worker, const struct sf_op_job *job, struct sf_error *error) SF_MUST_USE;
/* Waits up to timeout_ms for any of the workers to be done, to end or to pass its deadline. *which: -1 when none has. A worker that ended
 * or was killed answers for its process (crash, hang) and has a new one at its next job. SF_ERANK: a process could not start its work. */
enum sf_status sf_op_workers_wait(struct sf_op_worker **workers, int32_t count, int32_t timeout_ms, int32_t *which,
                                  struct sf_op_answer *answer, struct sf_error *error) SF_MUST_USE;
bool sf_op_worker_is_stopped(const struct sf_op_worker *worker); /* what the options' `stop` says */
/* Both for a single worker. SF_ECANCELLED: given up. */
enum sf_status sf_op_worker_run(struct sf_op_worker *worker, const struct sf_op_job *job, struct sf_op_answer *answer,
                                struct sf_error *error) SF_MUST_USE;

#endif
