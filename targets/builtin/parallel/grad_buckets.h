/* Gradient buckets: main gradients are reduced over data parallelism bucket by bucket (Megatron-LM:
 * distributed/param_and_grad_buffer.py). With ZeRO a rank ends up with its shard of each bucket: the index-th of group-size equal parts,
 * the bucket padded to a multiple. Stage 1 reduce-scatters the sum over the microbatches. Stage 2 reduce-scatters each microbatch's
 * gradients and keeps their sum as a shard only; they are scaled down by a power of two of at least the group's size before, and back at
 * the end, so that the wire holds numbers of one gradient's size and nothing is lost. */
#ifndef SF_TARGETS_GRAD_BUCKETS_H
#define SF_TARGETS_GRAD_BUCKETS_H

#include "targets/builtin/parallel/parameter.h"

struct sf_grad_bucket {
  float *grads;        /* padded part of params->main_grads; ZeRO-2: of the microbatch at work */
  int32_t chunk;       /* model chunk of its parameters */
  bool expert;         /* of experts, whose gradients are summed over edp */
  bool is_embedding;   /* ZeRO: holds the tied word embedding alone, so that first and last stage cut it alike */
  int64_t count;       /* without the padding */
  int64_t shard_count; /* elements of a shard, padding too */
  int32_t param_count;
  int32_t params_left; /* whose last gradient (ZeRO-2: of the microbatch) is not there yet */
  bool launched;
  sf_request request;
  /* ZeRO */
  float *received;            /* shard, where the reduction puts it */
  float *shard_grads;         /* ZeRO-2: sum of the microbatches so far */
  float *master, *adam_m, *adam_v; /* of the shard (distributed_optimizer.c) */
};

struct sf_grad_buckets {
  struct sf_group group; /* over which gradients are reduced, and states cut with ZeRO */
  struct sf_group edp;   /* the same of experts */
  int64_t zero;          /* stage */
  bool overlap;          /* launch a bucket when it is complete, else at the end (ZeRO-2: and wait for it at once) */
  int32_t count;
  struct sf_grad_bucket *at;
  int64_t elements; /* of all, with the padding */
};

/* The ranks over which a bucket's gradients are reduced and its states cut: dp x cp, of experts edp. */
const struct sf_group *sf_grad_bucket_group(const struct sf_rank_run *run, const struct sf_grad_bucket *bucket);

/* What a shard holds of a parameter: the parameter's elements [first, first + count), at `at` in the bucket's shard. */
struct sf_param_piece {
  int64_t first, count, at;
};
/* Of this rank's shard; may be empty. Without ZeRO, and of a frozen one, all of the parameter. */
struct sf_param_piece sf_grad_buckets_piece(const struct sf_rank_run *run, const struct sf_parameter *param);

/* What the optimizer keeps of a piece: fp32 master weights and Adam's moments, which a frozen parameter lacks. */
struct sf_param_state {
  float *master, *adam_m, *adam_v;
  struct sf_param_piece piece;
};
/* Of this rank's piece of the parameter. */
struct sf_param_state sf_grad_buckets_state(const struct sf_rank_run *run, const struct sf_parameter *param);

/* The ranks that together hold once the main gradients of everything but experts, or of experts (with ZeRO: each shard): for norms and
 * overflows. */
const struct sf_group *sf_grad_buckets_model_group(const struct sf_rank_run *run, bool expert);

/* Cuts the trainable parameters of each model chunk into buckets that close at bucket_elements (0 = one bucket), last parameter first (the
 * order in which backward makes gradients), and allocates main gradients and shards. */
void sf_grad_buckets_build(struct sf_rank_run *run);
/* Clears main gradients and counters: start of a step. */
void sf_grad_buckets_begin(struct sf_rank_run *run);
/* A gradient is about to be added: waits until the bucket's last reduction has let go of it (ZeRO-2). */
void sf_grad_buckets_enter(struct sf_rank_run *run, const struct sf_parameter *param);
/* One gradient has been added. Launches the bucket's reduction if that was its last of the step (ZeRO-2: of the microbatch) and overlap
 * is on. */
void sf_grad_buckets_ready(struct sf_rank_run *run, struct sf_parameter *param);
/* After the last backward: every main gradient is the sum over data parallelism, of experts over edp (fp32 on the wire); with ZeRO on the
 * rank's own shard, elsewhere it means nothing. */
void sf_grad_buckets_finish(struct sf_rank_run *run);

#endif
