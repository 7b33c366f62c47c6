#include "targets/builtin/moe/router.h"

#include "targets/builtin/attention/core_attention.h"
#include "targets/builtin/parallel/fault.h"
#include "targets/builtin/parallel/mappings.h"

#include <math.h>

void sf_router_create(struct sf_router *router, struct sf_rank_run *run, int32_t layer, const struct sf_group *tp) {
  *router = (struct sf_router){.module_routing = sf_rank_module(run, SF_MODULE_ROUTING, layer),
                               .map_scores = {run->map_hidden.rows, sf_dim_map_whole(run->c->moe.experts)}};
  sf_linear_create(&router->linear, run, SF_LINEAR_REPLICATED, SF_MODULE_ROUTER, layer, tp, NULL);
  if (sf_fault(run->env, SF_FAULT_ROUTER_PARTIAL_AS_REPLICATED)) {
    router->linear.weight->sum_over_tp = false;
    sf_dim_map_set_partial(&router->linear.weight->wgrad_map.rows, false);
  }
  sf_router_loss_create(&router->loss, run, layer);
}

/* --- choice ------------------------------------------------------------------------------------------------------- */

static bool is_larger(float a, float b) { return a > b || (a == a && b != b); }

/* Marks the largest logit that is not marked yet, topk times; a later one wins only if it is larger. NaN is below all. */
static void choose(int32_t *chosen, const float *logits, int64_t experts, int64_t topk) {
  for (int64_t k = 0; k < topk; k++) {
    int32_t best = -1;
    for (int32_t e = 0; e < (int32_t)experts; e++) {
      bool taken = false;
      for (int64_t i = 0; i < k; i++) taken = taken || chosen[i] == e;
      if (!taken && (best < 0 || is_larger(logits[e], logits[best]))) best = e;
    }
    int64_t at = k; /* kept in order */
    for (; at > 0 && chosen[at - 1] > best; at--) chosen[at] = chosen[at - 1];
    chosen[at] = best;
  }
}

static int64_t capacity_of(const struct sf_case *c, int64_t tokens) {
  const int64_t thousandths = c->moe.capacity_milli * tokens * c->moe.topk, unit = 1000 * c->moe.experts;
  const int64_t capacity = thousandths / unit + (thousandths % unit > 0);
  return capacity > 0 ? capacity : 1;
}

/* Choices of all tokens of the microbatch, as floats, in row order. Given back by the caller. */
static float *gather_choices(struct sf_rank_run *run, const struct sf_router *router, const struct sf_routing *routing) {
  const int64_t topk = run->c->moe.topk, local = run->tokens_local * topk, of_cp_rank = run->tokens * topk, cp = run->parallel.cp.size;
  float *choices = sf_buffers_take(&run->acts, local);
  for (int64_t slot = 0; slot < local; slot++) choices[slot] = (float)routing->chosen[slot];
  if (run->parallel.sp) {
    float *of_tp = sf_mapping_gather(run, &router->linear.tp, choices, local, SF_F32, "router.fwd.choices");
    sf_buffers_give(&run->acts, choices);
    choices = of_tp;
  }
  if (cp == 1) return choices;
  float *gathered = sf_mapping_gather(run, &run->parallel.cp, choices, of_cp_rank, SF_F32, "router.fwd.choices_of_cp");
  float *all = sf_buffers_take(&run->acts, cp * of_cp_rank);
  for (int32_t i = 0; i < cp; i++) sf_context_parallel_copy_rows(run, all, gathered + i * of_cp_rank, i, topk, true);
  sf_buffers_give(&run->acts, choices);
  sf_buffers_give(&run->acts, gathered);
  return all;
}

/* An expert takes a scope's tokens in row order until it is full. */
static void drop_over_capacity(struct sf_rank_run *run, const struct sf_router *router, struct sf_routing *routing) {
  const struct sf_moe *moe = &run->c->moe;
  const int64_t b = run->c->train.microbatch_size, slots = run->c->model.seq * b * moe->topk;
  for (int64_t slot = 0; slot < run->tokens_local * moe->topk; slot++) routing->kept[slot] = 1;
  if (moe->capacity_milli == 0) return;
  const bool by_sequence = moe->scope == SF_SCOPE_SEQUENCE;
  const int64_t scopes = by_sequence ? b : 1, capacity = capacity_of(run->c, run->c->model.seq * (by_sequence ? 1 : b));
  float *choices = gather_choices(run, router, routing), *load = sf_buffers_take_zeros(&run->acts, scopes * moe->experts);
  for (int64_t slot = 0; slot < slots; slot++) {
    if (!(choices[slot] >= 0.0f && choices[slot] < (float)moe->experts))
      sf_comm_fail(run->env->comm, SF_ERANK, "router: a choice that names no expert came in");
    float *own = load + slot / moe->topk % scopes * moe->experts + (int64_t)choices[slot];
    if (!(*own < (float)capacity)) choices[slot] = -1.0f;
    *own += 1.0f;
  }
  const struct sf_dim_map *rows = &run->map_hidden.rows;
  int32_t *kept = routing->kept;
  for (int32_t at = 0; at < rows->count; at++)
    for (int64_t i = 0; i < rows->runs[at].len * moe->topk; i++) *kept++ = choices[rows->runs[at].start * moe->topk + i] >= 0.0f;
  sf_buffers_give(&run->acts, choices);
  sf_buffers_give(&run->acts, load);
}

/* --- weights ------------------------------------------------------------------------------------------------------ */

static void softmax(float *scores, const float *logits, int64_t experts) {
  float top = logits[0], sum = 0.0f;
  for (int64_t e = 1; e < experts; e++) top = logits[e] > top ? logits[e] : top;
  for (int64_t e = 0; e < experts; e++) sum += scores[e] = expf(logits[e] - top);
  for (int64_t e = 0; e < experts; e++) scores[e] /= sum;
}

static float logistic(float x) { return 1.0f / (1.0f + expf(-x)); }

/* The divisor of a token's chosen scores. */
static float divisor_of(const struct sf_moe *moe, const float *scores, const int32_t *chosen) {
  if (moe->router == SF_ROUTER_SOFTMAX || moe->topk == 1) return 1.0f;
  float sum = 1e-20f;
  for (int64_t k = 0; k < moe->topk; k++) sum += scores[chosen[k]];
  return sum;
}

static void weigh(const struct sf_moe *moe, const struct sf_routing *routing, int64_t t) {
  const float *logits = routing->logits + t * moe->experts;
  float *scores = routing->scores + t * moe->experts, *weights = routing->weights + t * moe->experts;
  const int32_t *chosen = routing->chosen + t * moe->topk, *kept = routing->kept + t * moe->topk;
  if (moe->router == SF_ROUTER_SOFTMAX)
    softmax(scores, logits, moe->experts);
  else
    for (int64_t e = 0; e < moe->experts; e++) scores[e] = logistic(logits[e]);
  const float divisor = divisor_of(moe, scores, chosen);
  memset(weights, 0, (size_t)moe->experts * sizeof *weights);
  for (int64_t k = 0; k < moe->topk; k++)
    if (kept[k]) weights[chosen[k]] = scores[chosen[k]] / divisor;
}

static struct sf_router_choice choice_of(const struct sf_routing *routing) {
  return (struct sf_router_choice){routing->logits, routing->scores, routing->chosen};
}

void sf_router_forward(struct sf_rank_run *run, const struct sf_router *router, struct sf_routing *routing, float *input) {
  const struct sf_moe *moe = &run->c->moe;
  const int64_t tokens = run->tokens_local, experts = moe->experts;
  routing->logits = sf_linear_forward(run, &router->linear, input, NULL);
  routing->scores = sf_buffers_take(&run->acts, tokens * experts);
  routing->weights = sf_buffers_take(&run->acts, tokens * experts);
  routing->chosen = sf_buffers_take_indices(&run->acts, tokens * moe->topk);
  routing->kept = sf_buffers_take_indices(&run->acts, tokens * moe->topk);
  for (int64_t t = 0; t < tokens; t++) choose(routing->chosen + t * moe->topk, routing->logits + t * experts, experts, moe->topk);
  drop_over_capacity(run, router, routing);
  for (int64_t t = 0; t < tokens; t++) weigh(moe, routing, t);
  sf_trace_act(run, router->module_routing, &router->map_scores, routing->weights);
  const struct sf_router_choice choice = choice_of(routing);
  sf_router_loss_forward(run, &router->loss, &routing->loss, &choice);
}

/* --- backward ----------------------------------------------------------------------------------------------------- */

/* Ignores the gradient of a dropped slot. */
static void logits_grad_row(float *logits_grad, const struct sf_moe *moe, const struct sf_routing *routing, int64_t t, const float *grad) {
  const float *scores = routing->scores + t * moe->experts, *logits = routing->logits + t * moe->experts;
  const int32_t *chosen = routing->chosen + t * moe->topk, *kept = routing->kept + t * moe->topk;
  const bool is_softmax = moe->router == SF_ROUTER_SOFTMAX;
  const float divisor = divisor_of(moe, scores, chosen);
  float mean = 0.0f;
  if (is_softmax || moe->topk > 1)
    for (int64_t k = 0; k < moe->topk; k++) mean += kept[k] ? scores[chosen[k]] / divisor * grad[k] : 0.0f;
  for (int64_t e = 0; e < moe->experts; e++) logits_grad[e] = is_softmax ? -scores[e] * mean : 0.0f;
  for (int64_t k = 0; k < moe->topk; k++) {
    const int32_t e = chosen[k];
    const float slope = is_softmax ? scores[e] : scores[e] / divisor * logistic(-logits[e]);
    logits_grad[e] = slope * ((kept[k] ? grad[k] : 0.0f) - mean);
  }
}

float *sf_router_backward(struct sf_rank_run *run, const struct sf_router *router, const struct sf_routing *routing,
                          const float *weight_grad, float *input) {
  const struct sf_moe *moe = &run->c->moe;
  const int64_t tokens = run->tokens_local;
  float *logits_grad = sf_buffers_take(&run->acts, tokens * moe->experts);
  for (int64_t t = 0; t < tokens; t++) logits_grad_row(logits_grad + t * moe->experts, moe, routing, t, weight_grad + t * moe->topk);
  sf_trace_act_grad(run, router->module_routing, &router->map_scores, logits_grad);
  const struct sf_router_choice choice = choice_of(routing);
  sf_router_loss_backward(run, &router->loss, &routing->loss, &choice, logits_grad);
  float *input_grad = sf_linear_backward(run, &router->linear, logits_grad, input);
  sf_buffers_give(&run->acts, logits_grad);
  return input_grad;
}
