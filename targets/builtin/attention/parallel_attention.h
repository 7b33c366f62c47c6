/* Self-attention with heads cut over tp, grouped key/value heads and rotary positions (Megatron-LM: core/transformer/attention.py
 * SelfAttention, dot_product_attention.py; Ainslie et al. 2023, arXiv 2305.13245 for grouped heads).
 *
 * Columns of the fused projection, per key/value head ("group"): its query heads, the key head, the value head, head_dim each. With tp <=
 * kv_heads a rank holds kv_heads/tp whole groups. With more ranks than groups, rep = tp/kv_heads ranks share a group: each holds its part
 * of the query heads and a replica of the key and value head, whose gradients on a rank cover its own query heads only. */
#ifndef SF_TARGETS_PARALLEL_ATTENTION_H
#define SF_TARGETS_PARALLEL_ATTENTION_H

#include "targets/builtin/attention/latent_attention.h"
#include "targets/builtin/attention/qk_norm.h"
#include "targets/builtin/linear/linear.h"

struct sf_plugged;

struct sf_parallel_attention {
  struct sf_linear linear_qkv;
  struct sf_latent_attention *latent; /* multi-latent attention, in place of linear_qkv, QK norm and rotation; else NULL */
  int64_t width;                      /* of the fused layout: groups (queries_per_group + 2) head_dim */
  struct sf_linear linear_proj;
  struct sf_plugged *plugged; /* core attention; NULL: computed here */
  bool has_qk_norm;
  struct sf_qk_norm qk_norm;
  struct sf_parameter *sinks;        /* a logit for each query head held; NULL without sinks */
  int64_t window;                    /* 0: none */
  int64_t groups, queries_per_group; /* held by this rank */
  int64_t head_dim;
  int32_t module_rotary, module_core; /* module_rotary: -1 without rotary positions */
  const float *cos_sin;               /* [seq x rotated columns of a head], borrowed; NULL without rotary positions */
  int64_t *trade_counts;              /* [cp], layout.cp_comm a2a: written by each exchange; else NULL */
  struct sf_shard_map qkv_grad_map;   /* of the fused layout, replicated key and value columns marked partial */
};

/* What one microbatch leaves for its backward: buffers alone. */
struct sf_attention_acts {
  float *qkv_input;             /* [T x h] */
  float *qkv_raw;               /* [T x qkv], before QK norm; NULL without */
  float *qk_stats;              /* of QK norm */
  struct sf_latent_acts latent; /* of multi-latent attention; empty without */
  float *qkv;                   /* [T x qkv], rotated */
  float *probs; /* [batch][head][seq x seq], round(softmax), of each document packed from its first row's place on; with context parallelism
                   the rows of this rank's queries */
  float *sink_probs; /* [batch][head][seq]; NULL without sinks */
  float *context;    /* [T x heads d], input of linear_proj */
};

/* cos_sin: sf_rotary_table of the case, or NULL. */
void sf_parallel_attention_create(struct sf_parallel_attention *attention, struct sf_rank_run *run, int32_t layer, const float *cos_sin,
                                  const struct sf_group *tp, const struct sf_group *kv_rep);

/* Shape: input [tokens_local x h] (taken) -> output of linear_proj [tokens_local x h] (the caller's).
 * Computes, per sequence and head: S = q k^T / sqrt(d) in fp32, P = round(softmax over the keys that i sees, the sink
 * among them), o = round(P v). */
float *sf_parallel_attention_forward(struct sf_rank_run *run, const struct sf_parallel_attention *attention, struct sf_attention_acts *acts,
                                     float *input);

/* Shape: grad [tokens_local x h] (borrowed) -> gradient of the input (the caller's).
 * Computes dP = g v^T, dS = round(P (dP - rowsum(P dP))), dq = round(dS k / sqrt(d)), dk = round(sum over the group's held query heads of
 * dS^T q / sqrt(d)), dv = round(sum of P^T g); sums in fp32. The sinks get -sum of P_sink rowsum(P dP), fp32. */
float *sf_parallel_attention_backward(struct sf_rank_run *run, const struct sf_parallel_attention *attention,
                                      struct sf_attention_acts *acts, const float *grad);

#endif
