#include "targets/builtin/ends/multi_token_prediction.h"

#include "targets/builtin/parallel/fault.h"
#include "targets/builtin/linear/linear.h"
#include "targets/builtin/norm/residual.h"
#include "targets/plugin/plugged_layer.h"

/* --- building --------------------------------------------------------------------------------------------------- */

static void plug_eh_proj(const struct sf_mtp *mtp, struct sf_mtp_depth *depth, struct sf_rank_run *run, int32_t layer) {
  struct sf_plugged *plugged = depth->plugged_eh_proj = sf_plugged_create(run, SF_MODULE_MTP_EH_PROJ, layer, false, mtp->sp);
  if (plugged == NULL) return;
  plugged->in_map = &mtp->map_pair;
  plugged->out_map = &run->map_hidden;
  sf_plugged_add_parameter(plugged, "weight", depth->eh_proj, 0);
}

static void create_depth(struct sf_mtp *mtp, struct sf_rank_run *run, int32_t k, struct sf_parameter *word, struct sf_parameter *head,
                         const float *cos_sin) {
  const struct sf_model *m = &run->c->model;
  const int32_t layer = (int32_t)m->layers + k;
  struct sf_mtp_depth *depth = &mtp->depths[k];
  sf_vocab_parallel_embedding_share(&depth->embedding, run, word, sf_rank_module(run, SF_MODULE_MTP_EMBEDDING, layer),
                                    SF_CALL_MTP_EMBEDDING + SF_CALLS_PER_DEPTH * k, &mtp->tp, mtp->sp);
  sf_norm_layer_create(&depth->enorm, run, SF_MODULE_MTP_ENORM, layer, mtp->sp);
  sf_norm_layer_create(&depth->hnorm, run, SF_MODULE_MTP_HNORM, layer, mtp->sp);
  const struct sf_parameter_cut cut = {sf_dim_map_part(m->hidden, mtp->tp.size, mtp->tp.index), sf_dim_map_whole(2 * m->hidden)};
  depth->eh_proj = sf_parameter_create(run, SF_MODULE_MTP_EH_PROJ, layer, 0, &cut);
  depth->module_eh_proj = sf_rank_module(run, SF_MODULE_MTP_EH_PROJ, layer);
  plug_eh_proj(mtp, depth, run, layer);
  sf_transformer_layer_create(&depth->layer, run, layer, cos_sin);
  sf_norm_layer_create(&depth->final_norm, run, SF_MODULE_MTP_FINAL_LAYERNORM, layer, mtp->sp);
  const struct sf_dim_map vocab = sf_dim_map_part(m->vocab_padded, mtp->tp.size, mtp->tp.index);
  sf_column_parallel_linear_create(&depth->output_layer, run, SF_MODULE_MTP_OUTPUT_LAYER, layer, &vocab, head, &mtp->tp, mtp->sp);
  sf_column_parallel_linear_set_call(&depth->output_layer, SF_CALL_MTP_HEAD + SF_CALLS_PER_DEPTH * k);
  sf_vocab_parallel_cross_entropy_create(&depth->cross_entropy, run, &mtp->tp);
  depth->cross_entropy.module = sf_rank_module(run, SF_MODULE_MTP_LOSS, layer);
}

void sf_mtp_create(struct sf_mtp *mtp, struct sf_rank_run *run, struct sf_parameter *word, struct sf_parameter *head,
                   const float *cos_sin) {
  const struct sf_parallel_state *p = &run->parallel;
  const size_t tokens = (size_t)(run->c->model.seq * run->c->train.microbatch_size);
  *mtp = (struct sf_mtp){.count = (int32_t)run->c->model.mtp_depth, .tp = p->tp, .sp = p->sp};
  mtp->map_pair = (struct sf_shard_map){.rows = run->map_hidden.rows, .cols = sf_dim_map_whole(2 * run->hidden)};
  for (int32_t k = 0; k < mtp->count; k++) create_depth(mtp, run, k, word, head, cos_sin);
  word->uses += mtp->count;
  head->uses += mtp->count;
  mtp->whole_ids = sf_rank_alloc(run->env, tokens * sizeof(int32_t));
  mtp->whole_mask = sf_rank_alloc(run->env, tokens * sizeof(float));
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
        sf_data_microbatch(NULL, NULL, mtp->whole_mask, run->c, run->step, m);
      else
        sf_data_ahead(NULL, NULL, mtp->whole_mask, run->c, run->step, m, k - 1);
      kept[k] += own_sum(run, mtp->whole_mask);
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
  const struct sf_dim_map *rows = &run->map_gathered.rows;
  double share = (double)train->mtp_weight_milli / (1000.0 * (double)mtp->count);
  int64_t at = 0;
  sf_data_ahead(mtp->whole_ids, NULL, mtp->whole_mask, run->c, run->step, run->microbatch, k);
  const double kept = sum(mtp->whole_mask, run->c->model.seq * train->microbatch_size);
  if (train->loss_norm == SF_LOSS_PER_TOKEN)
    share *= mtp->ratio[k];
  else
    share = kept > 0 ? share / (kept * (double)train->microbatches) : 0;
  for (int32_t i = 0; i < rows->count; at += rows->runs[i++].len) {
    memcpy(acts->tokens + at, mtp->whole_ids + rows->runs[i].start, (size_t)rows->runs[i].len * sizeof(int32_t));
    memcpy(acts->weight + at, mtp->whole_mask + rows->runs[i].start, (size_t)rows->runs[i].len * sizeof(float));
  }
  sf_data_ahead(NULL, mtp->whole_ids, NULL, run->c, run->step, run->microbatch, k);
  at = 0;
  for (int32_t i = 0; i < rows->count; at += rows->runs[i++].len)
    memcpy(acts->labels + at, mtp->whole_ids + rows->runs[i].start, (size_t)rows->runs[i].len * sizeof(int32_t));
  for (int64_t t = 0; t < run->tokens; t++) acts->weight[t] *= (float)share;
  for (int64_t t = 0; acts->grad_weight != acts->weight && t < run->tokens; t++) acts->grad_weight[t] = acts->weight[t] * run->scaler.scale;
}

/* --- eh_proj ---------------------------------------------------------------------------------------------------- */

/* This rank's columns of out, `cols` of each of tp ranks, between rows as they stand and a dense piece. */
static void copy_columns(float *to, int64_t to_ld, const float *from, int64_t from_ld, int64_t rows, int64_t cols) {
  for (int64_t t = 0; t < rows; t++) memcpy(to + t * to_ld, from + t * from_ld, (size_t)cols * sizeof *to);
}

/* enormed, hnormed: [tokens_local x h], taken. Returns [tokens_local x h]. */
static float *eh_proj_forward(struct sf_rank_run *run, const struct sf_mtp *mtp, const struct sf_mtp_depth *depth, struct sf_mtp_acts *acts,
                              float *enormed, float *hnormed) {
  const struct sf_rank_env *env = run->env;
  const int64_t h = run->hidden, own = h / mtp->tp.size, tokens = run->tokens;
  float *pair = sf_buffers_take(&run->acts, run->tokens_local * 2 * h);
  copy_columns(pair, 2 * h, enormed, h, run->tokens_local, h);
  copy_columns(pair + h, 2 * h, hnormed, h, run->tokens_local, h);
  sf_buffers_give(&run->acts, enormed);
  sf_buffers_give(&run->acts, hnormed);
  acts->pair = pair;
  if (depth->plugged_eh_proj != NULL) return sf_plugged_forward(run, depth->plugged_eh_proj, pair);
  if (mtp->sp) {
    float *gathered = sf_buffers_take(&run->acts, tokens * 2 * h);
    sf_all_gather(env->comm, &mtp->tp, gathered, pair, run->tokens_local * 2 * h, run->dtype, "mtp.fwd.all_gather");
    sf_buffers_give(&run->acts, pair);
    pair = gathered;
  }
  acts->pair = pair;
  float *part = sf_buffers_take(&run->acts, tokens * own);
  sf_linear_forward(env->device, part, pair, depth->eh_proj->model, tokens, 2 * h, own, run->dtype);
  float *out = part;
  if (mtp->tp.size > 1) {
    float *parts = sf_buffers_take(&run->acts, tokens * h);
    out = sf_buffers_take(&run->acts, run->tokens_local * h);
    sf_all_gather(env->comm, &mtp->tp, parts, part, tokens * own, run->dtype, "mtp.fwd.gather_output");
    for (int32_t i = 0; i < mtp->tp.size; i++)
      copy_columns(out + i * own, h, parts + (i * tokens + run->token_first) * own, own, run->tokens_local, own);
    sf_buffers_give(&run->acts, parts);
    sf_buffers_give(&run->acts, part);
  }
  sf_trace_act(run, depth->module_eh_proj, &run->map_hidden, out);
  return out;
}

/* full: [T x 2h], this rank's summand. Taken. */
static float *reduce_pair_grad(struct sf_rank_run *run, const struct sf_mtp *mtp, float *full) {
  const int64_t cols = 2 * run->hidden;
  if (mtp->tp.size == 1) return full;
  if (!mtp->sp) {
    sf_all_reduce(run->env->comm, &mtp->tp, full, run->tokens * cols, run->dtype, SF_REDUCE_SUM, "mtp.bwd.input_grad");
    return full;
  }
  float *out = sf_buffers_take(&run->acts, run->tokens_local * cols);
  sf_reduce_scatter(run->env->comm, &mtp->tp, out, full, run->tokens_local * cols, run->dtype, SF_REDUCE_SUM, "mtp.bwd.input_grad_scatter");
  sf_buffers_give(&run->acts, full);
  return out;
}

/* grad [tokens_local x h] of the output. Returns the gradient of the pair, [tokens_local x 2h]. */
static float *eh_proj_backward(struct sf_rank_run *run, const struct sf_mtp *mtp, const struct sf_mtp_depth *depth,
                               struct sf_mtp_acts *acts, const float *grad) {
  struct sf_device *dev = run->env->device;
  const int64_t h = run->hidden, own = h / mtp->tp.size, tokens = run->tokens;
  if (depth->plugged_eh_proj != NULL) {
    float *plugged_grad = sf_plugged_backward(run, depth->plugged_eh_proj, grad, acts->pair);
    sf_buffers_give(&run->acts, acts->pair);
    return plugged_grad;
  }
  float *gathered = NULL, *part = sf_buffers_take(&run->acts, tokens * own);
  if (mtp->sp) {
    gathered = sf_buffers_take(&run->acts, tokens * h);
    sf_all_gather(run->env->comm, &mtp->tp, gathered, grad, run->tokens_local * h, run->dtype, "mtp.bwd.all_gather");
  }
  copy_columns(part, own, (gathered != NULL ? gathered : grad) + mtp->tp.index * own, h, tokens, own);
  sf_buffers_give(&run->acts, gathered);
  float *full = sf_buffers_take(&run->acts, tokens * 2 * h);
  sf_linear_input_grad(dev, full, part, depth->eh_proj->model, tokens, 2 * h, own, run->dtype);
  float *pair_grad = reduce_pair_grad(run, mtp, full);
  sf_trace_act_grad(run, depth->module_eh_proj, &mtp->map_pair, pair_grad);
  if (depth->eh_proj->trainable) {
    sf_linear_weight_grad(dev, run->params.scratch, part, acts->pair, tokens, 2 * h, own);
    sf_parameter_accumulate(run, depth->eh_proj, run->params.scratch, 0);
  }
  sf_buffers_give(&run->acts, part);
  sf_buffers_give(&run->acts, acts->pair);
  return pair_grad;
}

/* --- a depth ---------------------------------------------------------------------------------------------------- */

static float *copy_of(struct sf_rank_run *run, const float *x) {
  const int64_t count = run->tokens_local * run->hidden;
  float *copy = sf_buffers_take(&run->acts, count);
  memcpy(copy, x, (size_t)count * sizeof *copy);
  return copy;
}

/* acts->input is set. Returns what the next depth reads, the caller's; NULL behind the last. */
static float *depth_forward(struct sf_rank_run *run, const struct sf_mtp *mtp, int32_t k, struct sf_mtp_acts *acts) {
  const struct sf_mtp_depth *depth = &mtp->depths[k];
  acts->embedded = sf_vocab_parallel_embedding_forward(run, &depth->embedding, acts->tokens);
  float *enormed = sf_norm_layer_forward(run, &depth->enorm, acts->embedded, &acts->enorm_stats);
  float *hnormed = sf_norm_layer_forward(run, &depth->hnorm, acts->input, &acts->hnorm_stats);
  float *x = eh_proj_forward(run, mtp, depth, acts, enormed, hnormed);
  acts->final_input = sf_transformer_layer_forward(run, &depth->layer, &acts->layer, x);
  float *normed = sf_norm_layer_forward(run, &depth->final_norm, acts->final_input, &acts->final_stats);
  float *next = k + 1 < mtp->count ? copy_of(run, normed) : NULL;
  float *logits = sf_column_parallel_linear_forward(run, &depth->output_layer, normed, &acts->head_input);
  sf_buffers_give(&run->acts, sf_vocab_parallel_cross_entropy_forward(run, &depth->cross_entropy, &acts->loss, logits, acts->labels));
  return next;
}

void sf_mtp_forward(struct sf_rank_run *run, struct sf_mtp *mtp, struct sf_mtp_acts *acts, float *hidden) {
  float *input = hidden;
  if (run->c->train.loss_norm == SF_LOSS_PER_TOKEN) count_step(run, mtp);
  for (int32_t k = 0; k < mtp->count; k++) {
    load_data(run, mtp, k, &acts[k]);
    acts[k].input = input;
    input = depth_forward(run, mtp, k, &acts[k]);
  }
}

/* other: gradient from the next depth, taken; NULL at the last. Returns the gradient of acts->input. */
static float *depth_backward(struct sf_rank_run *run, const struct sf_mtp *mtp, int32_t k, struct sf_mtp_acts *acts, float *other) {
  struct sf_device *dev = run->env->device;
  const struct sf_mtp_depth *depth = &mtp->depths[k];
  const int64_t h = run->hidden, count = run->tokens_local * h;
  float *logits_grad =
      sf_vocab_parallel_cross_entropy_backward(run, &depth->cross_entropy, &acts->loss, acts->labels, acts->grad_weight);
  float *normed_grad = sf_column_parallel_linear_backward(run, &depth->output_layer, logits_grad, acts->head_input);
  sf_buffers_give(&run->acts, logits_grad);
  if (other != NULL) dev->ops->add(dev, normed_grad, normed_grad, other, count, run->dtype);
  sf_buffers_give(&run->acts, other);
  float *grad = sf_norm_layer_backward(run, &depth->final_norm, normed_grad, acts->final_input, acts->final_stats);
  sf_buffers_give(&run->acts, normed_grad);
  sf_buffers_give(&run->acts, acts->final_input);
  sf_transformer_layer_backward(run, &depth->layer, &acts->layer, grad);
  float *given = sf_residual_rounded(run, grad);
  float *pair_grad = eh_proj_backward(run, mtp, depth, acts, given);
  sf_residual_rounded_give(run, grad, given);
  copy_columns(grad, h, pair_grad, 2 * h, run->tokens_local, h);
  float *embedded_grad = sf_norm_layer_backward(run, &depth->enorm, grad, acts->embedded, acts->enorm_stats);
  sf_vocab_parallel_embedding_backward(run, &depth->embedding, embedded_grad, acts->tokens);
  sf_buffers_give(&run->acts, embedded_grad);
  sf_buffers_give(&run->acts, acts->embedded);
  copy_columns(grad, h, pair_grad + h, 2 * h, run->tokens_local, h);
  sf_buffers_give(&run->acts, pair_grad);
  float *input_grad = sf_norm_layer_backward(run, &depth->hnorm, grad, acts->input, acts->hnorm_stats);
  sf_buffers_give(&run->acts, acts->input);
  sf_buffers_give(&run->acts, grad);
  return input_grad;
}

float *sf_mtp_backward(struct sf_rank_run *run, struct sf_mtp *mtp, struct sf_mtp_acts *acts) {
  float *grad = NULL;
  for (int32_t k = mtp->count; k-- > 0;) grad = depth_backward(run, mtp, k, &acts[k], grad);
  return grad;
}
