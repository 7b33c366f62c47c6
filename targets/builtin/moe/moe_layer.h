/* Mixture-of-experts layer in place of an MLP: router, dispatch, experts, weighted sum; beside them, for every token, the shared expert, a
 * dense MLP whose output is added (Megatron-LM: core/transformer/moe/moe_layer.py, shared_experts.py). With tp > 1 it needs sp, so that
 * every rank has tokens of its own. */
#ifndef SF_TARGETS_MOE_LAYER_H
#define SF_TARGETS_MOE_LAYER_H

#include "targets/builtin/mlp/parallel_mlp.h"
#include "targets/builtin/moe/experts.h"

struct sf_moe_layer {
  struct sf_router router;
  struct sf_token_dispatcher dispatcher;
  struct sf_experts experts;
  bool has_shared;
  struct sf_parallel_mlp shared;                                     /* the shared expert, if there is one */
  int32_t layer, module_fc1, module_fc2, module_combine, module_add; /* module_add: with a shared expert */
  struct sf_shard_map map_slots;                                     /* [T x topk h], this rank's rows */
};

/* What one microbatch leaves for its backward: buffers alone. */
struct sf_moe_acts {
  float *input;   /* [tokens_local x h] */
  float *outputs; /* of the slots [tokens_local x topk h] */
  struct sf_routing routing;
  struct sf_dispatch dispatch;
  struct sf_experts_acts experts;
  struct sf_mlp_acts shared;
};

/* Makes router, experts, dispatcher and, where there is one, the shared expert. */
void sf_moe_layer_create(struct sf_moe_layer *moe, struct sf_rank_run *run, int32_t layer, const struct sf_group *tp);
/* Shape: input [tokens_local x h] (taken) -> [tokens_local x h] (the caller's). */
float *sf_moe_layer_forward(struct sf_rank_run *run, const struct sf_moe_layer *moe, struct sf_moe_acts *acts, float *input);
/* Shape: grad [tokens_local x h] (borrowed) -> gradient of the input (the caller's). */
float *sf_moe_layer_backward(struct sf_rank_run *run, const struct sf_moe_layer *moe, struct sf_moe_acts *acts, const float *grad);

#endif
