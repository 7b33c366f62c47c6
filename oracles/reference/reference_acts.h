/* Template: what the modules of a model put out and keep. */
#ifndef SF_ORACLES_REFERENCE_ACTS_H
#define SF_ORACLES_REFERENCE_ACTS_H

#include "oracles/reference/reference_internal.h"
#include "oracles/reference/reference_real.h"

/* Of cross-attention. kv: [memory rows x 2 heads d], per head its key and its value. */
struct cross_acts {
  real *norm, *q, *kv, *context, *proj, *bda;
  real *probs; /* [microbatch_size][heads][seq x memory_seq] */
};

/* Activations of a layer, as its modules put them out (isolated mode: as they were overwritten). [tokens x width] each. */
struct mlp_acts { real *fc1, *activation, *fc2; };
struct moe_acts {
  real *logits, *scores, *weights;         /* [tokens x experts]; weights: zero where an expert was not chosen, or dropped the token */
  real *outputs, *combined;                /* [tokens x topk x hidden], [tokens x hidden] */
  real *fc1, *activation;                  /* a row for each slot, in the order of `sorted` */
  int32_t *chosen, *dropped, *sorted, *first; /* slots: token * topk + place among the token's experts, which are in order */
  real *balance_scores, *log_sums, *aux_losses; /* auxiliary losses only: [tokens x experts], [tokens], [scopes + 1] */
  int32_t *choices, *scope_tokens;              /* [scopes x experts], [scopes] */
  real *added;                             /* the sum of `combined` and the shared expert's output; NULL without one */
  struct mlp_acts shared;
};
struct layer_acts {
  real *norm1, *qkv, *qk_norm, *rotary, *context, *proj, *attn_bda, *norm2, *mlp_bda;
  real *post_attn, *post_mlp; /* post_norm only */
  real *q_down, *q_norm, *q, *kv_down, *kv_latent, *kv_norm, *kv_up; /* multi-latent attention; kv_latent: columns of kv_down */
  real *probs;      /* [microbatch_size][heads][seq x seq] */
  real *sink_probs; /* [microbatch_size][heads][seq]; NULL without sinks */
  struct mlp_acts mlp;
  struct moe_acts moe;
  struct cross_acts cross; /* NULL without a memory */
};

/* A use of the output layer: logits and losses of one prediction. */
struct head {
  enum sf_module_class output, loss;
  int32_t layer; /* -1, or of multi-token prediction */
  int32_t *label;
  real *weight; /* of each token's loss */
  real *logits, *losses;
};

/* Multi-token prediction at one depth. */
struct mtp {
  int32_t *token;
  real *words, *enorm, *hnorm, *pair, *projected, *final_norm;
  struct head head;
};

#endif
