/* Template: the losses of a router itself: load balancing among the experts, and z loss. They touch nothing but the gradient of its logits.
 */
#ifndef SF_ORACLES_REFERENCE_AUX_LOSS_H
#define SF_ORACLES_REFERENCE_AUX_LOSS_H

#include "oracles/reference/reference_ends.h"
#include "oracles/reference/reference_moe.h"

/* Whether the case has a load-balancing or a z loss. */
static inline bool has_aux_losses(const struct run *run) { return run->c->moe.aux_micro > 0 || run->c->moe.z_micro > 0; }

/* Sets of tokens that each have a load-balancing loss: sequences, or the microbatch. */
static inline int64_t aux_scopes(const struct run *run) {
  return run->c->moe.scope == SF_SCOPE_SEQUENCE ? run->c->train.microbatch_size : 1;
}

/* The scope of token row t. */
static inline int64_t aux_scope_of(const struct run *run, int64_t t) { return t % run->c->train.microbatch_size % aux_scopes(run); }

/* Sets of tokens in each scope, of which a supposed mistake looks at one at a time; 1: there is no such mistake. */
static inline int32_t aux_sets(const struct run *run) {
  const int32_t choices = sets_within(run, SF_WITHIN_CHOICES), scores = sets_within(run, SF_WITHIN_SCORES);
  return choices > 1 ? choices : scores > 1 ? scores : sets_within(run, SF_WITHIN_TOKENS);
}

/* The set of token row t. */
static inline int32_t aux_set_of(const struct run *run, int64_t t) {
  return aux_sets(run) > 1 ? run->options->supposed->set_of[t / run->c->train.microbatch_size] : 0;
}

/* The set whose numbers the losses have, as one rank would. */
static inline int32_t aux_set_at_hand(const struct run *run) { return aux_sets(run) > 1 ? run->options->supposed->set : 0; }

/* Memory of one layer, if the case has such losses. */
static inline void take_aux_losses(struct run *run, struct moe_acts *acts) {
  const int64_t t = run->tokens, experts = run->c->moe.experts, scopes = aux_scopes(run);
  if (!has_aux_losses(run)) return;
  acts->balance_scores = run->c->moe.router == SF_ROUTER_SOFTMAX ? acts->scores : take(run, t * experts);
  acts->log_sums = take(run, t);
  acts->aux_losses = take(run, scopes + 1);
  acts->choices = take_indices(run, scopes * aux_sets(run) * experts);
  acts->scope_tokens = take_indices(run, scopes * aux_sets(run));
}

/* Memory that all layers share. */
static inline void take_aux_scratch(struct run *run) {
  const int64_t t = run->tokens, experts = run->c->moe.experts;
  if (!has_aux_losses(run)) return;
  run->moe.aux_grad = take(run, t * experts);
  run->moe.aux_rows = take(run, t * experts);
  run->moe.aux_sums = take(run, aux_scopes(run) * aux_sets(run) * experts);
  run->moe.counted = take_indices(run, t);
}

/* counted: 0 for padding, which takes no part, else 1. */
static inline void load_counted(struct run *run) {
  const int64_t b = run->c->train.microbatch_size;
  const struct moment of = moment_of(run, SF_DATA_PADDING);
  const struct sf_supposed *supposed = run->options->supposed;
  for (int64_t sequence = 0; sequence < b; sequence++) {
    const int64_t seen = supposed != NULL && supposed->of_first_sequence ? 0 : sequence,
                  length = sf_data_sequence_length(run->c, of.step, of.microbatch, seen);
    for (int64_t i = 0; i < run->c->model.seq; i++) run->moe.counted[i * b + sequence] = i < length;
  }
}

/* How many tokens each set of each scope has, and how many of those chose each expert, dropped or not. */
static inline void count_choices(struct run *run, struct moe_acts *acts) {
  const int64_t sets = aux_sets(run), counts = aux_scopes(run) * sets, experts = run->c->moe.experts, topk = run->c->moe.topk;
  memset(acts->choices, 0, (size_t)(counts * experts) * sizeof *acts->choices);
  memset(acts->scope_tokens, 0, (size_t)counts * sizeof *acts->scope_tokens);
  for (int64_t t = 0; t < run->tokens; t++) {
    const int64_t at = aux_scope_of(run, t) * sets + aux_set_of(run, t);
    acts->scope_tokens[at] += run->moe.counted[t];
    for (int64_t k = 0; k < (has_slip(run, SF_SLIP_ONE_CHOICE_COUNTS) ? 1 : topk); k++)
      acts->choices[at * experts + acts->chosen[t * topk + k]] += run->moe.counted[t];
  }
}

/* What is counted for a scope (counts: [scopes x sets x width]); of one set where a mistake is supposed, else of all tokens. */
static inline double counted_within(const struct run *run, enum sf_within what, const int32_t *counts, int64_t scope, int32_t set,
                                    int64_t width, int64_t column) {
  const int32_t sets = aux_sets(run);
  double sum = 0;
  if (sets_within(run, what) > 1) return (double)counts[(scope * sets + set) * width + column];
  for (int32_t i = 0; i < sets; i++) sum += (double)counts[(scope * sets + i) * width + column];
  return sum;
}
static inline double choices_of(const struct run *run, const struct moe_acts *acts, int64_t scope, int32_t set, int64_t expert) {
  return counted_within(run, SF_WITHIN_CHOICES, acts->choices, scope, set, run->c->moe.experts, expert);
}
static inline double tokens_of(const struct run *run, const struct moe_acts *acts, int64_t scope, int32_t set) {
  return counted_within(run, SF_WITHIN_TOKENS, acts->scope_tokens, scope, set, 1, 0);
}

/* Of all scopes and sets. */
static inline double counted_tokens(const struct run *run, const struct moe_acts *acts) {
  double sum = 0;
  for (int64_t at = 0; at < aux_scopes(run) * aux_sets(run); at++) sum += (double)acts->scope_tokens[at];
  return sum;
}

/* Tokens of a set in all scopes, which a z loss divides by. */
static inline double z_tokens(const struct run *run, const struct moe_acts *acts, int32_t set) {
  double sum = 0;
  for (int64_t scope = 0; scope < aux_scopes(run); scope++) sum += tokens_of(run, acts, scope, set);
  return sum;
}

/* Parts that the losses of sets are divided by. */
static inline double aux_shares(const struct run *run) { return (double)sets_within(run, SF_WITHIN_SHARE); }

/* The shares that scores have among all experts; softmax has them already. */
static inline void share_scores(struct run *run, struct moe_acts *acts, struct sf_trace_id id) {
  const int64_t experts = run->c->moe.experts;
  const struct inner sums = inner_of(run, id, 0), shares = inner_of(run, id, 1);
  if (acts->balance_scores == acts->scores) return;
  for (int64_t t = 0; t < run->tokens; t++) {
    const real *restrict scores = acts->scores + t * experts;
    real *restrict out = acts->balance_scores + t * experts;
    const real sum = has_slip(run, SF_SLIP_RAW_SHARES) ? 1 : inner_number(sums, t, row_sum(scores, experts) + (real)1e-20);
    for (int64_t e = 0; e < experts; e++) out[e] = scores[e] / sum;
    inner_perturb(shares, t * experts, out, experts);
  }
}

/* out [cols] = sum over rows of x. In double but in E5, whose sums are those of a candidate: terms that are all alike are rounded alike, so
 * that a chain in fp32 would be as far off as any candidate, and no order of it would show how far. A loss is one number, though, and some
 * orders of a chain end near the true sum by chance, all draws of one loss in a few thousand: E3 moves a sum by what that many additions
 * are off by as a rule. */
static inline void sum_tokens(struct run *run, real *restrict out, const real *restrict x, int64_t rows, int64_t cols, struct inner inner,
                              int64_t first) {
  if (run->options->perturb == SF_PERTURB_SPLIT) {
    sum_rows(&run->noise, out, x, rows, cols);
    return;
  }
  const double rule = sqrt((double)rows) / 2 * 0x1p-24;
  for (int64_t j = 0; j < cols; j++) {
    double sum = 0;
    for (int64_t i = 0; i < rows; i++) sum += (double)x[i * cols + j];
    if (inner.on) sum *= sf_mix64(inner.key + (uint64_t)(first + j)) % 2 == 0 ? 1 + rule : 1 - rule;
    out[j] = (real)sum;
  }
}

/* experts / (topk n^2) sum over experts of (how often it was chosen) (sum of its scores). */
static inline real balance_loss(struct run *run, const struct moe_acts *acts, int64_t scope, struct inner inner) {
  const int64_t experts = run->c->moe.experts;
  const int32_t set = aux_set_at_hand(run);
  const double n = tokens_of(run, acts, scope, set);
  real *sums = run->moe.aux_sums + scope * experts;
  int64_t rows = 0;
  for (int64_t t = 0; t < run->tokens; t++) {
    if (!run->moe.counted[t] || aux_scope_of(run, t) != scope) continue;
    if (sets_within(run, SF_WITHIN_SCORES) > 1 && aux_set_of(run, t) != set) continue;
    memcpy(run->moe.aux_rows + rows++ * experts, acts->balance_scores + t * experts, (size_t)experts * sizeof(real));
  }
  sum_tokens(run, sums, run->moe.aux_rows, rows, experts, inner, scope * experts);
  inner_perturb(inner, scope * experts, sums, experts);
  double total = 0;
  for (int64_t e = 0; e < experts; e++) total += choices_of(run, acts, scope, set, e) * (double)sums[e];
  return (real)(total * (double)experts / ((double)run->c->moe.topk * n * n * aux_shares(run)));
}

/* The mean of the squared logarithms of sum exp(logit). */
static inline real z_loss(struct run *run, struct moe_acts *acts, struct sf_trace_id id) {
  const int64_t experts = run->c->moe.experts;
  const struct inner exps = inner_of(run, id, 2), logs = inner_of(run, id, 3), sums = inner_of(run, id, 4), squares = inner_of(run, id, 5);
  const struct inner totals = inner_of(run, id, 7);
  int64_t rows = 0;
  for (int64_t t = 0; t < run->tokens; t++) {
    real top;
    const real sum = exp_row(exps, t, run->moe.aux_sums, acts->logits + t * experts, experts, &top);
    acts->log_sums[t] = inner_number(sums, t, top + inner_number(logs, t, real_log(sum)));
    const bool is_seen = sets_within(run, SF_WITHIN_SCORES) == 1 || aux_set_of(run, t) == aux_set_at_hand(run);
    if (run->moe.counted[t] && is_seen) run->moe.aux_rows[rows++] = inner_number(squares, t, acts->log_sums[t] * acts->log_sums[t]);
  }
  real total;
  sum_tokens(run, &total, run->moe.aux_rows, rows, 1, totals, 0);
  return inner_number(totals, 1, total / (real)(z_tokens(run, acts, aux_set_at_hand(run)) * aux_shares(run)));
}

/* Fills acts->aux_losses: the scopes' load-balancing losses, then the z loss; traced as one tensor. */
static inline void aux_losses_forward(struct run *run, int32_t layer, struct moe_acts *acts) {
  if (!has_aux_losses(run)) return;
  const struct sf_trace_id id = act_id(run, SF_MODULE_AUX_LOSS, layer, SF_KIND_ACT);
  const struct inner inner = inner_of(run, id, 6);
  int64_t count = 0;
  load_counted(run);
  count_choices(run, acts);
  if (run->c->moe.aux_micro > 0) {
    share_scores(run, acts, id);
    for (int64_t scope = 0; scope < aux_scopes(run); scope++) acts->aux_losses[count++] = balance_loss(run, acts, scope, inner);
  }
  if (run->c->moe.z_micro > 0) acts->aux_losses[count++] = z_loss(run, acts, id);
  finish(run, id, acts->aux_losses, count, 1, SF_F32);
}

/* aux_sums: what a score of each expert adds to the weighted loss of each scope and set. */
static inline void balance_slopes(struct run *run, const struct moe_acts *acts, double weight, struct inner inner) {
  const struct sf_moe *moe = &run->c->moe;
  const int64_t scopes = aux_scopes(run), counts = scopes * aux_sets(run);
  for (int64_t at = 0; at < counts; at++) {
    const int64_t scope = at / aux_sets(run);
    const int32_t set = (int32_t)(at % aux_sets(run));
    const double n = tokens_of(run, acts, scope, set), shares = (double)scopes * aux_shares(run);
    const double factor = weight * (double)moe->aux_micro / 1e6 / shares * (double)moe->experts / ((double)moe->topk * n * n);
    for (int64_t e = 0; e < moe->experts; e++)
      run->moe.aux_sums[at * moe->experts + e] = (real)(factor * choices_of(run, acts, scope, set, e));
  }
  inner_perturb(inner, 0, run->moe.aux_sums, counts * moe->experts);
}

/* What E3 reaches of the load-balancing gradient: each term of the mean slope and the mean, which may cancel with the slope, and the
 * result. */
struct balance_inner {
  struct inner products, means, results;
};

/* grad = that of the load-balancing loss with respect to token t's logits. */
static inline void balance_grad(struct run *run, const struct moe_acts *acts, int64_t t, real *grad, const struct balance_inner *inner) {
  const int64_t experts = run->c->moe.experts;
  const bool is_softmax = run->c->moe.router == SF_ROUTER_SOFTMAX;
  const real *shares = acts->balance_scores + t * experts,
             *slopes = run->moe.aux_sums + (aux_scope_of(run, t) * aux_sets(run) + aux_set_of(run, t)) * experts;
  for (int64_t e = 0; e < experts; e++) grad[e] = shares[e] * slopes[e];
  inner_perturb(inner->products, t * experts, grad, experts);
  const real mean = inner_number(inner->means, t, row_sum(grad, experts));
  for (int64_t e = 0; e < experts; e++) grad[e] = shares[e] * (slopes[e] - mean);
  if (!is_softmax)
    for (int64_t e = 0; e < experts; e++) grad[e] *= sigmoid(-acts->logits[t * experts + e]);
  inner_perturb(inner->results, t * experts, grad, experts);
}

/* grad += 2 factor log_sum softmax(logits) */
static inline void add_z_grad(struct run *run, const struct moe_acts *acts, int64_t t, real *grad, real factor, struct inner exps,
                              struct inner sums) {
  const int64_t experts = run->c->moe.experts;
  real top, *terms = run->moe.aux_rows;
  const real sum = inner_number(sums, t, exp_row(exps, t, terms, acts->logits + t * experts, experts, &top));
  const real slope = factor * 2 * acts->log_sums[t];
  for (int64_t e = 0; e < experts; e++) terms[e] = slope * (terms[e] / sum);
  for (int64_t e = 0; e < experts; e++) grad[e] += terms[e];
}

/* Adds the gradient of the auxiliary losses to that of the logits. */
static inline void aux_losses_backward(struct run *run, int32_t layer, const struct moe_acts *acts) {
  if (!has_aux_losses(run)) return;
  const struct sf_moe *moe = &run->c->moe;
  const struct sf_trace_id id = act_id(run, SF_MODULE_AUX_LOSS, layer, SF_KIND_ACT_GRAD);
  const struct balance_inner inner = {inner_of(run, id, 0), inner_of(run, id, 1), inner_of(run, id, 2)};
  const struct inner exps = inner_of(run, id, 3), sums = inner_of(run, id, 4);
  const bool per_token = run->c->train.loss_norm == SF_LOSS_PER_TOKEN;
  const double n = counted_tokens(run, acts), weight = run->state.loss_scale * (per_token ? n : 1 / (double)run->c->train.microbatches);
  load_counted(run);
  balance_slopes(run, acts, weight, inner_of(run, id, 5));
  memset(run->moe.aux_grad, 0, (size_t)(run->tokens * moe->experts) * sizeof(real));
  for (int64_t t = 0; t < run->tokens; t++) {
    real *grad = run->moe.aux_grad + t * moe->experts;
    if (!run->moe.counted[t] && !has_slip(run, SF_SLIP_PADDING_COUNTS)) continue;
    if (moe->aux_micro > 0) balance_grad(run, acts, t, grad, &inner);
    const double z_mean = z_tokens(run, acts, aux_set_of(run, t)) * aux_shares(run);
    if (moe->z_micro > 0) add_z_grad(run, acts, t, grad, (real)(weight * (double)moe->z_micro / 1e6 / z_mean), exps, sums);
  }
  finish(run, id, run->moe.aux_grad, run->tokens, moe->experts, SF_F32);
  for (int64_t i = 0; i < run->tokens * moe->experts; i++) run->moe.logits_grad[i] += run->moe.aux_grad[i];
  inner_perturb(inner_of(run, act_id(run, SF_MODULE_ROUTER, layer, SF_KIND_ACT_GRAD), 0), 0, run->moe.logits_grad,
                run->tokens * moe->experts);
}

#endif
