/* Template: what the modules of a model put out and keep, and the room that they work in. */
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
struct mlp_acts {
  real *fc1, *activation, *fc2;
};
struct moe_acts {
  real *logits, *scores, *weights;              /* [tokens x experts]; weights: zero where an expert was not chosen, or dropped the token */
  real *outputs, *combined;                     /* [tokens x topk x hidden], [tokens x hidden] */
  real *fc1, *activation;                       /* a row for each slot, in the order of `sorted` */
  int32_t *chosen, *dropped, *sorted, *first;   /* slots: token * topk + place among the token's experts, which are in order */
  real *balance_scores, *log_sums, *aux_losses; /* auxiliary losses only: [tokens x experts], [tokens], [scopes + 1] */
  int32_t *choices, *scope_tokens;              /* [scopes x experts], [scopes] */
  real *added;                                  /* the sum of `combined` and the shared expert's output; NULL without one */
  struct mlp_acts shared;
};
struct layer_acts {
  real *norm1, *qkv, *qk_norm, *rotary, *context, *proj, *attn_bda, *norm2, *mlp_bda;
  real *post_attn, *post_mlp;                                        /* post_norm only */
  real *q_down, *q_norm, *q, *kv_down, *kv_latent, *kv_norm, *kv_up; /* multi-latent attention; kv_latent: columns of kv_down */
  real *probs;                                                       /* [microbatch_size][heads][seq x seq] */
  real *sink_probs;                                                  /* [microbatch_size][heads][seq]; NULL without sinks */
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

/* What a microbatch is made of, and what the modules make of it. */
struct model_acts {
  int32_t *token;
  int32_t *documents; /* [microbatch_size][seq], first position of each position's document; NULL without documents and padding */
  float *mask;
  real *memory;          /* [memory rows x hidden] */
  real *cosines, *sines; /* [seq x head_dim / 2] */
  real *words, *embedded, *adapter, *adapter_bda, *final_norm;
  struct layer_acts *layers;
  struct head head;
  struct mtp *mtp; /* [model.mtp_depth] */
};

/* Gradients on their way back through the model, and room for what every module needs. */
struct scratch {
  real *stream;               /* gradient of the residual stream */
  real *branch_a, *branch_b;  /* [tokens x hidden] */
  real *wide_a, *wide_b;      /* [tokens x the widest module] */
  real *wgrad;                /* the largest parameter */
  real *rounded, *adapter_in; /* of the stream in the compute format, where that is another one */
  real *kept, *dropped;       /* dropout only: 1 or 0, a branch's gradient through it; [tokens x hidden] */
  real *layer_grad;           /* parallel residual only: of the layer's output, [tokens x hidden] */
  real *pair_grad;            /* multi-token prediction only, [tokens x 2 hidden] */
};

struct attention_scratch {
  real *scores;                 /* [group x seq x seq], group = query heads of a key/value head */
  real *group_rows, *head_grad; /* [group x seq x head_dim], [seq x head_dim] */
  real *row_means;              /* [seq] row sums of P dP of one head */
  real *qk_rows;                /* QK norm only: query rows, key rows, [tokens (heads + kv_heads) x head_dim] */
  real *sink_terms;             /* sinks only: each query's part of their gradient, [tokens x heads] */
};

/* Multi-latent attention: gradients; a number 1 for each head. */
struct latent_scratch {
  real *a, *b, *c, *shared_grad, *ones;
};

struct cross_scratch {
  real *memory_grad, *kv_grad; /* [memory rows x hidden], [memory rows x 2 heads d] */
  real *scores;                /* [seq x memory_seq] */
};

struct moe_scratch {
  real *weight_grad, *logits_grad, *slot_grad;    /* [slots], [tokens x experts], [slots x hidden] */
  real *sorted_rows, *sorted_grad;                /* of one expert, [tokens x hidden] */
  real *expert_a, *expert_b, *shared_expert_grad; /* [slots x an expert's width], the same, [tokens x hidden] */
  real *aux_grad, *aux_rows, *aux_sums;           /* auxiliary losses only: [tokens x experts] twice, [scopes x experts] */
  int32_t *expert_load, *counted;                 /* counted: [tokens], auxiliary losses only */
};

#endif
