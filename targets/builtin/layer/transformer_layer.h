/* One decoder layer: norm, attention, residual add, with a memory the same with cross-attention, norm, MLP, residual add; with a parallel
 * residual both norms read the layer's input; with model.post_norm self-attention and MLP end in a norm (Megatron-LM:
 * core/transformer/transformer_layer.py; the adds are its "bda"). */
#ifndef SF_TARGETS_TRANSFORMER_LAYER_H
#define SF_TARGETS_TRANSFORMER_LAYER_H

#include "targets/builtin/attention/cross_attention.h"
#include "targets/builtin/attention/parallel_attention.h"
#include "targets/builtin/mlp/parallel_mlp.h"
#include "targets/builtin/moe/moe_layer.h"
#include "targets/builtin/norm/norm.h"

struct sf_transformer_layer {
  struct sf_norm_layer input_layernorm, pre_mlp_layernorm;
  bool post_norm;
  struct sf_norm_layer post_self_attn_layernorm, post_mlp_layernorm; /* with post_norm */
  struct sf_parallel_attention attention;
  bool has_experts;
  struct sf_parallel_mlp mlp; /* or, with experts, */
  struct sf_moe_layer moe;
  int32_t module_attn_bda, module_mlp_bda;
  bool parallel_residual; /* both branches read the layer's input */
  bool has_cross_attention;
  struct sf_norm_layer pre_cross_attn_layernorm;
  struct sf_cross_attention cross_attention;
  int32_t module_cross_bda;
};

/* What one microbatch leaves for its backward: buffers alone. */
struct sf_layer_acts {
  float *x, *x_mid;         /* residual stream before each branch, [tokens_local x h] */
  float *stats, *stats_mid; /* of the norms */
  struct sf_post_norm_acts {
    float *x, *stats; /* the branch's output [tokens_local x h]; NULL without post_norm */
  } post_attention, post_mlp;
  float *x_cross, *stats_cross; /* before the MLP, where there is cross-attention, and of its norm; else NULL */
  struct sf_attention_acts attention;
  struct sf_cross_attention_acts cross_attention;
  struct sf_mlp_acts mlp;
  struct sf_moe_acts moe;
};

/* index: the layer's global number, which names its tensors. */
void sf_transformer_layer_create(struct sf_transformer_layer *layer, struct sf_rank_run *run, int32_t index, const float *cos_sin);
/* Shape: x [tokens_local x h] (taken) -> the same (the caller's). */
float *sf_transformer_layer_forward(struct sf_rank_run *run, const struct sf_transformer_layer *layer, struct sf_layer_acts *acts,
                                    float *x);
/* grad [tokens_local x h]: overwritten by the gradient of the layer's input. Gives back what acts holds. */
void sf_transformer_layer_backward(struct sf_rank_run *run, const struct sf_transformer_layer *layer, struct sf_layer_acts *acts,
                                   float *grad);
/* Gives back all that the forward saved, for a forward that will be run again. keep_input: all but x. */
void sf_layer_acts_release(struct sf_rank_run *run, struct sf_layer_acts *acts, bool keep_input);

#endif
