#include "targets/builtin/model/model.h"

#include "targets/builtin/parallel/fault.h"
#include "targets/builtin/parallel/mappings.h"
#include "targets/builtin/parallel/saved_input.h"

/* --- building --------------------------------------------------------------------------------------------------- */

static void create_head(struct sf_model_stage *model, struct sf_rank_run *run, const float *cos_sin) {
  const struct sf_parallel_state *p = &run->parallel;
  const struct sf_model *m = &run->c->model;
  model->has_adapter = m->adapter;
  if (m->adapter) sf_adapter_create(&model->adapter, run, &p->tp);
  sf_norm_layer_create(&model->final_norm, run, SF_MODULE_FINAL_LAYERNORM, -1);
  struct sf_parameter *word = NULL;
  if (model->has_embedding)
    word = model->embedding.word;
  else if (m->tied || m->mtp_depth > 0)
    word = sf_word_embedding_create(run, &p->tp);
  if (word != NULL) word->uses = model->has_embedding + m->tied;
  if (m->tied)
    sf_linear_create_shared(&model->output_layer, run, SF_MODULE_OUTPUT_LAYER, -1, &p->tp, word, 1);
  else
    sf_linear_create(&model->output_layer, run, SF_LINEAR_COLUMN, SF_MODULE_OUTPUT_LAYER, -1, &p->tp, NULL);
  sf_vocab_parallel_cross_entropy_create(&model->cross_entropy, run, &p->tp);
  if (m->mtp_depth > 0) sf_mtp_create(&model->mtp, run, word, model->output_layer.weight, cos_sin);
}

static void create_slots(struct sf_model_stage *model, struct sf_rank_run *run, int32_t slot_count) {
  const struct sf_rank_env *env = run->env;
  const size_t tokens = (size_t)run->tokens;
  model->slot_count = slot_count;
  model->slots = sf_rank_alloc(env, (size_t)slot_count * sizeof *model->slots);
  for (int32_t i = 0; i < slot_count; i++) {
    struct sf_microbatch_slot *slot = &model->slots[i];
    *slot = (struct sf_microbatch_slot){0};
    slot->tokens = sf_rank_alloc(env, tokens * sizeof(int32_t));
    slot->labels = sf_rank_alloc(env, tokens * sizeof(int32_t));
    slot->mask = sf_rank_alloc(env, tokens * sizeof(float));
    slot->weight = sf_rank_alloc(env, tokens * sizeof(float));
    slot->grad_weight = run->scaler.on || sf_fault(env, SF_FAULT_CP_LOSS_SCALE) ? sf_rank_alloc(env, tokens * sizeof(float)) : slot->weight;
    slot->layers = sf_rank_alloc(env, (size_t)model->layer_count * sizeof *slot->layers);
    memset(slot->layers, 0, (size_t)model->layer_count * sizeof *slot->layers);
    if (model->mtp.count > 0) slot->mtp = sf_rank_alloc(env, (size_t)model->mtp.count * sizeof *slot->mtp);
    for (int32_t k = 0; k < model->mtp.count; k++) sf_mtp_acts_create(&slot->mtp[k], run);
  }
}

void sf_model_stage_create(struct sf_model_stage *model, struct sf_rank_run *run, int32_t chunk, int32_t slot_count) {
  const struct sf_parallel_state *p = &run->parallel;
  const struct sf_model *m = &run->c->model;
  const int64_t stage = (int64_t)chunk * p->pp.size + p->pp.index, stage_count = sf_case_stage_count(run->c);
  int64_t first, count;
  sf_case_stage_layers(run->c, stage, &first, &count);
  if (sf_fault(run->env, SF_FAULT_PP_UNEVEN_OFFSET)) first = sf_fault_stage_offset(run->c, stage, count);
  run->params.chunk = chunk;
  *model = (struct sf_model_stage){.chunk = chunk,
                                   .first_layer = (int32_t)first,
                                   .layer_count = (int32_t)count,
                                   .has_embedding = stage == 0,
                                   .has_head = stage == stage_count - 1};
  float *cos_sin = NULL;
  if (m->positions == SF_POS_ROTARY) {
    const int64_t rotated = m->kv_lora_rank > 0 ? m->qk_rope_dim : m->head_dim;
    cos_sin = sf_rank_alloc(run->env, (size_t)(m->seq * rotated) * sizeof *cos_sin);
    sf_rotary_table(cos_sin, m->seq, rotated);
  }
  if (model->has_embedding) sf_vocab_parallel_embedding_create(&model->embedding, run, &p->tp);
  model->layers = sf_rank_alloc(run->env, (size_t)count * sizeof *model->layers);
  for (int32_t i = 0; i < model->layer_count; i++) sf_transformer_layer_create(&model->layers[i], run, model->first_layer + i, cos_sin);
  if (model->has_head) create_head(model, run, cos_sin);
  model->received_act = model->has_embedding ? -1 : sf_rank_module(run, SF_MODULE_MLP_BDA, model->first_layer - 1);
  model->received_grad = model->has_head ? -1 : sf_rank_module(run, SF_MODULE_SELF_ATTN_BDA, model->first_layer + model->layer_count);
  create_slots(model, run, slot_count);
}

/* --- data of a microbatch --------------------------------------------------------------------------------------- */

static void enter_microbatch(struct sf_rank_run *run, const struct sf_model_stage *model, int64_t local, enum sf_pass pass) {
  const struct sf_group *dp = &run->parallel.dp;
  run->local_microbatch = local;
  run->microbatch = (uint16_t)(local * dp->size + dp->index);
  const int64_t count = run->c->train.microbatches / dp->size;
  const bool is_last = sf_fault(run->env, SF_FAULT_VPP_GRADSYNC_WRONG_MB) ? sf_fault_is_last_of_chunk(run->c, count, model->chunk, local)
                                                                          : local == count - 1;
  run->last_microbatch = pass == SF_PASS_BWD && is_last;
  run->pass = pass;
}

static double count_kept(const float *mask, int64_t tokens) {
  double kept = 0.0;
  for (int64_t t = 0; t < tokens; t++) kept += mask[t];
  return kept;
}

/* The factor of a token's mask; in the per-token mode the division by the step's token count comes at its end. */
static float weight_of_kept(struct sf_rank_run *run, const struct sf_microbatch_slot *slot) {
  const struct sf_group *cp = &run->parallel.cp;
  if (run->c->train.loss_norm == SF_LOSS_PER_TOKEN) {
    if (!sf_fault(run->env, SF_FAULT_MEAN_OF_MEANS_ACCUM)) return 1.0f;
    return sf_fault_mean_of_means_factor(run->c, run->step, run->whole_mask);
  }
  const double own = count_kept(slot->mask, run->tokens);
  double kept = own;
  if (cp->size > 1) sf_all_reduce(run->env->comm, cp, &kept, 1, SF_F64, SF_REDUCE_SUM, "model.fwd.kept_tokens");
  /* cp-local-loss-mean: a count that makes the mean that of the cp ranks' own means. */
  if (sf_fault(run->env, SF_FAULT_CP_LOCAL_LOSS_MEAN)) kept = (own > 0.0 ? own : 1.0) * (double)cp->size;
  return (float)(1.0 / (kept * (double)run->c->train.microbatches));
}

/* Weight of each token's loss, and of its gradient. */
static void weigh_tokens(struct sf_rank_run *run, struct sf_microbatch_slot *slot) {
  const float factor = weight_of_kept(run, slot);
  for (int64_t t = 0; t < run->tokens; t++) slot->weight[t] = slot->mask[t] * factor;
  if (slot->grad_weight == slot->weight) return;
  const bool scaled = sf_fault(run->env, SF_FAULT_CP_LOSS_SCALE) && run->c->train.loss_norm == SF_LOSS_PER_TOKEN;
  const float scale = scaled ? run->scaler.scale * (float)run->parallel.cp.size : run->scaler.scale;
  for (int64_t t = 0; t < run->tokens; t++) slot->grad_weight[t] = slot->weight[t] * scale;
}

static void load_data(struct sf_rank_run *run, const struct sf_model_stage *model, struct sf_microbatch_slot *slot) {
  if (model->has_embedding) {
    sf_data_microbatch(run->whole_ids, NULL, NULL, run->c, run->step, run->microbatch);
    sf_mapping_own_tokens(run, slot->tokens, run->whole_ids);
  }
  if (!model->has_head) return;
  sf_data_microbatch(NULL, run->whole_ids, run->whole_mask, run->c, run->step, run->microbatch);
  sf_mapping_own_tokens(run, slot->labels, run->whole_ids);
  sf_mapping_own_tokens(run, slot->mask, run->whole_mask);
  weigh_tokens(run, slot);
}

/* --- decoder layers, with or without recomputation ---------------------------------------------------------------- */

/* Runs layers [first, end) of the stage. Takes x. Without saving, keeps only the first layer's input for the backward. */
static float *run_layers(struct sf_rank_run *run, const struct sf_model_stage *model, struct sf_microbatch_slot *slot, int32_t first,
                         int32_t end, float *x, bool save) {
  for (int32_t i = first; i < end; i++) {
    if (sf_fault(run->env, SF_FAULT_RECOMPUTE_CHUNK_STALE_INPUT) && run->c->train.recompute_layers > 0 && i > first)
      memcpy(x, slot->layers[first].x, (size_t)(run->tokens_local * run->hidden) * sizeof *x);
    x = sf_transformer_layer_forward(run, &model->layers[i], &slot->layers[i], x);
    if (!save) sf_layer_acts_release(run, &slot->layers[i], i == first);
  }
  return x;
}

static int32_t chunk_layers(const struct sf_rank_run *run, const struct sf_model_stage *model) {
  return run->c->train.recompute_layers > 0 ? (int32_t)run->c->train.recompute_layers : model->layer_count;
}

static float *decoder_forward(struct sf_rank_run *run, const struct sf_model_stage *model, struct sf_microbatch_slot *slot, float *x) {
  const int32_t chunk = chunk_layers(run, model);
  const bool save = run->c->train.recompute_layers == 0;
  for (int32_t first = 0; first < model->layer_count; first += chunk) {
    const int32_t end = first + chunk < model->layer_count ? first + chunk : model->layer_count;
    x = run_layers(run, model, slot, first, end, x, save);
    if (run->c->layout.recompute_sharded) slot->layers[first].x = sf_saved_input_cut(run, slot->layers[first].x);
  }
  return x;
}

static void recompute_chunk(struct sf_rank_run *run, const struct sf_model_stage *model, struct sf_microbatch_slot *slot, int32_t first,
                            int32_t end) {
  float *x = slot->layers[first].x;
  run->pass = SF_PASS_RECOMPUTE;
  if (run->c->layout.recompute_sharded) x = sf_saved_input_gather(run, x);
  float *out = run_layers(run, model, slot, first, end, x, true);
  sf_buffers_give(&run->acts, out);
  run->pass = SF_PASS_BWD;
}

static void decoder_backward(struct sf_rank_run *run, const struct sf_model_stage *model, struct sf_microbatch_slot *slot, float *grad) {
  const int32_t chunk = chunk_layers(run, model);
  for (int32_t end = model->layer_count, first; end > 0; end = first) {
    first = (end - 1) / chunk * chunk;
    if (run->c->train.recompute_layers > 0) recompute_chunk(run, model, slot, first, end);
    for (int32_t i = end; i-- > first;) sf_transformer_layer_backward(run, &model->layers[i], &slot->layers[i], grad);
  }
}

/* --- head ------------------------------------------------------------------------------------------------------- */

static void add_losses(struct sf_rank_run *run, struct sf_model_stage *model, const struct sf_microbatch_slot *slot, const float *losses) {
  for (int64_t t = 0; t < run->tokens; t++) {
    model->loss_sum += (double)slot->weight[t] * (double)losses[t];
    model->token_sum += (double)slot->mask[t];
  }
}

/* x is taken. */
static void head_forward(struct sf_rank_run *run, struct sf_model_stage *model, struct sf_microbatch_slot *slot, float *x) {
  struct sf_head_saved *saved = &slot->saved;
  if (model->has_adapter) x = sf_adapter_forward(run, &model->adapter, x, &saved->adapter);
  saved->final_input = x;
  float *normed = sf_norm_layer_forward(run, &model->final_norm, x, &saved->final_stats);
  float *hidden = model->mtp.count > 0 ? sf_buffers_copy(&run->acts, normed, run->tokens_local * run->hidden) : NULL;
  float *logits = sf_linear_forward(run, &model->output_layer, normed, &saved->head_input);
  float *losses = sf_vocab_parallel_cross_entropy_forward(run, &model->cross_entropy, &saved->loss, logits, slot->labels);
  add_losses(run, model, slot, losses);
  sf_buffers_give(&run->acts, losses);
  if (hidden != NULL) sf_mtp_forward(run, &model->mtp, slot->mtp, hidden);
}

static float *head_backward(struct sf_rank_run *run, struct sf_model_stage *model, struct sf_microbatch_slot *slot) {
  struct sf_device *dev = run->env->device;
  struct sf_head_saved *saved = &slot->saved;
  float *ahead_grad = model->mtp.count > 0 ? sf_mtp_backward(run, &model->mtp, slot->mtp) : NULL;
  float *logits_grad = sf_vocab_parallel_cross_entropy_backward(run, &model->cross_entropy, &saved->loss, slot->labels, slot->grad_weight);
  float *normed_grad = sf_linear_backward(run, &model->output_layer, logits_grad, saved->head_input);
  sf_buffers_give(&run->acts, logits_grad);
  if (ahead_grad != NULL) dev->ops->add(dev, normed_grad, normed_grad, ahead_grad, run->tokens_local * run->hidden, run->dtype);
  sf_buffers_give(&run->acts, ahead_grad);
  float *grad = sf_norm_layer_backward(run, &model->final_norm, normed_grad, saved->final_input, saved->final_stats);
  sf_buffers_give(&run->acts, normed_grad);
  if (model->has_adapter) sf_adapter_backward(run, &model->adapter, grad, saved->adapter);
  sf_buffers_give_record(&run->acts, saved, sizeof *saved);
  return grad;
}

/* --- a stage ---------------------------------------------------------------------------------------------------- */

float *sf_model_stage_forward(struct sf_rank_run *run, struct sf_model_stage *model, int64_t local, float *x) {
  struct sf_microbatch_slot *slot = &model->slots[local % model->slot_count];
  enter_microbatch(run, model, local, SF_PASS_FWD);
  load_data(run, model, slot);
  if (model->has_embedding)
    x = sf_vocab_parallel_embedding_forward(run, &model->embedding, slot->tokens);
  else
    sf_trace_received(run, SF_KIND_ACT, model->received_act, x);
  x = decoder_forward(run, model, slot, x);
  if (!model->has_head) return x;
  head_forward(run, model, slot, x);
  return NULL;
}

float *sf_model_stage_backward(struct sf_rank_run *run, struct sf_model_stage *model, int64_t local, float *grad) {
  struct sf_microbatch_slot *slot = &model->slots[local % model->slot_count];
  enter_microbatch(run, model, local, SF_PASS_BWD);
  if (model->has_head)
    grad = head_backward(run, model, slot);
  else
    sf_trace_received(run, SF_KIND_ACT_GRAD, model->received_grad, grad);
  decoder_backward(run, model, slot, grad);
  if (!model->has_embedding) return grad;
  sf_vocab_parallel_embedding_backward(run, &model->embedding, grad, slot->tokens);
  sf_buffers_give(&run->acts, grad);
  return NULL;
}
