/* Router of a mixture of experts: logits, choice of each token's experts, their weights (Megatron-LM: core/transformer/moe/router.py
 * TopKRouter, moe_utils.py topk_routing_with_score_function; Shazeer et al. 2017, arXiv 1701.06538; Fedus et al. 2021, arXiv 2101.03961).
 */
#ifndef SF_TARGETS_ROUTER_H
#define SF_TARGETS_ROUTER_H

#include "targets/builtin/linear/linear.h"
#include "targets/builtin/moe/router_loss.h"

struct sf_router {
  struct sf_linear linear; /* the logits [E x h], replicated */
  int32_t module_routing;
  struct sf_shard_map map_scores; /* [T x E], this rank's rows */
  struct sf_router_loss loss;
};

/* What a microbatch leaves for its backward: buffers alone. Slots: a token's chosen experts in order of their number, token * topk + place.
 */
struct sf_routing {
  float *logits, *scores, *weights; /* [tokens_local x E]; scores: softmax or logistic; weights: zero where not chosen, or dropped */
  int32_t *chosen, *kept;           /* [tokens_local * topk] */
  struct sf_router_loss_acts loss;
};

/* The weight is whole on every rank. */
void sf_router_create(struct sf_router *router, struct sf_rank_run *run, int32_t layer, const struct sf_group *tp);
/* Shape: input [tokens_local x h] (borrowed). Fills *routing. Logits and weights are fp32. With a
 * capacity, the choices of all tokens are all-gathered over tp (with sp) and cp. */
void sf_router_forward(struct sf_rank_run *run, const struct sf_router *router, struct sf_routing *routing, float *input);
/* Shape: weight_grad [tokens_local * topk], fp32, of the kept slots -> round(gradient of the input) [tokens_local x h] (the caller's). */
float *sf_router_backward(struct sf_rank_run *run, const struct sf_router *router, const struct sf_routing *routing,
                          const float *weight_grad, float *input);

#endif
