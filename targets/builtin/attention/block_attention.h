/* Causal attention of a rank's queries over keys and values that come in blocks, in any order (Dao et al. 2022, arXiv 2205.14135 for the
 * merged softmax statistics; Liu et al. 2023, arXiv 2310.01889 for blocks that travel). What a query sees is decided by global positions.
 *
 * Rounding points are those of the whole softmax: the keys' blocks come first and give scores, row maxima and sums in fp32; then the
 * values' blocks, with P = round(exp(S - max) / sum) and the context summed in fp32. What is summed over blocks is rounded by the caller,
 * once. */
#ifndef SF_TARGETS_BLOCK_ATTENTION_H
#define SF_TARGETS_BLOCK_ATTENTION_H

#include "targets/builtin/parallel/rank_run.h"

struct sf_block_attention {
  int64_t groups, queries, head_dim; /* key/value heads held, query heads of each */
  int64_t batch, seq;
  struct sf_dim_map positions; /* global positions of the queries, in their order */
  int64_t rows;                /* how many */
  int64_t group_width;         /* columns of a group where the queries lie, which come first in it: fused (queries + 2) head_dim */
  bool sees_all;               /* every query sees every key; else those up to its own position */
  int64_t window;              /* model.window */
  const float *sinks;          /* [groups * queries] logits; NULL without */
  const int32_t *documents;    /* sf_documents */
  bool documents_apart;        /* all queries and keys are here: each product is of one document, so that an infinity stays in its own */
};

/* Keys (or values) of some positions: those of token row t (position in the block * batch + sequence) and group g begin at data + t *
 * row_stride + g * group_stride. grad: their gradient, fp32, laid out alike, added to; NULL when none is wanted. */
struct sf_key_block {
  struct sf_dim_map positions; /* global */
  const float *data;
  float *grad;
  int64_t row_stride, group_stride;
};

int64_t sf_block_attention_heads(const struct sf_block_attention *a); /* batch * query heads */
/* Copies positions; borrows data and grad. */
struct sf_key_block sf_key_block_at(const struct sf_dim_map *positions, const float *data, float *grad, int64_t row_stride,
                                    int64_t group_stride);

/* Shape: qkv [rows batch x groups group_width]; scores [heads][rows x seq], columns are global positions; max, sum, sink_probs
 * [heads][rows]. max, sum: of what came so far; sf_block_attention_begin makes them those of no key, or of the sink alone. */
void sf_block_attention_begin(const struct sf_block_attention *a, float *max, float *sum);
/* Scores of the block's columns = q k^T / sqrt(d), fp32. Adds those of the keys that each query sees to max and sum. */
void sf_block_attention_scores(struct sf_rank_run *run, const struct sf_block_attention *a, float *scores, float *max, float *sum,
                               const float *qkv, const struct sf_key_block *keys);
/* After all keys: probability of the sink, fp32. */
void sf_block_attention_sink_probs(struct sf_rank_run *run, const struct sf_block_attention *a, float *sink_probs, const float *max,
                                   const float *sum);
/* In place: scores of the block's columns become P. context [rows batch x query heads head_dim]: set by the first block, added to by the
 * others in fp32, rounded with the last. */
void sf_block_attention_context(struct sf_rank_run *run, const struct sf_block_attention *a, float *context, float *probs, const float *max,
                                const float *sum, const struct sf_key_block *values, bool first, bool last);

/* dp of the block's columns = g v^T; values->grad += P^T g. g: gradient of the context. */
void sf_block_attention_score_grads(struct sf_rank_run *run, const struct sf_block_attention *a, float *dp, const float *probs,
                                    const float *g, const struct sf_key_block *values);
/* After all values: dS = round(P (dP - rowsum(P dP))), in place. With sinks their gradients [groups * queries] are added to, fp32. */
void sf_block_attention_softmax_grads(struct sf_rank_run *run, const struct sf_block_attention *a, float *ds, const float *probs,
                                      float *sink_grads, float *sink_probs);
/* dq in the query columns of dqkv, fp32: set by the first block, added to by the others; keys->grad += dS^T q / sqrt(d). ds_of_q: what dq
 * is made of, dS but for a planted bug. */
void sf_block_attention_query_grads(struct sf_rank_run *run, const struct sf_block_attention *a, float *dqkv, const float *ds_of_q,
                                    const float *ds, const float *qkv, const struct sf_key_block *keys, bool first);

#endif
