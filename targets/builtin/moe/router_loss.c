#include "targets/builtin/moe/router_loss.h"

#include "targets/builtin/parallel/fault.h"

#include <math.h>

/* With padmask-wrong-tp-group the mask's rows are those of another rank, while its length is the rank's own. */
static struct sf_dim_map mask_rows(const struct sf_rank_run *run) {
  if (!run->parallel.sp || !sf_fault(run->env, SF_FAULT_PADMASK_WRONG_TP_GROUP)) return run->map_hidden.rows;
  const struct sf_dim_map part = sf_dim_map_part(run->tokens, run->parallel.tp.size, sf_fault_default_tp_index(run->env));
  return sf_dim_map_compose(&run->map_gathered.rows, &part);
}

void sf_router_loss_create(struct sf_router_loss *loss, struct sf_rank_run *run, int32_t layer) {
  const struct sf_moe *moe = &run->c->moe;
  *loss = (struct sf_router_loss){.balances = moe->aux_micro > 0, .has_z = moe->z_micro > 0};
  if (!loss->balances && !loss->has_z) return;
  loss->module = sf_rank_module(run, SF_MODULE_AUX_LOSS, layer);
  loss->scopes = moe->scope == SF_SCOPE_SEQUENCE ? run->c->train.microbatch_size : 1;
  loss->map_losses = sf_shard_map_whole((struct sf_shape){(loss->balances ? loss->scopes : 0) + loss->has_z, 1});
  loss->rows = mask_rows(run);
}

/* Rows are position * microbatch_size + sequence, and every run of rows begins with a position. */
static int64_t scope_of(const struct sf_rank_run *run, const struct sf_router_loss *loss, int64_t t) {
  return t % run->c->train.microbatch_size % loss->scopes;
}

static void load_valid(const struct sf_rank_run *run, const struct sf_router_loss *loss, float *valid) {
  const int64_t b = run->c->train.microbatch_size;
  for (int32_t i = 0; i < loss->rows.count; i++)
    for (int64_t row = loss->rows.runs[i].start; row < loss->rows.runs[i].start + loss->rows.runs[i].len; row++)
      *valid++ = row / b < sf_data_sequence_length(run->c, run->step, run->microbatch, row % b) ? 1.0f : 0.0f;
}

static void sum_over_tokens(struct sf_rank_run *run, float *values, int64_t count, const char *label) {
  const struct sf_group *group = &run->parallel.microbatch;
  if (group->size > 1) sf_all_reduce(run->env->comm, group, values, count, SF_F32, SF_REDUCE_SUM, label);
}

static void count_choices(struct sf_rank_run *run, const struct sf_router_loss *loss, struct sf_router_loss_acts *acts,
                          const int32_t *chosen) {
  const int64_t experts = run->c->moe.experts, topk = run->c->moe.topk, row = experts + 1;
  memset(acts->counts, 0, (size_t)(loss->scopes * row) * sizeof *acts->counts);
  for (int64_t t = 0; t < run->tokens_local; t++) {
    float *own = acts->counts + scope_of(run, loss, t) * row;
    for (int64_t k = 0; k < topk; k++) own[chosen[t * topk + k]] += acts->valid[t];
    own[experts] += acts->valid[t];
  }
  sum_over_tokens(run, acts->counts, loss->scopes * row, "router_loss.fwd.counts");
}

/* A sequence's first token is never padding, but a mask of other tokens may have none. */
static double at_least_one(float count) { return count > 1.0f ? (double)count : 1.0; }

/* experts / (topk n^2): the factor of a count times a sum of scores. */
static float balance_factor(const struct sf_moe *moe, const float *counts) {
  const double n = at_least_one(counts[moe->experts]);
  return (float)((double)moe->experts / ((double)moe->topk * n * n));
}

static float z_tokens(const struct sf_router_loss *loss, const struct sf_router_loss_acts *acts, int64_t experts) {
  float n = 0.0f;
  for (int64_t scope = 0; scope < loss->scopes; scope++) n += acts->counts[scope * (experts + 1) + experts];
  return (float)at_least_one(n);
}

/* The divisor that turns a token's scores into shares of 1. */
static float score_sum(const struct sf_moe *moe, const float *scores) {
  if (moe->router == SF_ROUTER_SOFTMAX) return 1.0f;
  float sum = 1e-20f;
  for (int64_t e = 0; e < moe->experts; e++) sum += scores[e];
  return sum;
}

/* log sum of exp(logit) = top + log(sum) */
struct exp_sum {
  float top, sum;
};

static struct exp_sum exp_sum_of(const float *logits, int64_t experts) {
  struct exp_sum out = {logits[0], 0.0f};
  for (int64_t e = 1; e < experts; e++) out.top = logits[e] > out.top ? logits[e] : out.top;
  for (int64_t e = 0; e < experts; e++) out.sum += expf(logits[e] - out.top);
  return out;
}

/* losses [scopes]: this rank's share of each. */
static void balance_losses(struct sf_rank_run *run, const struct sf_router_loss *loss, const struct sf_router_loss_acts *acts,
                           const struct sf_router_choice *choice, float *losses) {
  const struct sf_moe *moe = &run->c->moe;
  const int64_t experts = moe->experts;
  float *sums = sf_buffers_take_zeros(&run->acts, loss->scopes * experts);
  for (int64_t t = 0; t < run->tokens_local; t++) {
    if (acts->valid[t] == 0.0f) continue;
    const float *scores = choice->scores + t * experts, sum = score_sum(moe, scores);
    for (int64_t e = 0; e < experts; e++) sums[scope_of(run, loss, t) * experts + e] += scores[e] / sum;
  }
  for (int64_t scope = 0; scope < loss->scopes; scope++) {
    const float *counts = acts->counts + scope * (experts + 1);
    losses[scope] = 0.0f;
    for (int64_t e = 0; e < experts; e++) losses[scope] += counts[e] * sums[scope * experts + e];
    losses[scope] *= balance_factor(moe, counts);
  }
  sf_buffers_give(&run->acts, sums);
}

static float z_loss(const struct sf_rank_run *run, const struct sf_router_loss *loss, const struct sf_router_loss_acts *acts,
                    const struct sf_router_choice *choice) {
  const int64_t experts = run->c->moe.experts;
  float sum = 0.0f;
  for (int64_t t = 0; t < run->tokens_local; t++) {
    if (acts->valid[t] == 0.0f) continue;
    const struct exp_sum exps = exp_sum_of(choice->logits + t * experts, experts);
    const float log_sum = exps.top + logf(exps.sum);
    sum += log_sum * log_sum;
  }
  return sum / z_tokens(loss, acts, experts);
}

void sf_router_loss_forward(struct sf_rank_run *run, const struct sf_router_loss *loss, struct sf_router_loss_acts *acts,
                            const struct sf_router_choice *choice) {
  *acts = (struct sf_router_loss_acts){0};
  if (!loss->balances && !loss->has_z) return;
  const int64_t count = sf_dim_map_length(&loss->map_losses.rows);
  float *losses = sf_buffers_take(&run->acts, count);
  acts->counts = sf_buffers_take(&run->acts, loss->scopes * (run->c->moe.experts + 1));
  acts->valid = sf_buffers_take(&run->acts, run->tokens_local);
  load_valid(run, loss, acts->valid);
  count_choices(run, loss, acts, choice->chosen);
  if (loss->balances) balance_losses(run, loss, acts, choice, losses);
  if (loss->has_z) losses[count - 1] = z_loss(run, loss, acts, choice);
  sum_over_tokens(run, losses, count, "router_loss.fwd.losses");
  sf_trace_act(run, loss->module, &loss->map_losses, losses);
  sf_buffers_give(&run->acts, losses);
}

/* --- backward ----------------------------------------------------------------------------------------------------- */

/* The weight of a layer's losses relative to the main one: in the per-token mode the microbatch's tokens, because its gradients are divided
 * by the step's tokens at the end. */
static double weight_of(const struct sf_rank_run *run, double tokens) {
  const struct sf_parallel_state *p = &run->parallel;
  const bool per_token = run->c->train.loss_norm == SF_LOSS_PER_TOKEN;
  double weight = (run->scaler.on ? (double)run->scaler.scale : 1.0) * (per_token ? tokens : 1.0 / (double)run->c->train.microbatches);
  if (sf_fault(run->env, SF_FAULT_AUX_LOSS_NO_CP)) weight /= (double)p->cp.size;
  if (sf_fault(run->env, SF_FAULT_AUX_LOSS_TP_MULTIPLE)) weight *= (double)p->tp.size;
  if (sf_fault(run->env, SF_FAULT_AUX_PER_TOKEN_EXTRA_DIV) && per_token) weight /= (double)run->c->train.microbatches;
  return weight;
}

/* grad = share (slope - sum of share slope), slope = factor counts: through the softmax, or the shares of the logistic scores. */
static void balance_grad_row(const struct sf_moe *moe, const struct sf_router_choice *choice, int64_t t, const float *counts, float factor,
                             float *grad) {
  const int64_t experts = moe->experts;
  const float *scores = choice->scores + t * experts, *logits = choice->logits + t * experts, sum = score_sum(moe, scores);
  float mean = 0.0f;
  for (int64_t e = 0; e < experts; e++) mean += scores[e] / sum * (factor * counts[e]);
  for (int64_t e = 0; e < experts; e++) {
    const float through = moe->router == SF_ROUTER_SOFTMAX ? 1.0f : 1.0f / (1.0f + expf(logits[e]));
    grad[e] = scores[e] / sum * through * (factor * counts[e] - mean);
  }
}

/* grad += 2 factor log_sum softmax(logits) */
static void z_grad_row(const struct sf_moe *moe, const float *logits, float factor, float *grad) {
  const struct exp_sum exps = exp_sum_of(logits, moe->experts);
  const float slope = 2.0f * factor * (exps.top + logf(exps.sum));
  for (int64_t e = 0; e < moe->experts; e++) grad[e] += slope * (expf(logits[e] - exps.top) / exps.sum);
}

void sf_router_loss_backward(struct sf_rank_run *run, const struct sf_router_loss *loss, const struct sf_router_loss_acts *acts,
                             const struct sf_router_choice *choice, float *logits_grad) {
  if (!loss->balances && !loss->has_z) return;
  const struct sf_moe *moe = &run->c->moe;
  const int64_t experts = moe->experts, size = run->tokens_local * experts;
  const double tokens = (double)z_tokens(loss, acts, experts), weight = weight_of(run, tokens);
  const float z_factor = (float)(weight * (double)moe->z_micro * 1e-6 / tokens);
  const float balance_weight = (float)(weight * (double)moe->aux_micro * 1e-6 / (double)loss->scopes);
  float *grad = sf_buffers_take_zeros(&run->acts, size);
  for (int64_t t = 0; t < run->tokens_local; t++) {
    const float *counts = acts->counts + scope_of(run, loss, t) * (experts + 1);
    if (acts->valid[t] == 0.0f) continue;
    if (loss->balances) balance_grad_row(moe, choice, t, counts, balance_weight * balance_factor(moe, counts), grad + t * experts);
    if (loss->has_z) z_grad_row(moe, choice->logits + t * experts, z_factor, grad + t * experts);
  }
  const struct sf_shard_map map = {.rows = run->map_hidden.rows, .cols = sf_dim_map_whole(experts)};
  sf_trace_act_grad(run, loss->module, &map, grad);
  run->env->device->ops->add(run->env->device, logits_grad, logits_grad, grad, size, SF_F32);
  sf_buffers_give(&run->acts, grad);
}
