#include "targets/builtin/moe/moe_layer.h"

#include "targets/builtin/parallel/fault.h"

void sf_moe_layer_create(struct sf_moe_layer *moe, struct sf_rank_run *run, int32_t layer, const struct sf_group *tp) {
  *moe = (struct sf_moe_layer){.layer = layer,
                               .module_fc1 = sf_rank_module(run, SF_MODULE_EXPERTS_FC1, layer),
                               .module_fc2 = sf_rank_module(run, SF_MODULE_EXPERTS_FC2, layer),
                               .module_combine = sf_rank_module(run, SF_MODULE_COMBINE, layer),
                               .has_shared = run->c->moe.shared_ffn > 0,
                               .map_slots = {run->map_hidden.rows, sf_dim_map_whole(run->c->moe.topk * run->hidden)}};
  sf_token_dispatcher_create(&moe->dispatcher, run);
  sf_router_create(&moe->router, run, layer, tp);
  sf_experts_create(&moe->experts, run, layer, &moe->dispatcher);
  const struct sf_mlp_modules shared = {SF_MODULE_SHARED_FC1, SF_MODULE_SHARED_ACTIVATION, SF_MODULE_SHARED_FC2, run->c->moe.shared_ffn};
  if (!moe->has_shared) return;
  moe->module_add = sf_rank_module(run, SF_MODULE_SHARED_ADD, layer);
  sf_parallel_mlp_create(&moe->shared, run, &shared, layer, tp);
}

static int64_t row_count(const struct sf_moe_layer *moe, const struct sf_dispatch *dispatch) {
  return moe->dispatcher.etp.size * dispatch->sizes->padded;
}

static float slot_weight(const struct sf_moe *moe, const struct sf_routing *routing, int64_t slot) {
  return routing->weights[slot / moe->topk * moe->experts + routing->chosen[slot]];
}

/* round(sum of a token's slots, each times its weight, in fp32 and in order). routing NULL: the weights are 1. */
static float *sum_slots(struct sf_rank_run *run, const struct sf_routing *routing, const float *slots) {
  struct sf_device *dev = run->env->device;
  const struct sf_moe *moe = &run->c->moe;
  const int64_t h = run->hidden, count = run->tokens_local * h;
  float *sum = sf_buffers_take_zeros(&run->acts, count);
  for (int64_t slot = 0; slot < run->tokens_local * moe->topk; slot++)
    dev->ops->axpy(dev, sum + slot / moe->topk * h, slots + slot * h, routing != NULL ? slot_weight(moe, routing, slot) : 1.0f, h);
  dev->ops->round(dev, sum, sum, count, run->dtype);
  return sum;
}

/* out becomes round(out + shared expert's output). */
static void add_shared(struct sf_rank_run *run, const struct sf_moe_layer *moe, struct sf_mlp_acts *acts, float *out, const float *input) {
  struct sf_device *dev = run->env->device;
  const int64_t count = run->tokens_local * run->hidden;
  float *shared = sf_parallel_mlp_forward(run, &moe->shared, acts, sf_buffers_copy(&run->acts, input, count));
  dev->ops->add(dev, out, out, shared, count, run->dtype);
  sf_trace_act(run, moe->module_add, &run->map_hidden, out);
  sf_buffers_give(&run->acts, shared);
}

float *sf_moe_layer_forward(struct sf_rank_run *run, const struct sf_moe_layer *moe, struct sf_moe_acts *acts, float *input) {
  acts->input = input;
  sf_router_forward(run, &moe->router, &acts->routing, input);
  sf_dispatch_create(run, &moe->dispatcher, &acts->dispatch, &acts->routing);
  float *rows = sf_dispatch_rows(run, &moe->dispatcher, &acts->dispatch, input, false, "token_dispatcher.fwd.dispatch");
  rows = sf_experts_forward(run, &moe->experts, &acts->experts, &acts->dispatch, row_count(moe, &acts->dispatch), rows);
  acts->outputs = sf_dispatch_return(run, &moe->dispatcher, &acts->dispatch, rows, "token_dispatcher.fwd.return");
  sf_trace_act(run, moe->module_fc2, &moe->map_slots, acts->outputs);
  float *out = sum_slots(run, &acts->routing, acts->outputs);
  sf_trace_act(run, moe->module_combine, &run->map_hidden, out);
  if (moe->has_shared) add_shared(run, moe, &acts->shared, out, input);
  return out;
}

/* slots = round(weight g), and the weights' gradients g . output. */
static void combine_backward(struct sf_rank_run *run, const struct sf_moe_acts *acts, float *slots, float *weight_grad, const float *grad) {
  struct sf_device *dev = run->env->device;
  const struct sf_moe *moe = &run->c->moe;
  const int64_t h = run->hidden, count = run->tokens_local * moe->topk;
  for (int64_t slot = 0; slot < count; slot++) {
    const float *g = grad + slot / moe->topk * h, *output = acts->outputs + slot * h, weight = slot_weight(moe, &acts->routing, slot);
    float sum = 0.0f;
    for (int64_t j = 0; j < h; j++) slots[slot * h + j] = weight * g[j], sum += g[j] * output[j];
    weight_grad[slot] = sum;
  }
  dev->ops->round(dev, slots, slots, count * h, run->dtype);
}

float *sf_moe_layer_backward(struct sf_rank_run *run, const struct sf_moe_layer *moe, struct sf_moe_acts *acts, const float *grad) {
  struct sf_device *dev = run->env->device;
  const int64_t h = run->hidden, slot_count = run->tokens_local * run->c->moe.topk;
  sf_fault_canary_backward(run, moe->layer);
  float *shared_grad = moe->has_shared ? sf_parallel_mlp_backward(run, &moe->shared, &acts->shared, grad) : NULL;
  float *slots = sf_buffers_take(&run->acts, slot_count * h), *weight_grad = sf_buffers_take(&run->acts, slot_count);
  combine_backward(run, acts, slots, weight_grad, grad);
  sf_trace_act_grad(run, moe->module_combine, &moe->map_slots, slots);
  float *router_grad = sf_router_backward(run, &moe->router, &acts->routing, weight_grad, acts->input);
  float *rows = sf_dispatch_rows(run, &moe->dispatcher, &acts->dispatch, slots, true, "token_dispatcher.bwd.dispatch");
  sf_buffers_give(&run->acts, slots);
  rows = sf_experts_backward(run, &moe->experts, &acts->experts, &acts->dispatch, row_count(moe, &acts->dispatch), rows);
  slots = sf_dispatch_return(run, &moe->dispatcher, &acts->dispatch, rows, "token_dispatcher.bwd.return");
  float *input_grad = sum_slots(run, NULL, slots);
  sf_trace_act_grad(run, moe->module_fc1, &run->map_hidden, input_grad);
  dev->ops->add(dev, input_grad, input_grad, router_grad, run->tokens_local * h, run->dtype);
  if (shared_grad != NULL) dev->ops->add(dev, input_grad, input_grad, shared_grad, run->tokens_local * h, run->dtype);
  sf_buffers_give(&run->acts, slots);
  sf_buffers_give(&run->acts, weight_grad);
  sf_buffers_give(&run->acts, router_grad);
  sf_buffers_give(&run->acts, shared_grad);
  return input_grad;
}
