/* Cross-entropy over logits cut over the vocabulary (Megatron-LM: core/tensor_parallel/cross_entropy.py). */
#ifndef SF_TARGETS_VOCAB_PARALLEL_CROSS_ENTROPY_H
#define SF_TARGETS_VOCAB_PARALLEL_CROSS_ENTROPY_H

#include "targets/builtin/parallel/rank_run.h"

struct sf_vocab_parallel_cross_entropy {
  struct sf_group tp;
  int64_t vocab_first, vocab_count; /* columns held */
  int32_t module;
  bool smoothed;
  float label_share, other_share; /* of the target distribution: of the label beyond, and of every column; 1 and 0 unless smoothed */
  struct sf_shard_map logits_map; /* [T x V/tp] */
  struct sf_shard_map loss_map;   /* [1 x T], the same on every tp rank */
};

/* What one microbatch leaves for its backward: buffers alone. */
struct sf_cross_entropy_acts {
  float *logits, *max, *sum;
};

/* The rank holds logits of vocab_padded / tp words. */
void sf_vocab_parallel_cross_entropy_create(struct sf_vocab_parallel_cross_entropy *ce, struct sf_rank_run *run, const struct sf_group *tp);

/* logits [T x V/tp] are taken. Returns per-token losses [T], fp32, the caller's: log(sum of exp(x - max)) - label_share (x[label] - max) -
 * other_share (sum of x - max), where max, sums and the label's logit are collected over tp in fp32; the last only with label smoothing. */
float *sf_vocab_parallel_cross_entropy_forward(struct sf_rank_run *run, const struct sf_vocab_parallel_cross_entropy *ce,
                                               struct sf_cross_entropy_acts *acts, float *logits, const int32_t *labels);

/* Returns round((softmax - other_share - onehot label_share) weight) of the shard, [T x V/tp], the caller's. */
float *sf_vocab_parallel_cross_entropy_backward(struct sf_rank_run *run, const struct sf_vocab_parallel_cross_entropy *ce,
                                                const struct sf_cross_entropy_acts *acts, const int32_t *labels, const float *weight);

#endif
