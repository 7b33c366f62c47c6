/* Attention of the tokens over a memory that every layer reads, with heads cut over tp (Megatron-LM: core/transformer/attention.py
 * CrossAttention; Vaswani et al. 2017, arXiv 1706.03762, section 3.2.3). The memory is data: each rank fills the rows it holds, as an
 * encoder's last layer would leave them; with sp it is cut like the residual stream. Each query head has a key and a value head of its own.
 */
#ifndef SF_TARGETS_CROSS_ATTENTION_H
#define SF_TARGETS_CROSS_ATTENTION_H

#include "targets/builtin/linear/linear.h"

struct sf_cross_attention {
  struct sf_linear linear_q, linear_kv, linear_proj;
  int64_t heads, head_dim; /* heads held by this rank */
  int64_t memory_seq;
  int32_t module_core, module_key_value;
};

/* What one microbatch leaves for its backward, buffers alone; M = memory_seq * microbatch_size. */
struct sf_cross_attention_acts {
  float *input, *memory; /* whole: [T x h], [M x h] */
  float *q, *kv;         /* [T x heads d], [M x 2 heads d]: per head its key, its value */
  float *probs;          /* [batch][head][seq x memory_seq] */
  float *context;        /* [T x heads d], input of linear_proj */
};

/* Fills *attention and makes its parameters known to run->params. */
void sf_cross_attention_create(struct sf_cross_attention *attention, struct sf_rank_run *run, int32_t layer, const struct sf_group *tp);

/* Shape: input [tokens_local x h] (taken) -> output of linear_proj [tokens_local x h] (the caller's).
 * Computes, per sequence and head: S = q k^T / sqrt(d) in fp32, P = round(softmax over all of the memory), o = round(P v). */
float *sf_cross_attention_forward(struct sf_rank_run *run, const struct sf_cross_attention *attention, struct sf_cross_attention_acts *acts,
                                  float *input);

/* Shape: grad [tokens_local x h] (borrowed) -> gradient of the input (the caller's). The memory's gradient is
 * traced and dropped. Computes dP = g v^T, dS = round(P (dP - rowsum(P dP))), dq = round(dS k / sqrt(d)), dk = round(dS^T q / sqrt(d)), dv
 * = round(P^T g). */
float *sf_cross_attention_backward(struct sf_rank_run *run, const struct sf_cross_attention *attention,
                                   struct sf_cross_attention_acts *acts, const float *grad);

#endif
