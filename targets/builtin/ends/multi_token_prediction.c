#include "targets/builtin/ends/multi_token_prediction.h"

#include "targets/builtin/norm/residual.h"
#include "targets/builtin/parallel/fault.h"
#include "targets/builtin/parallel/mappings.h"
#include "targets/builtin/parallel/matrix.h"

/* --- building --------------------------------------------------------------------------------------------------- */

static void create_depth(struct sf_mtp *mtp, struct sf_rank_run *run, int32_t k, struct sf_parameter *word, struct sf_parameter *head,
                         const float *cos_sin) {
  const struct sf_model *m = &run->c->model;
  const int32_t layer = (int32_t)m->layers + k;
  struct sf_mtp_depth *depth = &mtp->depths[k];
  sf_vocab_parallel_embedding_share(&depth->embedding, run, word, sf_rank_module(run, SF_MODULE_MTP_EMBEDDING, layer),
                                    SF_CALL_MTP_EMBEDDING + SF_CALLS_PER_DEPTH * k, &mtp->tp);
  sf_norm_layer_create(&depth->enorm, run, SF_MODULE_MTP_ENORM, layer);
  sf_norm_layer_create(&depth->hnorm, run, SF_MODULE_MTP_HNORM, layer);
  sf_linear_create(&depth->eh_proj, run, SF_LINEAR_GATHERED_COLUMN, SF_MODULE_MTP_EH_PROJ, layer, &mtp->tp, NULL);
  sf_transformer_layer_create(&depth->layer, run, layer, cos_sin);
  sf_norm_layer_create(&depth->final_norm, run, SF_MODULE_MTP_FINAL_LAYERNORM, layer);
  sf_linear_create_shared(&depth->output_layer, run, SF_MODULE_MTP_OUTPUT_LAYER, layer, &mtp->tp, head,
                          SF_CALL_MTP_HEAD + SF_CALLS_PER_DEPTH * k);
  sf_vocab_parallel_cross_entropy_create(&depth->cross_entropy, run, &mtp->tp);
  depth->cross_entropy.module = sf_rank_module(run, SF_MODULE_MTP_LOSS, layer);
}

void sf_mtp_create(struct sf_mtp *mtp, struct sf_rank_run *run, struct sf_parameter *word, struct sf_parameter *head,
                   const float *cos_sin) {
  const struct sf_parallel_state *p = &run->parallel;
  *mtp = (struct sf_mtp){.count = (int32_t)run->c->model.mtp_depth, .tp = p->tp};
  mtp->depths = sf_rank_alloc(run->env, (size_t)mtp->count * sizeof *mtp->depths);
  memset(mtp->depths, 0, (size_t)mtp->count * sizeof *mtp->depths);
  for (int32_t k = 0; k < mtp->count; k++) create_depth(mtp, run, k, word, head, cos_sin);
  word->uses += mtp->count;
  head->uses += mtp->count;
}

void sf_mtp_acts_create(struct sf_mtp_acts *acts, struct sf_rank_run *run) {
  const size_t tokens = (size_t)run->tokens;
  *acts = (struct sf_mtp_acts){0};
  acts->tokens = sf_rank_alloc(run->env, tokens * sizeof(int32_t));
  acts->labels = sf_rank_alloc(run->env, tokens * sizeof(int32_t));
  acts->weight = sf_rank_alloc(run->env, tokens * sizeof(float));
  acts->grad_weight = run->scaler.on ? sf_rank_alloc(run->env, tokens * sizeof(float)) : acts->weight;
}

/* --- data ------------------------------------------------------------------------------------------------------- */

static double sum(const float *values, int64_t count) {
  double total = 0.0;
  for (int64_t i = 0; i < count; i++) total += (double)values[i];
  return total;
}

/* The sum over this cp rank's tokens. */
static double own_sum(const struct sf_rank_run *run, const float *whole) {
  const struct sf_dim_map *rows = &run->map_gathered.rows;
  double total = 0.0;
  for (int32_t i = 0; i < rows->count; i++) total += sum(whole + rows->runs[i].start, rows->runs[i].len);
  return total;
}

/* Counts the kept tokens of this rank's microbatches of the step, then of all ranks: for the main loss, and for each depth. */
static void count_step(struct sf_rank_run *run, struct sf_mtp *mtp) {
  const struct sf_group *dp = &run->parallel.dp, *all = &run->parallel.dp_cp;
  double kept[3] = {0};
  if (mtp->counted && mtp->step == run->step) return;
  for (int64_t m = dp->index; m < run->c->train.microbatches; m += dp->size)
    for (int32_t k = 0; k <= mtp->count; k++) {
      if (k == 0)
        sf_data_microbatch(NULL, NULL, run->whole_mask, run->c, run->step, m);
      else
        sf_data_ahead(NULL, NULL, run->whole_mask, run->c, run->step, m, k - 1);
      kept[k] += own_sum(run, run->whole_mask);
    }
  if (all->size > 1 && !sf_fault(run->env, SF_FAULT_MTP_LOCAL_TOKEN_NORM)) {
    sf_all_reduce(run->env->comm, all, kept, 1, SF_F64, SF_REDUCE_SUM, "mtp.fwd.main_tokens");
    sf_all_reduce(run->env->comm, all, kept + 1, mtp->count, SF_F64, SF_REDUCE_SUM, "mtp.fwd.kept_tokens");
  }
  for (int32_t k = 0; k < mtp->count; k++) mtp->ratio[k] = kept[k + 1] > 0 ? kept[0] / kept[k + 1] : 0;
  mtp->step = run->step;
  mtp->counted = true;
}

static void load_data(struct sf_rank_run *run, struct sf_mtp *mtp, int32_t k, struct sf_mtp_acts *acts) {
  const struct sf_train *train = &run->c->train;
  double share = (double)train->mtp_weight_milli / (1000.0 * (double)mtp->count);
  sf_data_ahead(run->whole_ids, NULL, run->whole_mask, run->c, run->step, run->microbatch, k);
  const double kept = sum(run->whole_mask, run->c->model.seq * train->microbatch_size);
  if (train->loss_norm == SF_LOSS_PER_TOKEN)
    share *= mtp->ratio[k];
  else
    share = kept > 0 ? share / (kept * (double)train->microbatches) : 0;
  sf_mapping_own_tokens(run, acts->tokens, run->whole_ids);
  sf_mapping_own_tokens(run, acts->weight, run->whole_mask);
  sf_data_ahead(NULL, run->whole_ids, NULL, run->c, run->step, run->microbatch, k);
  sf_mapping_own_tokens(run, acts->labels, run->whole_ids);
  for (int64_t t = 0; t < run->tokens; t++) acts->weight[t] *= (float)share;
  for (int64_t t = 0; acts->grad_weight != acts->weight && t < run->tokens; t++) acts->grad_weight[t] = acts->weight[t] * run->scaler.scale;
}

/* --- a depth ---------------------------------------------------------------------------------------------------- */

/* enormed, hnormed: [tokens_local x h], taken. Returns them side by side, [tokens_local x 2h]. */
static float *join(struct sf_rank_run *run, float *enormed, float *hnormed) {
  const int64_t h = run->hidden;
  float *pair = sf_buffers_take(&run->acts, run->tokens_local * 2 * h);
  sf_copy_columns(pair, 2 * h, enormed, h, run->tokens_local, h);
  sf_copy_columns(pair + h, 2 * h, hnormed, h, run->tokens_local, h);
  sf_buffers_give(&run->acts, enormed);
  sf_buffers_give(&run->acts, hnormed);
  return pair;
}

/* saved->input is set. Returns what the next depth reads, the caller's; NULL behind the last. */
static float *depth_forward(struct sf_rank_run *run, const struct sf_mtp *mtp, int32_t k, struct sf_mtp_acts *acts) {
  const struct sf_mtp_depth *depth = &mtp->depths[k];
  struct sf_mtp_saved *saved = &acts->saved;
  saved->embedded = sf_vocab_parallel_embedding_forward(run, &depth->embedding, acts->tokens);
  float *enormed = sf_norm_layer_forward(run, &depth->enorm, saved->embedded, &saved->enorm_stats);
  float *hnormed = sf_norm_layer_forward(run, &depth->hnorm, saved->input, &saved->hnorm_stats);
  float *x = sf_linear_forward(run, &depth->eh_proj, join(run, enormed, hnormed), &saved->pair);
  saved->final_input = sf_transformer_layer_forward(run, &depth->layer, &acts->layer, x);
  float *normed = sf_norm_layer_forward(run, &depth->final_norm, saved->final_input, &saved->final_stats);
  float *next = k + 1 < mtp->count ? sf_buffers_copy(&run->acts, normed, run->tokens_local * run->hidden) : NULL;
  float *logits = sf_linear_forward(run, &depth->output_layer, normed, &saved->head_input);
  sf_buffers_give(&run->acts, sf_vocab_parallel_cross_entropy_forward(run, &depth->cross_entropy, &saved->loss, logits, acts->labels));
  return next;
}

void sf_mtp_forward(struct sf_rank_run *run, struct sf_mtp *mtp, struct sf_mtp_acts *acts, float *hidden) {
  float *input = hidden;
  if (run->c->train.loss_norm == SF_LOSS_PER_TOKEN) count_step(run, mtp);
  for (int32_t k = 0; k < mtp->count; k++) {
    load_data(run, mtp, k, &acts[k]);
    acts[k].saved.input = input;
    input = depth_forward(run, mtp, k, &acts[k]);
  }
}

/* other: gradient from the next depth, taken; NULL at the last. Returns the gradient of saved->input, the caller's. */
static float *depth_backward(struct sf_rank_run *run, const struct sf_mtp *mtp, int32_t k, struct sf_mtp_acts *acts, float *other) {
  struct sf_device *dev = run->env->device;
  const struct sf_mtp_depth *depth = &mtp->depths[k];
  struct sf_mtp_saved *saved = &acts->saved;
  const int64_t h = run->hidden, count = run->tokens_local * h;
  float *logits_grad = sf_vocab_parallel_cross_entropy_backward(run, &depth->cross_entropy, &saved->loss, acts->labels, acts->grad_weight);
  float *normed_grad = sf_linear_backward(run, &depth->output_layer, logits_grad, saved->head_input);
  sf_buffers_give(&run->acts, logits_grad);
  if (other != NULL) dev->ops->add(dev, normed_grad, normed_grad, other, count, run->dtype);
  sf_buffers_give(&run->acts, other);
  float *grad = sf_norm_layer_backward(run, &depth->final_norm, normed_grad, saved->final_input, saved->final_stats);
  sf_buffers_give(&run->acts, normed_grad);
  sf_transformer_layer_backward(run, &depth->layer, &acts->layer, grad);
  float *given = sf_residual_rounded(run, grad);
  float *pair_grad = sf_linear_backward(run, &depth->eh_proj, given, saved->pair);
  sf_residual_rounded_give(run, grad, given);
  sf_copy_columns(grad, h, pair_grad, 2 * h, run->tokens_local, h);
  float *embedded_grad = sf_norm_layer_backward(run, &depth->enorm, grad, saved->embedded, saved->enorm_stats);
  sf_vocab_parallel_embedding_backward(run, &depth->embedding, embedded_grad, acts->tokens);
  sf_buffers_give(&run->acts, embedded_grad);
  sf_copy_columns(grad, h, pair_grad + h, 2 * h, run->tokens_local, h);
  sf_buffers_give(&run->acts, pair_grad);
  float *input_grad = sf_norm_layer_backward(run, &depth->hnorm, grad, saved->input, saved->hnorm_stats);
  sf_buffers_give(&run->acts, grad);
  sf_buffers_give_record(&run->acts, saved, sizeof *saved);
  return input_grad;
}

float *sf_mtp_backward(struct sf_rank_run *run, struct sf_mtp *mtp, struct sf_mtp_acts *acts) {
  float *grad = NULL;
  for (int32_t k = mtp->count; k-- > 0;) grad = depth_backward(run, mtp, k, &acts[k], grad);
  return grad;
}
