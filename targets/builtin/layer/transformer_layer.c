#include "targets/builtin/layer/transformer_layer.h"

#include "targets/builtin/norm/residual.h"

void sf_transformer_layer_create(struct sf_transformer_layer *layer, struct sf_rank_run *run, int32_t index, const float *cos_sin) {
  const struct sf_parallel_state *p = &run->parallel;
  sf_norm_layer_create(&layer->input_layernorm, run, SF_MODULE_INPUT_LAYERNORM, index);
  sf_parallel_attention_create(&layer->attention, run, index, cos_sin, &p->tp, &p->kv_rep);
  layer->post_norm = run->c->model.post_norm;
  if (layer->post_norm) sf_norm_layer_create(&layer->post_self_attn_layernorm, run, SF_MODULE_POST_SELF_ATTN_LAYERNORM, index);
  layer->module_attn_bda = sf_rank_module(run, SF_MODULE_SELF_ATTN_BDA, index);
  layer->has_cross_attention = run->c->model.memory_seq > 0;
  if (layer->has_cross_attention) {
    sf_norm_layer_create(&layer->pre_cross_attn_layernorm, run, SF_MODULE_PRE_CROSS_ATTN_LAYERNORM, index);
    sf_cross_attention_create(&layer->cross_attention, run, index, &p->tp);
    layer->module_cross_bda = sf_rank_module(run, SF_MODULE_CROSS_ATTN_BDA, index);
  }
  sf_norm_layer_create(&layer->pre_mlp_layernorm, run, SF_MODULE_PRE_MLP_LAYERNORM, index);
  layer->has_experts = run->c->moe.experts > 0;
  const struct sf_mlp_modules mlp = {SF_MODULE_LINEAR_FC1, SF_MODULE_ACTIVATION, SF_MODULE_LINEAR_FC2, run->c->model.ffn};
  if (layer->has_experts)
    sf_moe_layer_create(&layer->moe, run, index, &p->tp);
  else
    sf_parallel_mlp_create(&layer->mlp, run, &mlp, index, &p->tp);
  if (layer->post_norm) sf_norm_layer_create(&layer->post_mlp_layernorm, run, SF_MODULE_POST_MLP_LAYERNORM, index);
  layer->parallel_residual = run->c->model.parallel_residual;
  layer->module_mlp_bda = sf_rank_module(run, SF_MODULE_MLP_BDA, index);
}

/* The residual stream that the MLP's norm reads. */
static const float *mlp_stream(const struct sf_transformer_layer *layer, const struct sf_layer_acts *acts) {
  if (layer->has_cross_attention) return acts->x_cross;
  return layer->parallel_residual ? acts->x : acts->x_mid;
}

/* branch is taken. */
static float *post_norm_forward(struct sf_rank_run *run, const struct sf_norm_layer *norm, struct sf_post_norm_acts *acts, float *branch) {
  acts->x = branch;
  return sf_norm_layer_forward(run, norm, branch, &acts->stats);
}

static void cross_forward(struct sf_rank_run *run, const struct sf_transformer_layer *layer, struct sf_layer_acts *acts) {
  float *normed = sf_norm_layer_forward(run, &layer->pre_cross_attn_layernorm, acts->x_mid, &acts->stats_cross);
  acts->x_cross = sf_cross_attention_forward(run, &layer->cross_attention, &acts->cross_attention, normed);
  sf_residual_drop_add(run, layer->module_cross_bda, acts->x_cross, acts->x_mid);
}

float *sf_transformer_layer_forward(struct sf_rank_run *run, const struct sf_transformer_layer *layer, struct sf_layer_acts *acts,
                                    float *x) {
  *acts = (struct sf_layer_acts){.x = x};
  float *normed = sf_norm_layer_forward(run, &layer->input_layernorm, x, &acts->stats);
  acts->x_mid = sf_parallel_attention_forward(run, &layer->attention, &acts->attention, normed);
  if (layer->post_norm) acts->x_mid = post_norm_forward(run, &layer->post_self_attn_layernorm, &acts->post_attention, acts->x_mid);
  sf_residual_drop_add(run, layer->module_attn_bda, acts->x_mid, x);
  if (layer->has_cross_attention) cross_forward(run, layer, acts);
  normed = sf_norm_layer_forward(run, &layer->pre_mlp_layernorm, mlp_stream(layer, acts), &acts->stats_mid);
  float *out = layer->has_experts ? sf_moe_layer_forward(run, &layer->moe, &acts->moe, normed)
                                  : sf_parallel_mlp_forward(run, &layer->mlp, &acts->mlp, normed);
  if (layer->post_norm) out = post_norm_forward(run, &layer->post_mlp_layernorm, &acts->post_mlp, out);
  sf_residual_drop_add(run, layer->module_mlp_bda, out, layer->has_cross_attention ? acts->x_cross : acts->x_mid);
  return out;
}

/* grad becomes round(grad + gradient through the norm of `branch_grad`), which is taken. */
static void branch_backward(struct sf_rank_run *run, const struct sf_norm_layer *norm, int32_t module_bda, float *grad, float *branch_grad,
                            const float *x, float *stats) {
  float *dx = sf_norm_layer_backward(run, norm, branch_grad, x, stats);
  sf_buffers_give(&run->acts, branch_grad);
  sf_residual_add_grad(run, module_bda, grad, dx);
  sf_buffers_give(&run->acts, dx);
}

static void cross_backward(struct sf_rank_run *run, const struct sf_transformer_layer *layer, struct sf_layer_acts *acts, float *grad) {
  float *given = sf_residual_branch_grad(run, layer->module_cross_bda, grad);
  float *branch = sf_cross_attention_backward(run, &layer->cross_attention, &acts->cross_attention, given);
  sf_residual_rounded_give(run, grad, given);
  branch_backward(run, &layer->pre_cross_attn_layernorm, layer->module_cross_bda, grad, branch, acts->x_mid, acts->stats_cross);
}

void sf_transformer_layer_backward(struct sf_rank_run *run, const struct sf_transformer_layer *layer, struct sf_layer_acts *acts,
                                   float *grad) {
  float *out_grad = layer->parallel_residual ? sf_buffers_copy(&run->acts, grad, run->tokens_local * run->hidden) : NULL;
  float *given = sf_residual_branch_grad(run, layer->module_mlp_bda, grad);
  float *post =
      layer->post_norm ? sf_norm_layer_backward(run, &layer->post_mlp_layernorm, given, acts->post_mlp.x, acts->post_mlp.stats) : NULL;
  const float *branch_grad = post != NULL ? post : given;
  float *branch = layer->has_experts ? sf_moe_layer_backward(run, &layer->moe, &acts->moe, branch_grad)
                                     : sf_parallel_mlp_backward(run, &layer->mlp, &acts->mlp, branch_grad);
  sf_buffers_give(&run->acts, post);
  sf_residual_rounded_give(run, grad, given);
  branch_backward(run, &layer->pre_mlp_layernorm, layer->module_mlp_bda, grad, branch, mlp_stream(layer, acts), acts->stats_mid);
  if (layer->has_cross_attention) cross_backward(run, layer, acts, grad);
  float *attention_grad = out_grad != NULL ? out_grad : grad;
  given = sf_residual_branch_grad(run, layer->module_attn_bda, attention_grad);
  post = layer->post_norm
             ? sf_norm_layer_backward(run, &layer->post_self_attn_layernorm, given, acts->post_attention.x, acts->post_attention.stats)
             : NULL;
  branch = sf_parallel_attention_backward(run, &layer->attention, &acts->attention, post != NULL ? post : given);
  sf_buffers_give(&run->acts, post);
  sf_residual_rounded_give(run, attention_grad, given);
  sf_buffers_give(&run->acts, out_grad);
  branch_backward(run, &layer->input_layernorm, layer->module_attn_bda, grad, branch, acts->x, acts->stats);
  sf_layer_acts_release(run, acts, false);
}

void sf_layer_acts_release(struct sf_rank_run *run, struct sf_layer_acts *acts, bool keep_input) {
  float *kept = keep_input ? acts->x : NULL;
  if (keep_input) acts->x = NULL;
  sf_buffers_give_record(&run->acts, acts, sizeof *acts);
  acts->x = kept;
}
