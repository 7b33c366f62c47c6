/* Gradient buckets: main gradients are reduced over data parallelism bucket by bucket (Megatron-LM: distributed/param_and_grad_buffer.py).
 */
#ifndef SF_TARGETS_GRAD_BUCKETS_H
#define SF_TARGETS_GRAD_BUCKETS_H

#include "targets/parameter.h"

struct sf_grad_bucket {
  float *grads; /* contiguous part of the main gradients */
  int32_t chunk; /* model chunk of its parameters */
  int64_t count;
  int32_t param_count;
  int32_t params_left; /* whose last gradient of the last microbatch is not there yet */
  bool launched;
  sf_request request;
};

struct sf_grad_buckets {
  struct sf_group dp;
  bool overlap; /* launch a bucket when it is complete, else all of them at the end */
  int32_t count;
  struct sf_grad_bucket *at;
};

/* Cuts the main gradients of each model chunk into buckets that close at bucket_elements (0 = one bucket). */
void sf_grad_buckets_build(struct sf_rank_run *run);
/* Clears main gradients and counters: start of a step. */
void sf_grad_buckets_begin(struct sf_rank_run *run);
/* One gradient of the last microbatch has been added. Launches the bucket's reduction if that was its last and overlap is on. */
void sf_grad_buckets_ready(struct sf_rank_run *run, struct sf_parameter *param);
/* After the last backward: every main gradient is the sum over data parallelism (fp32 on the wire). */
void sf_grad_buckets_finish(struct sf_rank_run *run);

#endif
