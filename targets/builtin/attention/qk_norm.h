/* Norms of each query head and each key head over head_dim, before the rotation (Megatron-LM: core/transformer/attention.py, q_layernorm
 * and k_layernorm). One weight serves all heads, replicated over tp: a rank sees its own heads only (and, where several share a key head,
 * its own queries' part of that head's gradient), so that the gradients are partial sums over tp until the end of the step. */
#ifndef SF_TARGETS_QK_NORM_H
#define SF_TARGETS_QK_NORM_H

#include "targets/builtin/parallel/rank_run.h"

enum { SF_QK_QUERIES, SF_QK_KEYS, SF_QK_PARTS };

struct sf_plugged;

struct sf_qk_norm {
  struct sf_parameter *weight[SF_QK_PARTS], *bias[SF_QK_PARTS]; /* [d]; bias: LayerNorm only, else NULL */
  int64_t groups, queries_per_group, head_dim;                  /* held by this rank */
  enum sf_norm norm;
  int32_t module;
  struct sf_plugged *plugged; /* NULL: computed here; else there are no stats. Made by who has the maps */
};

/* groups, queries_per_group: key/value heads of this rank, and query heads of each. */
void sf_qk_norm_create(struct sf_qk_norm *layer, struct sf_rank_run *run, int32_t index, int64_t groups, int64_t queries_per_group,
                       const struct sf_group *tp);

/* Shape: x [T x groups (queries_per_group + 2) d] (borrowed) -> the same (the caller's): queries and keys round(norm(.)), values copied.
 * *stats: mean and rstd of every head, for the backward. map: of x, for the trace point. */
float *sf_qk_norm_forward(struct sf_rank_run *run, const struct sf_qk_norm *layer, const float *x, const struct sf_shard_map *map,
                          float **stats);

/* grad, x: as the forward's output and input; grad is taken, x and stats borrowed. Returns the gradient of x, the caller's; adds
 * the weights' and biases'. */
float *sf_qk_norm_backward(struct sf_rank_run *run, const struct sf_qk_norm *layer, float *grad, const float *x,
                           const struct sf_shard_map *map, const float *stats);

#endif
