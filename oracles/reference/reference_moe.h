/* Template: mixture of experts: router, choice and weighting of experts, the experts themselves, the weighted sum. */
#ifndef SF_ORACLES_REFERENCE_MOE_H
#define SF_ORACLES_REFERENCE_MOE_H

#include "oracles/reference/reference_activation.h"
#include "oracles/reference/reference_choice.h"

/* Columns of one expert's fc1. */
static inline int64_t expert_fc1_width(const struct run *run) { return sf_case_fc1_parts(run->c) * run->c->moe.ffn; }

/* Memory of an MLP of this width. */
static inline struct mlp_acts take_mlp(struct run *run, int64_t width) {
  return (struct mlp_acts){take(run, run->tokens * sf_case_fc1_parts(run->c) * width), take(run, run->tokens * width),
                           take(run, run->tokens * run->hidden)};
}

/* Memory of one layer of experts. */
static inline void take_moe_layer(struct run *run, struct moe_acts *acts) {
  const struct sf_moe *moe = &run->c->moe;
  const int64_t t = run->tokens, slots = t * moe->topk;
  acts->logits = take(run, t * moe->experts);
  acts->scores = take(run, t * moe->experts);
  acts->weights = take(run, t * moe->experts);
  acts->outputs = take(run, slots * run->hidden);
  acts->fc1 = take(run, slots * expert_fc1_width(run));
  acts->activation = take(run, slots * moe->ffn);
  acts->combined = take(run, t * run->hidden);
  if (moe->shared_ffn > 0) {
    acts->shared = take_mlp(run, moe->shared_ffn);
    acts->added = take(run, t * run->hidden);
  }
  acts->chosen = take_indices(run, slots);
  acts->dropped = take_indices(run, slots);
  acts->sorted = take_indices(run, slots);
  acts->first = take_indices(run, moe->experts + 1);
}

/* Memory that all such layers share. */
static inline void take_moe_scratch(struct run *run) {
  const struct sf_moe *moe = &run->c->moe;
  const int64_t slots = run->tokens * moe->topk;
  run->moe.weight_grad = take(run, slots);
  run->moe.logits_grad = take(run, run->tokens * moe->experts);
  run->moe.slot_grad = take(run, slots * run->hidden);
  if (moe->shared_ffn > 0) run->moe.shared_expert_grad = take(run, run->tokens * run->hidden);
  run->moe.sorted_rows = take(run, run->tokens * run->hidden);
  run->moe.sorted_grad = take(run, run->tokens * run->hidden);
  run->moe.expert_a = take(run, slots * expert_fc1_width(run));
  run->moe.expert_b = take(run, slots * expert_fc1_width(run));
  run->moe.expert_load = take_indices(run, moe->experts * run->c->train.microbatch_size * sets_within(run, SF_WITHIN_LOAD));
}

/* --- router ------------------------------------------------------------------------------------------------------- */

/* What a softmax divides by. In double but in E5: a large term and many small ones that are all alike are rounded in one direction, as a
 * candidate rounds them, and where a score is near 1 what is left of 1 feels it. */
static inline real exp_sum(struct run *run, const real *exps, int64_t experts) {
  real sum;
  if (run->options->perturb != SF_PERTURB_SPLIT) return row_sum(exps, experts);
  sum_rows(&run->noise, &sum, exps, experts, 1);
  return sum;
}

/* scores: softmax over all experts, or the logistic of each. */
static inline void score_row(struct run *run, struct inner inner, int64_t t, real *restrict scores, const real *restrict logits) {
  const struct sf_moe *moe = &run->c->moe;
  const int64_t experts = moe->experts;
  if (moe->router == SF_ROUTER_SOFTMAX) {
    const real top = row_max(logits, experts);
    for (int64_t e = 0; e < experts; e++) scores[e] = real_exp(logits[e] - top);
    const real sum = exp_sum(run, scores, experts);
    for (int64_t e = 0; e < experts; e++) scores[e] /= sum;
  } else {
    for (int64_t e = 0; e < experts; e++) scores[e] = sigmoid(logits[e]);
  }
  inner_perturb(inner, t * experts, scores, experts);
}

/* What the chosen scores are divided by. is_shared: by their sum, whatever the router is. */
static inline real score_divisor(const real *scores, const int32_t *chosen, const struct sf_moe *moe, bool is_shared) {
  if (!is_shared && (moe->router == SF_ROUTER_SOFTMAX || moe->topk == 1)) return 1;
  real sum = 0;
  for (int64_t k = 0; k < moe->topk; k++) sum += scores[chosen[k]];
  return sum + (real)1e-20;
}

/* Goes on with the candidate's weights. Of its slots those are dropped whose weight is 0; where the score itself is 0, which a softmax may
 * leave of a small logit, a weight does not tell, and the reference's own decision stays. */
static inline void take_given_weights(struct run *run, struct sf_trace_id id, struct moe_acts *acts) {
  const int64_t experts = run->c->moe.experts, topk = run->c->moe.topk;
  take_given(run, id, acts->weights, run->tokens * experts);
  for (int64_t slot = 0; slot < run->tokens * topk; slot++) {
    const int64_t at = slot / topk * experts + acts->chosen[slot];
    if (acts->weights[at] != 0 || acts->scores[at] != 0) acts->dropped[slot] = acts->weights[at] == 0;
  }
  sort_slots(run, acts);
}

/* Chooses experts by acts->logits, drops what is beyond the capacity, and fills acts->scores and acts->weights [tokens x experts]: 0 where
 * an expert is not chosen or the slot was dropped. */
static inline void routing_forward(struct run *run, int32_t layer, struct moe_acts *acts) {
  const struct sf_moe *moe = &run->c->moe;
  const int64_t experts = moe->experts, topk = moe->topk;
  const struct sf_trace_id id = act_id(run, SF_MODULE_ROUTING, layer, SF_KIND_ACT);
  const struct inner inner = inner_of(run, id, 0), divisors = inner_of(run, id, 1);
  for (int64_t t = 0; t < run->tokens; t++) choose_row(acts->chosen + t * topk, acts->logits + t * experts, experts, topk);
  drop_slots(run, acts);
  sort_slots(run, acts);
  for (int64_t t = 0; t < run->tokens; t++) {
    const int32_t *chosen = acts->chosen + t * topk;
    real *scores = acts->scores + t * experts, *weights = acts->weights + t * experts;
    score_row(run, inner, t, scores, acts->logits + t * experts);
    const bool by_all = has_slip(run, SF_SLIP_ROUTER_ALL);
    const real sum = by_all ? row_sum(scores, experts) : score_divisor(scores, chosen, moe, has_slip(run, SF_SLIP_ROUTER_SHARED)),
               divisor = has_slip(run, SF_SLIP_ROUTER_RAW) ? 1 : inner_number(divisors, t, sum);
    for (int64_t e = 0; e < experts; e++) weights[e] = 0;
    for (int64_t k = 0; k < topk; k++)
      if (!acts->dropped[t * topk + k]) weights[chosen[k]] = scores[chosen[k]] / divisor;
  }
  finish_kept(run, id, acts->weights, run->tokens, experts, SF_F32);
  if (run->options->given != NULL) take_given_weights(run, id, acts);
}

/* acts->logits [tokens x experts] = x W^T, in fp32. */
static inline void router_forward(struct run *run, int32_t layer, struct moe_acts *acts, const real *x) {
  const int64_t h = run->hidden, experts = run->c->moe.experts;
  const real *weight = run->params[sf_catalog_param(run->catalog, SF_MODULE_ROUTER, layer, 0)].weight;
  multiply(&run->noise, SF_F32, acts->logits, experts, straight(x, run->tokens, h, h), turned(weight, h, experts, h));
  finish(run, act_id(run, SF_MODULE_ROUTER, layer, SF_KIND_ACT), acts->logits, run->tokens, experts, SF_F32);
}

/* What E3 reaches in the backward pass besides the terms of the weights' gradients: each share on its way into the mean, the mean. Where
 * one share is near 1 its gradient is nearly the mean, and what is left of their difference is rounding of all three; the mean follows the
 * gradient. */
struct routing_inner {
  struct inner means, shares;
};

/* One token's gradient of its logits. share: a chosen score over the divisor, whether dropped or not; grad: of the weights, 0 if dropped.
 */
static inline void routing_backward_row(const struct run *run, const struct routing_inner *inner, int64_t t, real *logits_grad,
                                        const struct moe_acts *acts, const real *grad, const struct sf_moe *moe) {
  const int32_t *chosen = acts->chosen + t * moe->topk;
  const real *scores = acts->scores + t * moe->experts, *logits = acts->logits + t * moe->experts;
  const real divisor = score_divisor(scores, chosen, moe, false);
  const bool single = moe->router == SF_ROUTER_SIGMOID && (moe->topk == 1 || has_slip(run, SF_SLIP_DIVISOR_FIXED));
  double sum = 0;
  for (int64_t k = 0; k < moe->topk; k++)
    sum += (double)inner_number(inner->shares, t * moe->topk + k, scores[chosen[k]] / divisor) * (double)grad[k];
  const real mean = single ? 0 : inner_number(inner->means, t, (real)sum);
  for (int64_t e = 0; e < moe->experts; e++) logits_grad[e] = moe->router == SF_ROUTER_SOFTMAX ? -scores[e] * mean : 0;
  for (int64_t k = 0; k < moe->topk; k++) {
    const int32_t e = chosen[k];
    const real slope = moe->router == SF_ROUTER_SOFTMAX ? scores[e] : scores[e] / divisor * sigmoid(-logits[e]);
    logits_grad[e] = slope * (grad[k] - mean);
  }
}

/* g: gradient of the combined output. */
static inline void routing_backward(struct run *run, int32_t layer, const struct moe_acts *acts, const real *g) {
  const struct sf_moe *moe = &run->c->moe;
  const int64_t h = run->hidden, topk = moe->topk;
  const struct sf_trace_id id = act_id(run, SF_MODULE_ROUTING, layer, SF_KIND_ACT_GRAD);
  const struct routing_inner inner = {inner_of(run, id, 1), inner_of(run, id, 2)};
  for (int64_t t = 0; t < run->tokens; t++) {
    real *grad = run->moe.weight_grad + t * topk;
    multiply(&run->noise, SF_F32, grad, topk, straight(g + t * h, 1, h, h), turned(acts->outputs + t * topk * h, h, topk, h));
    for (int64_t k = 0; k < topk; k++)
      if (acts->dropped[t * topk + k]) grad[k] = 0;
    routing_backward_row(run, &inner, t, run->moe.logits_grad + t * moe->experts, acts, grad, moe);
  }
  finish(run, id, run->moe.logits_grad, run->tokens, moe->experts, SF_F32);
}

/* x_grad and the weight's gradient from run->moe.logits_grad. */
static inline void router_backward(struct run *run, int32_t layer, real *x_grad, const real *x) {
  const int64_t h = run->hidden, experts = run->c->moe.experts;
  const int32_t param = sf_catalog_param(run->catalog, SF_MODULE_ROUTER, layer, 0);
  multiply(&run->noise, run->format, x_grad, h, straight(run->moe.logits_grad, run->tokens, experts, experts),
           straight(run->params[param].weight, experts, h, h));
  finish_act_grad(run, SF_MODULE_ROUTER, layer, x_grad, h);
  if (!is_trained(run, param)) return;
  multiply(&run->noise, SF_F32, run->scratch.wgrad, h, turned(run->moe.logits_grad, experts, run->tokens, experts),
           straight(x, run->tokens, h, h));
  finish_wgrad(run, param, 0);
}

/* --- experts ------------------------------------------------------------------------------------------------------ */

/* The experts' weights and the slots that are theirs: [first, first + count) of `sorted`. */
struct expert {
  int64_t first, count, width, fc1_width, fc2_ld;
  const real *fc1, *fc2; /* [fc1_width x h], [h x width] in rows of fc2_ld */
};

/* Expert e: its rows among the sorted slots, and its weights. */
static inline struct expert expert_find(const struct run *run, int32_t layer, const struct moe_acts *acts, int64_t e) {
  const struct sf_moe *moe = &run->c->moe;
  struct expert expert = {.first = acts->first[e], .count = acts->first[e + 1] - acts->first[e], .width = moe->ffn};
  expert.fc1_width = expert_fc1_width(run);
  expert.fc2_ld = moe->experts * moe->ffn;
  const int64_t of = has_slip(run, SF_SLIP_NEXT_EXPERT) && (e ^ 1) < moe->experts ? e ^ 1 : e;
  expert.fc1 = run->params[sf_catalog_param(run->catalog, SF_MODULE_EXPERTS_FC1, layer, 0)].weight + of * expert.fc1_width * run->hidden;
  expert.fc2 = run->params[sf_catalog_param(run->catalog, SF_MODULE_EXPERTS_FC2, layer, 0)].weight + of * moe->ffn;
  return expert;
}

/* rows = x of the expert's tokens (per_slot: x has a row for each slot). */
static inline void expert_gather(const struct run *run, real *restrict rows, const struct moe_acts *acts, const struct expert *expert,
                                 const real *restrict x, bool per_slot) {
  const int64_t h = run->hidden;
  for (int64_t i = 0; i < expert->count; i++) {
    const int64_t slot = acts->sorted[expert->first + i],
                  token = has_slip(run, SF_SLIP_SLOTS_IN_TURN) ? slot % run->tokens : slot / run->c->moe.topk,
                  from = per_slot ? slot : token;
    memcpy(rows + i * h, x + from * h, (size_t)h * sizeof *rows);
  }
}

/* Puts an expert's rows where their slots are. */
static inline void expert_scatter(const struct run *run, real *restrict slots, const struct moe_acts *acts, const struct expert *expert,
                                  const real *restrict rows) {
  const int64_t h = run->hidden;
  for (int64_t i = 0; i < expert->count; i++) memcpy(slots + acts->sorted[expert->first + i] * h, rows + i * h, (size_t)h * sizeof *rows);
}

/* x [tokens x hidden] to acts->outputs [slots x hidden]; slots that were dropped are zero. */
static inline void experts_forward(struct run *run, int32_t layer, struct moe_acts *acts, const real *x) {
  const struct sf_moe *moe = &run->c->moe;
  const int64_t h = run->hidden, slots = run->tokens * moe->topk, count = acts->first[moe->experts], wide = expert_fc1_width(run);
  const struct sf_trace_id id = act_id(run, SF_MODULE_EXPERTS_FC2, layer, SF_KIND_ACT);
  for (int64_t e = 0; e < moe->experts; e++) {
    const struct expert at = expert_find(run, layer, acts, e);
    if (at.count == 0) continue;
    expert_gather(run, run->moe.sorted_rows, acts, &at, x, false);
    multiply(&run->noise, run->format, acts->fc1 + at.first * wide, wide, straight(run->moe.sorted_rows, at.count, h, h),
             turned(at.fc1, h, wide, h));
  }
  store(run, id, 1, acts->fc1, count * wide, run->format);
  activate_rows(run, inner_of(run, id, 0), acts->activation, acts->fc1, count, moe->ffn);
  store(run, id, 2, acts->activation, count * moe->ffn, run->format);
  memset(acts->outputs, 0, (size_t)(slots * h) * sizeof(real));
  for (int64_t e = 0; e < moe->experts; e++) {
    const struct expert at = expert_find(run, layer, acts, e);
    if (at.count == 0) continue;
    multiply(&run->noise, run->format, run->moe.sorted_rows, h,
             straight(acts->activation + at.first * at.width, at.count, at.width, at.width), turned(at.fc2, at.width, h, at.fc2_ld));
    expert_scatter(run, acts->outputs, acts, &at, run->moe.sorted_rows);
  }
  finish_act(run, SF_MODULE_EXPERTS_FC2, layer, acts->outputs, moe->topk * h);
}

/* acts->combined = round(sum over a token's slots of weight x output). */
static inline void combine_forward(struct run *run, int32_t layer, struct moe_acts *acts) {
  const struct sf_moe *moe = &run->c->moe;
  const int64_t h = run->hidden;
  const struct inner inner = inner_of(run, act_id(run, SF_MODULE_COMBINE, layer, SF_KIND_ACT), 0);
  real *term = run->scratch.branch_a;
  memset(acts->combined, 0, (size_t)(run->tokens * h) * sizeof(real));
  for (int64_t slot = 0; slot < run->tokens * moe->topk; slot++) {
    const int64_t t = slot / moe->topk;
    const real weight = acts->weights[t * moe->experts + acts->chosen[slot]];
    for (int64_t j = 0; j < h; j++) term[j] = weight * acts->outputs[slot * h + j];
    inner_perturb(inner, slot * h, term, h);
    for (int64_t j = 0; j < h; j++) acts->combined[t * h + j] += term[j];
  }
  finish_act(run, SF_MODULE_COMBINE, layer, acts->combined, h);
}

/* run->moe.slot_grad = round(weight g), of every slot. */
static inline void combine_backward(struct run *run, int32_t layer, const struct moe_acts *acts, const real *g) {
  const struct sf_moe *moe = &run->c->moe;
  const int64_t h = run->hidden;
  for (int64_t slot = 0; slot < run->tokens * moe->topk; slot++) {
    const int64_t t = slot / moe->topk;
    const real weight = acts->weights[t * moe->experts + acts->chosen[slot]];
    for (int64_t j = 0; j < h; j++) run->moe.slot_grad[slot * h + j] = weight * g[t * h + j];
  }
  finish_act_grad(run, SF_MODULE_COMBINE, layer, run->moe.slot_grad, moe->topk * h);
}

/* run->moe.expert_b: gradient of linear_fc1's output, rows as sorted; by way of expert_a, that of the activation's. */
static inline void experts_hidden_grad(struct run *run, int32_t layer, const struct moe_acts *acts, struct sf_trace_id id) {
  const struct sf_moe *moe = &run->c->moe;
  const int64_t h = run->hidden, count = acts->first[moe->experts], wide = expert_fc1_width(run);
  for (int64_t e = 0; e < moe->experts; e++) {
    const struct expert at = expert_find(run, layer, acts, e);
    if (at.count == 0) continue;
    expert_gather(run, run->moe.sorted_grad, acts, &at, run->moe.slot_grad, true);
    multiply(&run->noise, run->format, run->moe.expert_a + at.first * at.width, at.width, straight(run->moe.sorted_grad, at.count, h, h),
             straight(at.fc2, h, at.width, at.fc2_ld));
  }
  store(run, id, 1, run->moe.expert_a, count * moe->ffn, run->format);
  activate_rows_backward(run, inner_of(run, id, 0), run->moe.expert_b, run->moe.expert_a, acts->fc1, count, moe->ffn);
  store(run, id, 2, run->moe.expert_b, count * wide, run->format);
}

#endif
