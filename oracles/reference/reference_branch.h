/* Template: the layer of experts, how a branch of a layer ends, and the MLP's branch, dense or of experts. */
#ifndef SF_ORACLES_REFERENCE_BRANCH_H
#define SF_ORACLES_REFERENCE_BRANCH_H

#include "oracles/reference/reference_activation.h"
#include "oracles/reference/reference_aux_loss.h"
#include "oracles/reference/reference_norm.h"

/* Memory of one layer, its auxiliary losses too. */
static inline void take_experts_layer(struct run *run, struct moe_acts *acts) {
  take_moe_layer(run, acts);
  take_aux_losses(run, acts);
}

/* The same of what all layers share. */
static inline void take_experts_scratch(struct run *run) {
  take_moe_scratch(run);
  take_aux_scratch(run);
}

/* x_grad: each slot's gradient rounded, then a token's summed in order of its experts. outputs of the forward are not needed any more and
 * take the slots' gradients. */
static inline void experts_input_grad(struct run *run, int32_t layer, real *x_grad, struct moe_acts *acts, struct sf_trace_id id) {
  const struct sf_moe *moe = &run->c->moe;
  const int64_t h = run->hidden, slots = run->tokens * moe->topk, wide = expert_fc1_width(run);
  memset(acts->outputs, 0, (size_t)(slots * h) * sizeof(real));
  for (int64_t e = 0; e < moe->experts; e++) {
    const struct expert at = expert_find(run, layer, acts, e);
    if (at.count == 0) continue;
    multiply(&run->noise, run->format, run->moe.sorted_grad, h, straight(run->moe.expert_b + at.first * wide, at.count, wide, wide),
             straight(at.fc1, wide, h, h));
    expert_scatter(run, acts->outputs, acts, &at, run->moe.sorted_grad);
  }
  store(run, id, 3, acts->outputs, slots * h, run->format);
  memset(x_grad, 0, (size_t)(run->tokens * h) * sizeof(real));
  for (int64_t slot = 0; slot < slots; slot++)
    for (int64_t j = 0; j < h; j++) x_grad[slot / moe->topk * h + j] += acts->outputs[slot * h + j];
  finish_act_grad(run, SF_MODULE_EXPERTS_FC1, layer, x_grad, h);
}

/* An expert's gradient is not traced by microbatch: it goes into the main gradient as it is. */
static inline void finish_expert_wgrad(struct run *run, int32_t param) {
  const struct sf_shape shape = run->catalog->params[param].shape;
  const struct sf_trace_id id = {
      .step = run->step, .microbatch = run->microbatch, .pass = SF_PASS_BWD, .kind = SF_KIND_WGRAD, .subject = param};
  const int64_t count = shape.rows * shape.cols;
  store(run, id, 0, run->scratch.wgrad, count, SF_F32);
  real *restrict sum = run->params[param].main_grad;
  for (int64_t i = 0; i < count; i++) sum[i] += run->scratch.wgrad[i];
  if (run->microbatch > 0) inner_perturb(inner_of(run, id, 0), 0, sum, count);
}

/* Of fc1 from x and run->moe's gradient of it, of fc2 from run->moe.slot_grad. */
static inline void experts_weight_grads(struct run *run, int32_t layer, const struct moe_acts *acts, const real *x) {
  const struct sf_moe *moe = &run->c->moe;
  const int64_t h = run->hidden, wide = expert_fc1_width(run);
  for (int second = 0; second < 2; second++) {
    const int32_t param = sf_catalog_param(run->catalog, second ? SF_MODULE_EXPERTS_FC2 : SF_MODULE_EXPERTS_FC1, layer, 0);
    if (!is_trained(run, param)) continue;
    zero_wgrad(run, param);
    for (int64_t e = 0; e < moe->experts; e++) {
      const struct expert at = expert_find(run, layer, acts, e);
      if (at.count == 0) continue;
      expert_gather(run, run->moe.sorted_rows, acts, &at, second ? run->moe.slot_grad : x, second);
      if (second)
        multiply(&run->noise, SF_F32, run->scratch.wgrad + e * at.width, at.fc2_ld, turned(run->moe.sorted_rows, h, at.count, h),
                 straight(acts->activation + at.first * at.width, at.count, at.width, at.width));
      else
        multiply(&run->noise, SF_F32, run->scratch.wgrad + e * wide * h, h,
                 turned(run->moe.expert_b + at.first * wide, wide, at.count, wide), straight(run->moe.sorted_rows, at.count, h, h));
    }
    finish_expert_wgrad(run, param);
  }
}

/* What the layer puts out. */
static inline real *moe_output(const struct moe_acts *acts) { return acts->added != NULL ? acts->added : acts->combined; }

/* acts->added = round(combined + shared expert's output). */
static inline void shared_expert_forward(struct run *run, int32_t layer, struct moe_acts *acts, const real *x) {
  dense_mlp_forward(run, shared_expert(run), layer, &acts->shared, x);
  for (int64_t i = 0; i < run->tokens * run->hidden; i++) acts->added[i] = acts->combined[i] + acts->shared.fc2[i];
  finish_act(run, SF_MODULE_SHARED_ADD, layer, acts->added, run->hidden);
}

/* x_grad becomes round(x_grad + other). part: as in store. */
static inline void add_input_grad(struct run *run, real *x_grad, const real *other, struct sf_trace_id id, uint64_t part) {
  for (int64_t i = 0; i < run->tokens * run->hidden; i++) x_grad[i] += other[i];
  store(run, id, part, x_grad, run->tokens * run->hidden, run->format);
}

/* The whole layer; returns what it puts out. */
static inline const real *moe_forward(struct run *run, int32_t layer, const real *x) {
  struct moe_acts *acts = &run->acts.layers[layer].moe;
  router_forward(run, layer, acts, x);
  routing_forward(run, layer, acts);
  aux_losses_forward(run, layer, acts);
  experts_forward(run, layer, acts, x);
  combine_forward(run, layer, acts);
  if (acts->added != NULL) shared_expert_forward(run, layer, acts, x);
  return moe_output(acts);
}

/* g: gradient of the output, which may stand in branch_b; x_grad: that of the layer's input, all ways, rounded at each sum. */
static inline void moe_backward(struct run *run, int32_t layer, real *x_grad, const real *g, const real *x) {
  struct moe_acts *acts = &run->acts.layers[layer].moe;
  const struct sf_trace_id id = act_id(run, SF_MODULE_EXPERTS_FC1, layer, SF_KIND_ACT_GRAD);
  if (acts->added != NULL) dense_mlp_backward(run, shared_expert(run), layer, run->moe.shared_expert_grad, &acts->shared, g, x);
  combine_backward(run, layer, acts, g);
  routing_backward(run, layer, acts, g);
  aux_losses_backward(run, layer, acts);
  router_backward(run, layer, run->scratch.branch_b, x);
  experts_hidden_grad(run, layer, acts, id);
  experts_input_grad(run, layer, x_grad, acts, id);
  experts_weight_grads(run, layer, acts, x);
  add_input_grad(run, x_grad, run->scratch.branch_b, id, 4);
  if (acts->added != NULL) add_input_grad(run, x_grad, run->moe.shared_expert_grad, id, 5);
}

/* out = round(x + branch), with dropout of the branch where the case has it. */
static inline void branch_add(struct run *run, enum sf_module_class cls, int32_t layer, real *out, const real *x, const real *branch) {
  if (run->c->train.dropout_milli > 0)
    residual_drop_forward(run, cls, layer, out, x, branch);
  else
    residual_forward(run, cls, layer, out, x, branch);
}

/* What joins the residual stream: the branch's output x, or with post_norm its norm, in `out`. */
static inline const real *post_norm_forward(struct run *run, enum sf_module_class cls, int32_t layer, real *out, const real *x) {
  if (!run->c->model.post_norm) return x;
  norm_forward(run, cls, layer, out, x);
  return out;
}

/* Gradient of the branch's output x from that of what joins the stream; with post_norm in run->scratch.branch_b. */
static inline const real *post_norm_backward(struct run *run, enum sf_module_class cls, int32_t layer, const real *g, const real *x) {
  if (!run->c->model.post_norm) return g;
  norm_backward(run, cls, layer, run->scratch.branch_b, g, x);
  return run->scratch.branch_b;
}

/* Dense or of experts, from acts->norm2; returns what the branch puts out. */
static inline const real *mlp_forward(struct run *run, int32_t layer, struct layer_acts *acts) {
  if (run->c->moe.experts > 0) return moe_forward(run, layer, acts->norm2);
  dense_mlp_forward(run, dense_mlp(run), layer, &acts->mlp, acts->norm2);
  return acts->mlp.fc2;
}

/* x_grad: of the branch's input; the gradient of the layer's output is run->scratch.stream. */
static inline void mlp_backward(struct run *run, int32_t layer, real *x_grad, const struct layer_acts *acts) {
  if (run->c->moe.experts > 0) {
    const real *g = branch_grad(run, SF_MODULE_MLP_BDA, SF_MODULE_COMBINE, layer, run->scratch.stream);
    moe_backward(run, layer, x_grad, post_norm_backward(run, SF_MODULE_POST_MLP_LAYERNORM, layer, g, moe_output(&acts->moe)), acts->norm2);
    return;
  }
  const real *fc2_grad = branch_grad(run, SF_MODULE_MLP_BDA, SF_MODULE_LINEAR_FC2, layer, run->scratch.stream);
  fc2_grad = post_norm_backward(run, SF_MODULE_POST_MLP_LAYERNORM, layer, fc2_grad, acts->mlp.fc2);
  dense_mlp_backward(run, dense_mlp(run), layer, x_grad, &acts->mlp, fc2_grad, acts->norm2);
}

#endif
