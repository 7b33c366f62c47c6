/* The losses of a router itself: load balancing and z loss (Megatron-LM: core/transformer/moe/router.py apply_aux_loss, moe_utils.py
 * switch_load_balancing_loss_func, z_loss_func, MoEAuxLossAutoScaler; Fedus et al. 2021, arXiv 2101.03961; Zoph et al. 2022, arXiv
 * 2202.08906). They act through the gradient of the logits alone. */
#ifndef SF_TARGETS_ROUTER_LOSS_H
#define SF_TARGETS_ROUTER_LOSS_H

#include "targets/builtin/parallel/rank_run.h"

struct sf_router_loss {
  bool balances, has_z; /* neither: nothing is computed */
  int32_t module;
  int64_t scopes;
  struct sf_shard_map map_losses; /* [losses x 1], whole on every rank */
  struct sf_dim_map rows;         /* of the microbatch's padding mask, this rank's */
};

/* What a microbatch leaves for its backward; NULL without such losses. */
struct sf_router_loss_acts {
  float *counts; /* [scopes x (E + 1)], of all ranks: tokens that chose each expert, dropped or not; tokens */
  float *valid;  /* [tokens_local], 0 for padding, else 1 */
};

/* scores: [tokens_local x E], softmax or logistic of the logits; chosen: [tokens_local * topk]. */
struct sf_router_choice {
  const float *logits, *scores;
  const int32_t *chosen;
};

/* Where the case has no such loss, forward and backward do nothing. */
void sf_router_loss_create(struct sf_router_loss *loss, struct sf_rank_run *run, int32_t layer);
/* Counts and losses are summed over tp (with sp) and cp: two all-reduces. Sums over tokens are fp32, in row order. */
void sf_router_loss_forward(struct sf_rank_run *run, const struct sf_router_loss *loss, struct sf_router_loss_acts *acts,
                            const struct sf_router_choice *choice);
/* logits_grad [tokens_local x E] += the losses' gradient, fp32, which is traced by itself. */
void sf_router_loss_backward(struct sf_rank_run *run, const struct sf_router_loss *loss, const struct sf_router_loss_acts *acts,
                             const struct sf_router_choice *choice, float *logits_grad);

#endif
