/* Multi-latent attention's way from the hidden state to queries, keys and values (DeepSeek-V2, arXiv 2405.04434, section 2.1; Megatron-LM:
 * core/transformer/multi_latent_attention.py MLASelfAttention).
 *
 * Down projections are whole on every tp rank and take its own tokens; the latents have norms; up projections are cut by heads and gather
 * the latents of all tokens. The last columns of linear_kv_down_proj's output are the rotated part of every head's key. */
#ifndef SF_TARGETS_LATENT_ATTENTION_H
#define SF_TARGETS_LATENT_ATTENTION_H

#include "targets/builtin/linear/linear.h"
#include "targets/builtin/norm/norm.h"

struct sf_latent_attention {
  bool has_q_down;
  struct sf_linear q_down, kv_down;
  struct sf_norm_layer q_layernorm, kv_layernorm;
  struct sf_linear q, kv_up; /* q: linear_q_proj or linear_q_up_proj */
  struct sf_group tp;
  int64_t heads;          /* held by this rank */
  int64_t head_dim, rope; /* columns of a head; its last ones that are rotated */
  int64_t latent;         /* kv_lora_rank */
  int32_t module_rotary;
  const float *cos_sin;    /* [seq x rope], borrowed */
  struct sf_shard_map map; /* [T x heads 3 head_dim], the fused layout of queries, keys and values */
};

/* What one microbatch leaves for its backward: buffers alone. */
struct sf_latent_acts {
  float *input;                /* [tokens_local x h] */
  float *q_down, *q_stats;     /* NULL without a query latent */
  float *q_input, *kv_input;   /* of the up projections, all tokens */
  float *kv_latent, *kv_stats; /* [tokens_local x latent], before its norm */
};

/* cos_sin: sf_rotary_table for qk_rope_dim. */
void sf_latent_attention_create(struct sf_latent_attention *layer, struct sf_rank_run *run, int32_t index, const float *cos_sin,
                                const struct sf_group *tp);

/* Shape: input [tokens_local x h] (taken) -> [T x heads 3 head_dim] (the caller's): each head's query and key with their last columns
 * rotated, and its value. */
float *sf_latent_attention_forward(struct sf_rank_run *run, const struct sf_latent_attention *layer, struct sf_latent_acts *acts,
                                   float *input);

/* grad: of the forward's output, taken. Returns the gradient of the input, the caller's: round(of the queries' projection + of the keys').
 * The shared part of the keys has the sum over all heads: over this rank's in fp32, rounded, then over tp in
 * the compute format. */
float *sf_latent_attention_backward(struct sf_rank_run *run, const struct sf_latent_attention *layer, struct sf_latent_acts *acts,
                                    float *grad);

#endif
