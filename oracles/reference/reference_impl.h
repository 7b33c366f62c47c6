/* Template: one run of the arithmetic of harness/docs/model.md on one device. Built twice, for float (storage rounding as the
 * case says) and for double (no rounding). Memory comes from one arena, all of it before the run starts; after that nothing can fail. */
#ifndef SF_ORACLES_REFERENCE_IMPL_H
#define SF_ORACLES_REFERENCE_IMPL_H

#include "oracles/reference/reference_attention.h"
#include "oracles/reference/reference_branch.h"
#include "oracles/reference/reference_cross_attention.h"
#include "oracles/reference/reference_ends.h"
#include "oracles/reference/reference_latent.h"
#include "oracles/reference/reference_linear.h"
#include "oracles/reference/reference_mtp.h"
#include "oracles/reference/reference_norm.h"
#include "oracles/reference/reference_products.h"
#include "oracles/reference/reference_qkv.h"
#include "oracles/reference/reference_step.h"

static inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; } /* of the two */

/* --- memory ----------------------------------------------------------------------------------------------------- */

/* Activations of all layers, those of multi-token prediction behind the decoder's. */
static inline void take_layers(struct run *run) {
  const struct sf_model *model = &run->c->model;
  const int64_t t = run->tokens, h = run->hidden;
  const int64_t layers = model->layers + model->mtp_depth;
  run->acts.layers = take_all(run, layers, sizeof *run->acts.layers);
  if (run->acts.layers == NULL) return;
  for (int64_t i = 0; i < layers; i++) {
    struct layer_acts *acts = &run->acts.layers[i];
    *acts = (struct layer_acts){0};
    acts->norm1 = take(run, t * h);
    if (model->kv_lora_rank > 0)
      take_latent_acts(run, acts);
    else
      acts->qkv = take(run, t * run->qkv_width);
    acts->qk_norm = model->qk_norm ? take(run, t * run->qkv_width) : acts->qkv;
    acts->rotary = model->positions == SF_POS_ROTARY ? take(run, t * run->qkv_width) : acts->qk_norm;
    acts->probs = take(run, run->c->train.microbatch_size * model->heads * model->seq * model->seq);
    acts->sink_probs = model->sinks ? take(run, t * model->heads) : NULL;
    acts->context = take(run, t * run->context_width);
    acts->proj = take(run, t * h);
    acts->attn_bda = take(run, t * h);
    acts->post_attn = model->post_norm ? take(run, t * h) : NULL;
    acts->norm2 = take(run, t * h);
    if (model->memory_seq > 0) take_cross(run, &acts->cross);
    if (run->c->moe.experts > 0) {
      take_experts_layer(run, &acts->moe);
    } else {
      acts->mlp = take_mlp(run, model->ffn);
    }
    acts->post_mlp = model->post_norm ? take(run, t * h) : NULL;
    acts->mlp_bda = take(run, t * h);
  }
}

/* largest: elements of the largest parameter. */
static inline void take_scratch(struct run *run, int64_t largest) {
  const struct sf_model *model = &run->c->model;
  const int64_t t = run->tokens;
  const int64_t latents = larger(model->q_lora_rank, model->kv_lora_rank + model->qk_rope_dim);
  int64_t widest = larger(larger(model->mtp_depth > 0 ? 2 * run->hidden : run->hidden, sf_size_of(run->c, SF_SIZE_FC1)),
                          larger(model->vocab_padded, larger(run->qkv_width, larger(run->context_width, latents))));
  if (latents > 0) take_latent_scratch(run, widest);
  if (run->c->moe.experts > 0) {
    widest = larger(widest, larger(larger(expert_fc1_width(run), 2 * run->c->moe.shared_ffn), run->c->moe.experts));
    take_experts_scratch(run);
  }
  run->scratch.wgrad = take(run, largest);
  run->scratch.wide_a = take(run, t * widest);
  run->scratch.wide_b = take(run, t * widest);
  fp8_take(run, largest, widest);
  const enum sf_perturb kind = run->options->perturb;
  if (kind == SF_PERTURB_NONE) return;
  const int64_t group_rows = model->heads / model->kv_heads * model->seq;
  const int64_t factor =
      larger(larger(largest, t * widest), larger(group_rows * larger(model->seq, model->head_dim), cross_product_most(run)));
  run->noise.part_b = take(run, factor);
  if (moves_inner(run->options)) return;
  run->noise.part_a = take(run, factor);
  if (kind == SF_PERTURB_SIZES) return;
  run->noise.part = take(run, factor);
  const int64_t longest =
      larger(larger(model->qk_norm ? t * model->heads : t, widest), larger(group_rows, larger(run->memory_rows, 2 * run->context_width)));
  run->noise.sizes = take(run, longest);
  run->noise.order = take_indices(run, longest);
}

/* State of every parameter, and the gradient scratch that all share. */
static inline void take_params(struct run *run) {
  const int32_t count = run->catalog->param_count;
  run->params = take_all(run, count, sizeof *run->params);
  if (run->params == NULL) return;
  int64_t largest = 0;
  for (int32_t p = 0; p < count; p++) {
    struct param_state *state = &run->params[p];
    const int64_t size = param_count(run, p);
    const bool trained = is_trained(run, p), many_steps = run->c->train.steps > 1;
    state->master = take(run, size);
    state->weight = sf_dtype_is_packed(run->format) && !keeps_no_master(run) ? take(run, size) : state->master;
    state->main_grad = trained ? take(run, size) : NULL;
    state->moment1 = trained && many_steps ? take(run, size) : NULL;
    state->moment2 = trained && many_steps ? take(run, size) : NULL;
    for (int64_t i = 0; state->moment1 != NULL && state->moment2 != NULL && i < size; i++) state->moment1[i] = state->moment2[i] = 0;
    largest = larger(largest, size);
  }
  take_scratch(run, largest);
}

/* What stands before and behind the layers. */
static inline void take_ends(struct run *run) {
  const struct sf_model *model = &run->c->model;
  const int64_t t = run->tokens, h = run->hidden;
  run->acts.words = take(run, t * h);
  run->acts.embedded = take(run, t * h);
  run->acts.adapter = take(run, t * h);
  run->acts.adapter_bda = take(run, t * h);
  run->acts.final_norm = take(run, t * h);
  run->acts.head = head_take(run, SF_MODULE_OUTPUT_LAYER, SF_MODULE_LOSS, -1);
  take_mtp(run);
  run->scratch.stream = take(run, t * h);
  if (run->stream_format != run->format) {
    run->scratch.rounded = take(run, t * h);
    run->scratch.adapter_in = take(run, t * h);
  }
  run->scratch.branch_a = take(run, t * h);
  run->scratch.branch_b = take(run, t * h);
  run->attention.row_means = take(run, model->seq);
  if (model->qk_norm) run->attention.qk_rows = take(run, t * (model->heads + model->kv_heads) * model->head_dim);
  if (model->sinks) run->attention.sink_terms = take(run, t * model->heads);
  if (run->c->train.dropout_milli > 0) {
    run->scratch.kept = take(run, t * h);
    run->scratch.dropped = take(run, t * h);
  }
  if (model->parallel_residual) run->scratch.layer_grad = take(run, t * h);
  if (model->memory_seq > 0) take_memory(run);
  const int64_t group = model->heads / model->kv_heads;
  run->attention.scores = take(run, group * model->seq * model->seq);
  run->attention.group_rows = take(run, group * model->seq * model->head_dim);
  run->attention.head_grad = take(run, model->seq * model->head_dim);
  run->acts.cosines = take(run, model->seq * larger(1, model->head_dim / 2));
  run->acts.sines = take(run, model->seq * larger(1, model->head_dim / 2));
  run->acts.token = take_indices(run, t);
  if (sf_data_has_documents(run->c)) run->acts.documents = take_indices(run, t);
  run->acts.mask = take_all(run, t, sizeof *run->acts.mask);
}

/* --- the model --------------------------------------------------------------------------------------------------- */

/* x: the residual stream before the layer; returns it after the layer. */
static inline const real *layer_forward(struct run *run, int32_t layer, const real *x) {
  struct layer_acts *acts = &run->acts.layers[layer];
  norm_forward(run, SF_MODULE_INPUT_LAYERNORM, layer, acts->norm1, x);
  if (run->c->model.kv_lora_rank > 0)
    latent_forward(run, layer, acts);
  else
    qkv_forward(run, layer, acts);
  attention_forward(run, layer, acts->context, acts, acts->rotary);
  linear_forward(run, SF_MODULE_LINEAR_PROJ, layer, acts->proj, acts->context, true);
  const real *branch = post_norm_forward(run, SF_MODULE_POST_SELF_ATTN_LAYERNORM, layer, acts->post_attn, acts->proj);
  branch_add(run, SF_MODULE_SELF_ATTN_BDA, layer, acts->attn_bda, x, branch);
  const real *middle = after_attention(run, acts);
  if (middle != acts->attn_bda) {
    cross_attention_forward(run, layer, &acts->cross, acts->attn_bda);
    branch_add(run, SF_MODULE_CROSS_ATTN_BDA, layer, acts->cross.bda, acts->attn_bda, acts->cross.proj);
  }
  norm_forward(run, SF_MODULE_PRE_MLP_LAYERNORM, layer, acts->norm2, run->c->model.parallel_residual ? x : middle);
  branch = post_norm_forward(run, SF_MODULE_POST_MLP_LAYERNORM, layer, acts->post_mlp, mlp_forward(run, layer, acts));
  branch_add(run, SF_MODULE_MLP_BDA, layer, acts->mlp_bda, middle, branch);
  return acts->mlp_bda;
}

/* x: as in the forward pass. run->scratch.stream goes from the gradient after the layer to the gradient before it. */
static inline void layer_backward(struct run *run, int32_t layer, const real *x) {
  const struct layer_acts *acts = &run->acts.layers[layer];
  const bool parallel = run->c->model.parallel_residual;
  const real *proj_grad = parallel ? run->scratch.layer_grad : run->scratch.stream;
  if (parallel) memcpy(run->scratch.layer_grad, run->scratch.stream, (size_t)(run->tokens * run->hidden) * sizeof(real));
  mlp_backward(run, layer, run->scratch.branch_a, acts);
  norm_backward(run, SF_MODULE_PRE_MLP_LAYERNORM, layer, run->scratch.branch_b, run->scratch.branch_a,
                parallel ? x : after_attention(run, acts));
  residual_backward(run, SF_MODULE_MLP_BDA, layer, run->scratch.branch_b);
  if (run->c->model.memory_seq > 0) cross_attention_backward(run, layer, &acts->cross, acts->attn_bda);
  proj_grad = branch_grad(run, SF_MODULE_SELF_ATTN_BDA, SF_MODULE_LINEAR_PROJ, layer, proj_grad);
  proj_grad = post_norm_backward(run, SF_MODULE_POST_SELF_ATTN_LAYERNORM, layer, proj_grad, acts->proj);
  linear_backward(run, SF_MODULE_LINEAR_PROJ, layer, run->scratch.wide_a, proj_grad, acts->context);
  attention_backward(run, layer, run->scratch.wide_b, run->scratch.wide_a, acts->rotary, acts);
  if (run->c->model.kv_lora_rank > 0)
    latent_backward(run, layer, run->scratch.branch_a, run->scratch.wide_b, acts);
  else
    qkv_backward(run, layer, acts);
  norm_backward(run, SF_MODULE_INPUT_LAYERNORM, layer, run->scratch.branch_b, run->scratch.branch_a, x);
  residual_backward(run, SF_MODULE_SELF_ATTN_BDA, layer, run->scratch.branch_b);
}

/* Each depth reads the final norm of the one before. */
static inline void mtp_forward(struct run *run) {
  for (int64_t depth = 0; depth < run->c->model.mtp_depth; depth++) {
    struct mtp *mtp = &run->acts.mtp[depth];
    mtp_begin(run, depth);
    const real *x = layer_forward(run, mtp->head.layer, mtp->projected);
    norm_forward(run, SF_MODULE_MTP_FINAL_LAYERNORM, mtp->head.layer, mtp->final_norm, x);
    head_forward(run, &mtp->head, mtp->final_norm);
  }
}

/* branch_b becomes the gradient of the main head's input from depth 0. */
static inline void mtp_backward(struct run *run) {
  const int64_t depths = run->c->model.mtp_depth;
  for (int64_t depth = depths - 1; depth >= 0; depth--) {
    const struct mtp *mtp = &run->acts.mtp[depth];
    const int32_t layer = mtp->head.layer;
    head_backward(run, &mtp->head, run->scratch.branch_a, mtp->final_norm);
    if (depth < depths - 1) add_use(run, SF_MODULE_MTP_FINAL_LAYERNORM, layer, run->scratch.branch_a, run->scratch.branch_b);
    norm_backward(run, SF_MODULE_MTP_FINAL_LAYERNORM, layer, run->scratch.stream, run->scratch.branch_a, run->acts.layers[layer].mlp_bda);
    layer_backward(run, layer, mtp->projected);
    mtp_end_backward(run, depth);
  }
}

/* Forward and backward of the microbatch at hand. */
static inline void microbatch_run(struct run *run) {
  const int32_t layers = (int32_t)run->c->model.layers;
  data_load(run);
  if (run->c->model.memory_seq > 0) memory_load(run);
  const real *start = embedding_forward(run), *x = start;
  for (int32_t i = 0; i < layers; i++) x = layer_forward(run, i, x);
  const real *decoded = x, *adapter_in = NULL;
  if (run->c->model.adapter) {
    adapter_in = round_stream(run, run->scratch.adapter_in, decoded);
    linear_forward(run, SF_MODULE_ADAPTER, -1, run->acts.adapter, adapter_in, false);
    residual_forward(run, SF_MODULE_ADAPTER_BDA, -1, run->acts.adapter_bda, decoded, run->acts.adapter);
    x = run->acts.adapter_bda;
  }
  norm_forward(run, SF_MODULE_FINAL_LAYERNORM, -1, run->acts.final_norm, x);
  head_forward(run, &run->acts.head, run->acts.final_norm);
  mtp_forward(run);
  if (ends_with_forward(run)) return;

  mtp_backward(run);
  head_backward(run, &run->acts.head, run->scratch.branch_a, run->acts.final_norm);
  if (run->c->model.mtp_depth > 0) add_use(run, SF_MODULE_FINAL_LAYERNORM, -1, run->scratch.branch_a, run->scratch.branch_b);
  norm_backward(run, SF_MODULE_FINAL_LAYERNORM, -1, run->scratch.stream, run->scratch.branch_a, x);
  if (run->c->model.adapter) {
    linear_backward(run, SF_MODULE_ADAPTER, -1, run->scratch.branch_a, round_stream(run, run->scratch.rounded, run->scratch.stream),
                    adapter_in);
    residual_backward(run, SF_MODULE_ADAPTER_BDA, -1, run->scratch.branch_a);
  }
  for (int32_t i = layers - 1; i >= 0; i--) layer_backward(run, i, i > 0 ? run->acts.layers[i - 1].mlp_bda : start);
  embedding_backward(run);
}

/* All steps, and the state after the last one. */
static inline void steps_run(struct run *run) {
  const struct sf_train *train = &run->c->train;
  if (run->c->model.positions == SF_POS_ROTARY) rotary_tables(run);
  params_load(run, 0);
  for (int64_t step = 0; step < train->steps; step++) {
    state_emit(run, step);
    if (run->c->mode == SF_MODE_ISOLATED && run->options->given == NULL && step > 0) params_load(run, moment_of(run, SF_DATA_WEIGHTS).step);
    main_grads_zero(run);
    run->state.loss_sum = 0;
    for (int64_t m = 0; m < train->microbatches; m++) {
      microbatch_begin(run, m);
      if (!is_needless_microbatch(run)) microbatch_run(run);
    }
    if (has_all(run)) return;
    if (needs_step_end(run)) step_finish(run);
    fp8_step_finish(run);
  }
  state_emit(run, train->steps);
}

/* sf_reference_run_f32 or _f64, by the build. */
enum sf_status SF_REFERENCE_RUN(const struct sf_catalog *catalog, const struct sf_reference_options *options,
                                const struct sf_reference_sink *sink, const struct sf_reference_nudge *nudge) {
  const struct sf_case *c = &catalog->logical;
  const struct sf_model *model = &c->model;
  struct run run = {.catalog = catalog, .c = c, .options = options, .sink = sink, .nudge = nudge, .noise = {.options = options}};
  run.format = sizeof(real) == sizeof(double) ? SF_F64 : sf_case_storage(c);
  run.stream_format = sizeof(real) == sizeof(float) && c->precision.residual_fp32 ? SF_F32 : run.format;
  run.state.loss_scale = ldexp(1, (int)c->precision.loss_scale_log2);
  run.tokens = model->seq * c->train.microbatch_size;
  run.memory_rows = model->memory_seq * c->train.microbatch_size;
  run.hidden = model->hidden;
  run.qkv_width = (model->heads + 2 * model->kv_heads) * model->head_dim;
  run.context_width = model->heads * model->head_dim;
  run.arena = options->arena != NULL ? options->arena : sf_arena_create((size_t)1 << 20, false);
  if (run.arena == NULL) return SF_ENOMEM;
  wanted_create(&run);
  if (!run.out_of_memory) take_params(&run);
  if (!run.out_of_memory) take_layers(&run);
  if (!run.out_of_memory) take_ends(&run);
  if (!run.out_of_memory) steps_run(&run);
  const enum sf_status status = run.out_of_memory ? SF_ENOMEM : SF_OK;
  if (options->arena == NULL) sf_arena_destroy(run.arena);
  return status;
}

#endif
