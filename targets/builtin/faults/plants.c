/* The table of planted bugs, written down before any run. `triggers` says whether a case can show the bug at all. */
#include "targets/builtin/faults/plants.h"

#include "harness/base/alloc.h"
#include "harness/spec/mesh.h"
#include "harness/tensor/consistent.h"
#include "harness/tensor/shard_map.h"

#include <string.h>

#define KIND(name) (1u << SF_KIND_##name)
#define MODULE(name) (UINT64_C(1) << SF_MODULE_##name)
#define ANY_MODULE UINT64_MAX                                         /* any module with parameters, which the plant's kinds are about */
#define LAYER_MODULES (MODULE(MLP_BDA) * 2 - MODULE(INPUT_LAYERNORM)) /* all modules between these two in a layer */

/* --- what a case has -------------------------------------------------------------------------------------------- */

static bool is_frozen(const struct sf_case *c, int64_t bits) { return (c->train.frozen & bits) == bits; }

static bool has_experts(const struct sf_case *c) { return c->moe.experts > 0; }
/* Linears cut over tp: linear_fc1 and linear_fc2, or the shared expert's. */
static bool has_cut_mlp(const struct sf_case *c) { return !has_experts(c) || c->moe.shared_ffn > 0; }
static bool trains_experts(const struct sf_case *c) { return has_experts(c) && !is_frozen(c, SF_FROZEN_FC1 | SF_FROZEN_FC2); }

static bool trains_something(const struct sf_case *c) {
  return !is_frozen(c, SF_FROZEN_ALL) || c->model.adapter || !c->model.tied || has_experts(c);
}

/* A parameter that every tp rank holds whole gets a gradient. */
static bool trains_replicated(const struct sf_case *c) {
  const bool biases = c->model.bias && !is_frozen(c, has_experts(c) ? SF_FROZEN_PROJ : SF_FROZEN_PROJ | SF_FROZEN_FC2);
  const bool positions = c->model.positions == SF_POS_LEARNED && !is_frozen(c, SF_FROZEN_EMBEDDING);
  const bool latents = c->model.kv_lora_rank > 0 && !is_frozen(c, SF_FROZEN_QKV);
  return !is_frozen(c, SF_FROZEN_NORMS) || biases || positions || latents || c->model.adapter || has_experts(c);
}

/* The default order has tp innermost: a group is tp ranks in a row. */
bool sf_plant_default_tp_in_stages(const struct sf_case *c) {
  const struct sf_mesh mesh = sf_mesh_from_layout(&c->layout);
  for (int32_t rank = 0; rank < mesh.world; rank++) {
    const int32_t first = rank - rank % mesh.size[SF_AXIS_TP];
    if (sf_mesh_coord(&mesh, rank).at[SF_AXIS_PP] != sf_mesh_coord(&mesh, first).at[SF_AXIS_PP]) return false;
  }
  return true;
}

/* Calls visit with the data of each microbatch of the case until it returns true. Returns true also when memory is out, because then
 * nothing is known. */
static bool any_microbatch(const struct sf_case *c,
                           bool (*visit)(const struct sf_case *c, const int32_t *tokens, const float *mask, void *ctx), void *ctx) {
  const size_t count = (size_t)(c->model.seq * c->train.microbatch_size);
  int32_t *tokens = sf_alloc(count * sizeof *tokens);
  float *mask = sf_alloc(count * sizeof *mask);
  bool found = tokens == NULL || mask == NULL;
  for (int64_t step = 0; step < c->train.steps && !found; step++)
    for (int64_t m = 0; m < c->train.microbatches && !found; m++) {
      sf_data_microbatch(tokens, NULL, mask, c, step, m);
      found = visit(c, tokens, mask, ctx);
    }
  sf_free(tokens);
  sf_free(mask);
  return found;
}

/* --- triggers ---------------------------------------------------------------------------------------------------- */

static bool always(const struct sf_case *c) {
  (void)c;
  return true;
}
static bool with_two_ranks(const struct sf_case *c) { return sf_case_ranks(c) >= 2; }
static bool with_tp(const struct sf_case *c) { return c->layout.tp >= 2; }
static bool with_pp(const struct sf_case *c) { return c->layout.pp >= 2; }

static bool has_last_row_of_shard(const struct sf_case *c, const int32_t *tokens, const float *mask, void *ctx) {
  (void)mask;
  (void)ctx;
  const int64_t rows = c->model.vocab_padded / c->layout.tp;
  for (int64_t t = 0; t < c->model.seq * c->train.microbatch_size; t++)
    if (tokens[t] % rows == rows - 1) return true;
  return false;
}
static bool edge_token(const struct sf_case *c) { return with_tp(c) && any_microbatch(c, has_last_row_of_shard, NULL); }

struct kept_counts {
  int64_t first, visited;
};

/* Whether the count differs from that of the step's first microbatch; ctx: struct kept_counts. */
static bool keeps_other_count(const struct sf_case *c, const int32_t *tokens, const float *mask, void *ctx) {
  (void)tokens;
  struct kept_counts *counts = ctx;
  int64_t kept = 0;
  for (int64_t t = 0; t < c->model.seq * c->train.microbatch_size; t++) kept += mask[t] > 0.0f;
  if (counts->visited++ % c->train.microbatches == 0) counts->first = kept;
  return kept != counts->first;
}

static bool uneven_masks(const struct sf_case *c) {
  struct kept_counts counts = {0};
  return c->train.loss_norm == SF_LOSS_PER_TOKEN && any_microbatch(c, keeps_other_count, &counts);
}

static bool chunk_of_two(const struct sf_case *c) {
  for (int64_t stage = 0; stage < sf_case_stage_count(c); stage++) {
    int64_t first, count;
    sf_case_stage_layers(c, stage, &first, &count);
    if (c->train.recompute_layers >= 2 && count >= 2) return true;
  }
  return false;
}

static bool sp_norms(const struct sf_case *c) { return with_tp(c) && c->layout.sp && !is_frozen(c, SF_FROZEN_NORMS); }

/* Whether only the last stage's option is set, and to more or less than an even share. */
static bool uneven_last(const struct sf_case *c) {
  const int64_t layers = c->model.layers, pp = c->layout.pp, last = c->layout.pp_last_layers;
  if (pp < 2 || c->layout.pp_first_layers > 0 || last == 0) return false;
  for (int64_t stage = 1; stage < pp; stage++) {
    int64_t first, count;
    sf_case_stage_layers(c, stage, &first, &count);
    const int64_t wrong = stage * (layers / pp), limit = layers - count;
    if ((wrong < limit ? wrong : limit) != first) return true;
  }
  return false;
}

static bool sp_adapter(const struct sf_case *c) { return with_tp(c) && c->layout.sp && c->model.adapter; }

static bool frozen_column_linear(const struct sf_case *c) {
  const bool head = c->model.tied && is_frozen(c, SF_FROZEN_EMBEDDING);
  return with_tp(c) && (is_frozen(c, SF_FROZEN_QKV) || (is_frozen(c, SF_FROZEN_FC1) && has_cut_mlp(c)) || head);
}

static bool replicated_kv(const struct sf_case *c) { return c->layout.tp > c->model.kv_heads && !is_frozen(c, SF_FROZEN_QKV); }

/* First and last stage hold the word embedding: the last one as a tied head, or to look further tokens up. */
static bool shares_embedding(const struct sf_case *c) {
  return c->layout.pp > 1 && (c->model.tied || c->model.mtp_depth > 0) && !is_frozen(c, SF_FROZEN_EMBEDDING);
}
static bool shared_2x2(const struct sf_case *c) { return shares_embedding(c) && c->layout.pp == 2 && c->layout.dp == 2; }

/* The first chunk's steps backward come after those of the others; the last chunk is too early when it has a second group to come. */
static bool chunks_synced_early(const struct sf_case *c) {
  const bool reduced_early = c->layout.dp * c->layout.cp >= 2 && c->layout.overlap && c->layout.zero < 2 && c->layout.vpp > 1;
  const bool more_groups = trains_something(c) && c->train.microbatches / c->layout.dp > c->layout.pp;
  return reduced_early && (!is_frozen(c, SF_FROZEN_ALL) || more_groups);
}

static bool zero_tied(const struct sf_case *c) { return c->layout.zero > 0 && shares_embedding(c); }
static bool zero_trains(const struct sf_case *c) { return c->layout.zero > 0 && trains_something(c); }
static bool zero_updates(const struct sf_case *c) { return zero_trains(c) && c->train.lr_micro > 0; }
static bool zero2_trains(const struct sf_case *c) { return c->layout.zero == 2 && trains_something(c); }
static bool zero2_accumulates(const struct sf_case *c) { return zero2_trains(c) && c->train.microbatches / c->layout.dp >= 2; }
static bool zero_low_precision(const struct sf_case *c) { return zero_trains(c) && c->precision.compute != SF_F32; }

/* More than one bucket on some rank, if that has parameters enough. */
static bool zero_buckets(const struct sf_case *c) {
  const bool several = c->layout.bucket_elements > 0 || c->layout.vpp > 1 || zero_tied(c) || trains_experts(c);
  return zero_trains(c) && several;
}

/* Buckets are reduced in the backward: over dp and cp, those of experts over what the expert mesh leaves of tp, cp and dp. */
static bool overlapped(const struct sf_case *c) {
  const struct sf_layout *l = &c->layout;
  const bool experts = trains_experts(c) && l->tp * l->cp * l->dp > l->etp * l->ep;
  return l->overlap && (experts || (l->dp * l->cp >= 2 && trains_something(c)));
}
static bool replicated_tp(const struct sf_case *c) { return with_tp(c) && trains_replicated(c); }

/* Adam's first step hides most of a factor on the gradient, but not the last bit, and replicas must agree in that. */
static bool clipped_norms(const struct sf_case *c) {
  return with_tp(c) && c->train.clip_milli > 0 && c->train.lr_micro > 0 && !is_frozen(c, SF_FROZEN_NORMS);
}

static bool accumulates(const struct sf_case *c) { return c->train.microbatches / c->layout.dp >= 2 && trains_something(c); }
static bool biased_tp(const struct sf_case *c) { return with_tp(c) && c->model.bias; }
static bool cut_fused(const struct sf_case *c) {
  return with_tp(c) && ((sf_case_fc1_parts(c) > 1 && has_cut_mlp(c)) || c->layout.tp > c->model.kv_heads);
}

static bool bias_correction(const struct sf_case *c) {
  return trains_something(c) && c->train.lr_micro > 0 && (c->train.beta1_milli > 0 || c->train.beta2_milli > 0);
}

static bool smoothed_tp(const struct sf_case *c) { return with_tp(c) && c->train.label_smoothing_milli > 0; }

static bool dropout_sp(const struct sf_case *c) { return with_tp(c) && c->layout.sp && c->train.dropout_milli > 0; }
static bool dropout_replicas(const struct sf_case *c) { return with_tp(c) && !c->layout.sp && c->train.dropout_milli > 0; }

static bool has_fp8(const struct sf_case *c) { return c->precision.compute == SF_COMPUTE_FP8; }
static bool fp8_mlp(const struct sf_case *c) { return has_fp8(c) && has_cut_mlp(c); }
static bool fp8_tp(const struct sf_case *c) { return with_tp(c) && has_fp8(c); }

/* A later stage, whose own first layers stay in bf16 although the model's numbers say otherwise. */
static bool fp8_exempt_pp(const struct sf_case *c) {
  const int64_t kept = c->precision.fp8_bf16_first, last = c->model.layers - c->precision.fp8_bf16_last;
  for (int64_t stage = 1; has_fp8(c) && kept > 0 && stage < sf_case_stage_count(c); stage++) {
    int64_t first, count;
    sf_case_stage_layers(c, stage, &first, &count);
    const int64_t from = first > kept ? first : kept, kept_end = first + (kept < count ? kept : count);
    if (from < (kept_end < last ? kept_end : last)) return true;
  }
  return false;
}

static bool fp8_late_scale(const struct sf_case *c) {
  return c->precision.fp8_recipe == SF_FP8_DELAYED && c->train.steps > 1 && c->train.microbatches / c->layout.dp >= 2;
}
static bool shared_key_tp(const struct sf_case *c) { return with_tp(c) && c->model.kv_lora_rank > 0; }

static bool other_tp_index(const struct sf_case *c) {
  if (!with_tp(c) || !c->layout.sp) return false;
  const struct sf_mesh mesh = sf_mesh_from_layout(&c->layout), plain = sf_mesh_default_order(&c->layout);
  for (int32_t rank = 0; rank < mesh.world; rank++)
    if (sf_mesh_coord(&mesh, rank).at[SF_AXIS_TP] != sf_mesh_coord(&plain, rank).at[SF_AXIS_TP]) return true;
  return false;
}

static bool with_cp(const struct sf_case *c) { return c->layout.cp >= 2; }

/* Whether a cp rank keeps tokens, but another number than the others. */
static bool keeps_uneven_parts(const struct sf_case *c, const int32_t *tokens, const float *mask, void *ctx) {
  (void)tokens;
  (void)ctx;
  const int64_t count = c->model.seq * c->train.microbatch_size;
  int64_t all = 0;
  for (int64_t t = 0; t < count; t++) all += mask[t] > 0.0f;
  for (int64_t i = 0; i < c->layout.cp; i++) {
    const struct sf_dim_map part = sf_canonical_dim(c, SF_CUT_TOKENS, count, 0, i);
    int64_t kept = 0;
    for (int32_t r = 0; r < part.count; r++)
      for (int64_t k = 0; k < part.runs[r].len; k++) kept += mask[part.runs[r].start + k] > 0.0f;
    if (kept > 0 && kept * c->layout.cp != all) return true;
  }
  return false;
}
static bool uneven_cp_parts(const struct sf_case *c) {
  return with_cp(c) && c->train.loss_norm == SF_LOSS_PER_MICROBATCH && any_microbatch(c, keeps_uneven_parts, NULL);
}

/* Whether some query sees keys of two ranks: with a window of one key none does. */
static bool ring(const struct sf_case *c) { return with_cp(c) && c->layout.cp_comm == SF_CP_RING && c->model.window != 1; }

static bool per_token_cp(const struct sf_case *c) { return with_cp(c) && c->train.loss_norm == SF_LOSS_PER_TOKEN; }
static bool per_microbatch_cp(const struct sf_case *c) {
  return with_cp(c) && c->train.loss_norm == SF_LOSS_PER_MICROBATCH && trains_something(c);
}
static bool trains_on_cp(const struct sf_case *c) { return with_cp(c) && c->layout.zero == 0 && trains_something(c); }
/* With context parallelism ranks lose different tokens at the ends of sequences; dp ranks differ in their masks. */
static bool mtp_apart(const struct sf_case *c) {
  const bool uneven = c->data.mask != SF_MASK_FULL || c->data.padding > 0 || c->data.documents > 1;
  return c->model.mtp_depth > 0 && c->train.loss_norm == SF_LOSS_PER_TOKEN && (c->layout.cp > 1 || (c->layout.dp > 1 && uneven));
}
static bool rotary_batch(const struct sf_case *c) {
  const bool is_cut = c->data.documents > 1 || c->data.padding > 0; /* positions then count within documents */
  return with_cp(c) && !is_cut && c->model.positions == SF_POS_ROTARY && c->train.microbatch_size % (2 * c->layout.cp) == 0;
}

/* A rank's tp group in the default order is not its own, and the ranks of such a group make the same calls. */
static bool has_other_tp_group(const struct sf_case *c) {
  if (!sf_plant_default_tp_in_stages(c)) return false;
  const struct sf_mesh mesh = sf_mesh_from_layout(&c->layout);
  for (int32_t rank = 0; rank < mesh.world; rank++) {
    const int32_t tp = mesh.size[SF_AXIS_TP];
    struct sf_coord member = sf_mesh_coord(&mesh, rank);
    for (int32_t i = 0; i < tp; i++) {
      member.at[SF_AXIS_TP] = i;
      if (sf_mesh_rank(&mesh, &member) != rank - rank % tp + i) return true;
    }
  }
  return false;
}

static bool other_tp_group(const struct sf_case *c) { return c->layout.recompute_sharded && has_other_tp_group(c); }
static bool other_cross_group(const struct sf_case *c) { return with_tp(c) && c->model.memory_seq > 0 && has_other_tp_group(c); }

static bool overlapped_wgrad(const struct sf_case *c) {
  const bool head = c->model.tied ? !is_frozen(c, SF_FROZEN_EMBEDDING) : true;
  return c->layout.tp_overlap && (head || !is_frozen(c, SF_FROZEN_QKV) || (!is_frozen(c, SF_FROZEN_FC1) && has_cut_mlp(c)));
}

static bool sp_router(const struct sf_case *c) { return has_experts(c) && with_tp(c) && c->layout.sp; }
static bool ep_trains(const struct sf_case *c) { return c->layout.ep >= 2 && trains_experts(c); }
static bool experts_on_tp(const struct sf_case *c) { return with_tp(c) && trains_experts(c); }

/* Some rank's edp group is not its dense data-parallel group. */
static bool experts_of_other_group(const struct sf_case *c) {
  if (!trains_experts(c) || c->layout.ep > 1 || c->layout.zero > 0) return false;
  const struct sf_mesh mesh = sf_mesh_from_layout(&c->layout);
  for (int32_t rank = 0; rank < mesh.world; rank++)
    for (int32_t other = 0; other < mesh.world; other++) {
      const struct sf_coord a = sf_mesh_coord(&mesh, rank), b = sf_mesh_coord(&mesh, other);
      const struct sf_expert_place x = sf_mesh_expert_place(&c->layout, rank), y = sf_mesh_expert_place(&c->layout, other);
      const bool same_stage = a.at[SF_AXIS_PP] == b.at[SF_AXIS_PP];
      if (same_stage && (a.at[SF_AXIS_TP] == b.at[SF_AXIS_TP]) != (x.etp == y.etp)) return true;
    }
  return false;
}

static bool has_aux_loss(const struct sf_case *c) { return c->moe.aux_micro > 0 || c->moe.z_micro > 0; }
static bool aux_cp(const struct sf_case *c) { return with_cp(c) && has_aux_loss(c); }
static bool aux_tp(const struct sf_case *c) { return with_tp(c) && has_aux_loss(c); }
static bool aux_accumulates(const struct sf_case *c) {
  return has_aux_loss(c) && c->train.loss_norm == SF_LOSS_PER_TOKEN && c->train.microbatches > 1;
}

/* Whether the sequence parts of two tp ranks have padding in the same places, in every sequence of the microbatch. */
static bool same_padding(const struct sf_case *c, int64_t step, int64_t microbatch, const struct sf_dim_map *a,
                         const struct sf_dim_map *b) {
  int64_t i = 0, at = 0;
  for (int32_t run = 0; run < a->count; run++)
    for (int64_t k = 0; k < a->runs[run].len; k++) {
      const int64_t here = a->runs[run].start + k, there = b->runs[i].start + at;
      for (int64_t sequence = 0; sequence < c->train.microbatch_size; sequence++) {
        const int64_t length = sf_data_sequence_length(c, step, microbatch, sequence);
        if ((here < length) != (there < length)) return false;
      }
      if (++at == b->runs[i].len) i++, at = 0;
    }
  return true;
}

/* Whether a rank would use the padding mask of another one's tokens, in a microbatch of its own. */
static bool padding_of_other_tp(const struct sf_case *c) {
  if (!has_aux_loss(c) || c->data.padding == 0 || !other_tp_index(c)) return false;
  const struct sf_mesh mesh = sf_mesh_from_layout(&c->layout), plain = sf_mesh_default_order(&c->layout);
  for (int32_t rank = 0; rank < mesh.world; rank++) {
    const struct sf_coord own = sf_mesh_coord(&mesh, rank), other = sf_mesh_coord(&plain, rank);
    const struct sf_dim_map a = sf_canonical_dim(c, SF_CUT_SEQUENCE, c->model.seq, own.at[SF_AXIS_TP], own.at[SF_AXIS_CP]);
    const struct sf_dim_map b = sf_canonical_dim(c, SF_CUT_SEQUENCE, c->model.seq, other.at[SF_AXIS_TP], own.at[SF_AXIS_CP]);
    for (int64_t step = 0; step < c->train.steps; step++)
      for (int64_t m = own.at[SF_AXIS_DP]; m < c->train.microbatches; m += c->layout.dp)
        if (!same_padding(c, step, m, &a, &b)) return true;
  }
  return false;
}

/* Some stage of the layout that loads begins with a later layer. */
static bool reloads_stages(const struct sf_case *c) { return c->reload.after_step > 0 && c->reload.layout.pp > 1; }
static bool reloads_buckets(const struct sf_case *c) {
  return c->reload.after_step > 0 && zero_buckets(c) && c->train.lr_micro > 0 && (c->train.beta1_milli > 0 || c->train.beta2_milli > 0);
}

/* Masters apart from the model's weights, and weights that have changed. */
static bool reloads_masters(const struct sf_case *c) {
  const bool may_change = c->reload.after_step > 0 && c->mode == SF_MODE_E2E && trains_something(c) && c->train.lr_micro > 0;
  return may_change && sf_case_storage(c) != SF_F32 && !c->precision.stochastic;
}

/* --- the table --------------------------------------------------------------------------------------------------- */

#define X(name, text) static const char ID_##name[] = text;
SF_FAULT_MAP(X)
#undef X
#define PLANT(name) .fault = SF_FAULT_##name, .id = ID_##name, .label = ""
#define CANARY(name, at) .fault = SF_FAULT_##name, .id = ID_##name, .source = "", .diagnosis = "", .label = at

const struct sf_plant sf_plants[] = {
    {PLANT(TP_EMBED_MASK), .what = "The vocabulary shard's mask has its upper bound one too low: the shard's last row comes out as zeros.",
     .source = "TTrace's study, row of VocabParallelEmbedding", .kinds = KIND(ACT), .modules = MODULE(WORD_EMBEDDINGS), .diagnosis = "part",
     .minimal = {2, 1, "layout.tp=2"}, .triggers = edge_token},
    {PLANT(RECOMPUTE_CHUNK_STALE_INPUT), .what = "Every layer of a checkpointed chunk is given the chunk's input.",
     .source = "Megatron-LM fc2c81d3a6, 6771c7734a", .kinds = KIND(ACT), .modules = MODULE(INPUT_LAYERNORM) | MODULE(SELF_ATTN_BDA),
     .diagnosis = "stale", .minimal = {1, 2, "train.recompute_layers=2"}, .triggers = chunk_of_two},
    {PLANT(SP_FINAL_LN_NOSYNC), .what = "With sequence parallelism the final norm's gradients are not summed over tp.",
     .source = "Megatron-LM #1446", .kinds = KIND(MAIN_GRAD), .modules = MODULE(FINAL_LAYERNORM), .diagnosis = "missing_reduction",
     .minimal = {2, 1, "layout.tp=2 layout.sp=true"}, .triggers = sp_norms},
    {PLANT(SP_ROUTER_NOSYNC), .what = "With sequence parallelism the router's gradient is not summed over tp.",
     .source = "Megatron-LM #599, PR #619", .kinds = KIND(MAIN_GRAD), .modules = MODULE(ROUTER), .diagnosis = "missing_reduction",
     .minimal = {2, 1, "layout.tp=2 layout.sp=true moe.experts=2"}, .triggers = sp_router},
    {PLANT(ROUTER_PARTIAL_AS_REPLICATED),
     .what = "The router's gradient, of a rank's own tokens alone, passes for a replica and is not summed.",
     .source = "torchtitan #2387, PR #2416; HF transformers #48687", .kinds = KIND(WGRAD) | KIND(MAIN_GRAD), .modules = MODULE(ROUTER),
     .diagnosis = "missing_reduction", .minimal = {2, 1, "layout.tp=2 layout.sp=true moe.experts=2"}, .triggers = sp_router},
    {PLANT(EP_GRAD_NO_DIVIDE), .what = "Gradients of experts are ep times too large: sums over the ep ranks' tokens count as one rank's.",
     .source = "Megatron-LM 3373641ff1, PR #5956", .kinds = KIND(MAIN_GRAD), .modules = MODULE(EXPERTS_FC1) | MODULE(EXPERTS_FC2),
     .diagnosis = "scale", .minimal = {2, 1, "layout.ep=2 moe.experts=2"}, .triggers = ep_trains},
    {PLANT(NORM_EP_UNDERCOUNT), .what = "Experts on tp ranks above 0 count as replicas and are left out of the gradient norm.",
     .source = "Megatron-LM #5916, e44a7407a0", .kinds = KIND(SCALAR), .modules = MODULE(OPTIMIZER), .diagnosis = "missing_reduction",
     .minimal = {2, 1, "layout.tp=2 layout.sp=true moe.experts=2"}, .triggers = experts_on_tp},
    {PLANT(ETP_EP1_WRONG_DP_GROUP), .what = "With ep = 1 gradients of experts are reduced over the dense data-parallel group.",
     .source = "Megatron-LM #1628, PR #1622", .kinds = KIND(MAIN_GRAD), .modules = MODULE(EXPERTS_FC1) | MODULE(EXPERTS_FC2),
     .diagnosis = "missing_reduction extra_reduction", .minimal = {2, 1, "moe.experts=2"}, .triggers = experts_of_other_group},
    {PLANT(ATTN_DQ_WRONG), .what = "The attention backward's dQ lacks the softmax's row sum; dK and dV are right.",
     .source = "Megatron-LM #1503; Transformer Engine #1615", .kinds = KIND(ACT_GRAD), .modules = MODULE(CORE_ATTENTION),
     .diagnosis = "part", .minimal = {1, 1, ""}, .triggers = always},
    {PLANT(PP_UNEVEN_OFFSET),
     .what = "A stage's first layer is computed by testing the first-stage option in place of the last-stage one, so its layers get wrong "
             "global numbers.",
     .source = "Megatron-LM b759cd37e6", .kinds = KIND(PARAM) | KIND(ACT), .modules = LAYER_MODULES, .diagnosis = "shifted",
     .minimal = {2, 3, "layout.pp=2 layout.pp_last_layers=1"}, .triggers = uneven_last},
    {PLANT(MEAN_OF_MEANS_ACCUM), .what = "Every microbatch is normalised by its own token count, then the microbatches are averaged.",
     .source = "Transformers #34191, #24725; torchtune #1875; Megatron-LM adfa873d96", .kinds = KIND(ACT_GRAD), .modules = MODULE(LOSS),
     .diagnosis = "scale", .minimal = {1, 1, "train.microbatches=2"}, .triggers = uneven_masks},
    {PLANT(GATHER_BWD_INFLATES),
     .what = "The sequence gather before a replicated module has a reduce-scatter as its backward: tp identical gradients are summed.",
     .source = "slime PR #1748", .kinds = KIND(ACT_GRAD), .modules = MODULE(ADAPTER), .diagnosis = "extra_reduction",
     .minimal = {2, 1, "layout.tp=2 layout.sp=true model.adapter=true"}, .triggers = sp_adapter},
    {PLANT(LINEAR_FROZEN_DGRAD_NOAR),
     .what = "A column-parallel linear with a frozen weight leaves out the reduction of its input gradient.",
     .source = "Megatron-LM 5fffdfc737", .kinds = KIND(ACT_GRAD), .traits = SF_TRAIT_COLUMN, .diagnosis = "missing_reduction",
     .minimal = {2, 1, "layout.tp=2"}, .triggers = frozen_column_linear},
    {PLANT(MQA_KV_GRAD_NOAR), .what = "The replicated key and value rows' gradients are not summed over the ranks that share the head.",
     .source = "bigcode/Megatron-LM #11, #35, PR #37", .kinds = KIND(MAIN_GRAD), .modules = MODULE(LINEAR_QKV),
     .diagnosis = "missing_reduction", .minimal = {2, 1, "layout.tp=2"}, .triggers = replicated_kv},
    {PLANT(GROUP_ORDER_CROSSTALK),
     .what = "Groups are made in rank-local order, so the tied embedding's gradient is summed over the data-parallel pair in place of "
             "first and last stage.",
     .source = "Megatron-Bridge PR #4985", .kinds = KIND(MAIN_GRAD), .modules = MODULE(WORD_EMBEDDINGS), .diagnosis = "missing_reduction",
     .minimal = {4, 2, "layout.pp=2 layout.dp=2"}, .triggers = shared_2x2},
    {PLANT(REDUCE_BEFORE_WGRAD), .what = "A bucket's reduction starts before its last weight gradient is written.",
     .source = "Megatron-LM 3548385ac3 (#3693)", .kinds = KIND(MAIN_GRAD), .modules = ANY_MODULE,
     /* stale: nothing is written yet of a rank's only microbatch, and the sum is zero */
     .diagnosis = "unsynchronised missing_reduction stale", .minimal = {2, 1, "layout.overlap=true"}, .triggers = overlapped},
    {PLANT(P2P_FREE_BEFORE_SENT), .what = "A stage's output buffer is overwritten after its send is posted and before it is complete.",
     .source = "Megatron-LM 260cba7133 (#4047)", .kinds = KIND(ACT), .modules = MODULE(MLP_BDA), .diagnosis = "stale",
     .minimal = {2, 2, "layout.pp=2"}, .triggers = with_pp},
    {PLANT(NORM_REPLICA_OVERCOUNT), .what = "Replicated parameters count tp times in the gradient norm.",
     .source = "ROCm Transformer Engine PR #715; NeMo-RL PR #3788", .kinds = KIND(SCALAR), .modules = MODULE(OPTIMIZER),
     .diagnosis = "repeated_term", .minimal = {2, 1, "layout.tp=2"}, .triggers = replicated_tp},
    {PLANT(CLIP_NOT_ON_ALL_REPLICAS), .what = "Norm weights are clipped on the first tp rank only, so their replicas drift apart.",
     .source = "DeepSpeed #1801 (BLOOM-176B), as told in TrainCheck's documentation", .kinds = KIND(PARAM_DELTA),
     .modules = MODULE(OPTIMIZER), .diagnosis = "unsynchronised", .minimal = {2, 1, "layout.tp=2"}, .triggers = clipped_norms},
    {PLANT(ACCUM_FIRST_MB_ONLY), .what = "Only a rank's first microbatch of the step is added to the main gradients.",
     .source = "Primus PR #1046", .kinds = KIND(MAIN_GRAD), .modules = ANY_MODULE, .diagnosis = "missing_reduction",
     .minimal = {1, 1, "train.microbatches=2"}, .triggers = accumulates},
    {PLANT(ROWPARALLEL_BIAS_XTP), .what = "A row-parallel linear adds its replicated bias on every rank before the reduction.",
     .source = "torchtitan PR #4245; text-generation-inference #1036", .kinds = KIND(ACT),
     .modules = MODULE(LINEAR_PROJ) | MODULE(CROSS_LINEAR_PROJ) | MODULE(LINEAR_FC2), .diagnosis = "repeated_term",
     .minimal = {2, 1, "layout.tp=2 model.bias=true"}, .triggers = biased_tp},
    {PLANT(FUSED_PROJ_CONTIGUOUS_SPLIT),
     .what = "The loader cuts a fused projection's rows into contiguous pieces, where a rank needs a piece of each part.",
     .source = "Megatron-LM PR #1989; nnsight PR #719; sglang PR #34529", .kinds = KIND(PARAM),
     .modules = MODULE(LINEAR_QKV) | MODULE(LINEAR_FC1) | MODULE(SHARED_FC1), .diagnosis = "fused_order", .minimal = {2, 1, "layout.tp=2"},
     .triggers = cut_fused},
    {PLANT(NONAUTOGRAD_ALLREDUCE),
     .what = "The label's log-probability is collected from its shard by an all-reduce without a backward: the other shards get no "
             "gradient for the token.",
     .source = "ms-swift PR #9947", .kinds = KIND(ACT_GRAD), .modules = MODULE(LOSS) | MODULE(MTP_LOSS), .diagnosis = "part",
     .minimal = {2, 1, "layout.tp=2"}, .triggers = with_tp},
    {PLANT(ADAM_SYNTHETIC_STEP), .what = "The first real update uses the bias correction of step 2.",
     .source = "Megatron-LM ce8a8a736f (#5976)", .kinds = KIND(PARAM_DELTA), .modules = MODULE(OPTIMIZER), .diagnosis = "scale",
     .minimal = {1, 1, ""}, .triggers = bias_correction},
    {PLANT(EMBED_SCATTER_WRONG_TP_GROUP),
     .what = "Embeddings are scattered along the sequence by the rank's tp index in the default rank order.",
     .source = "Megatron-LM #7452-7", .kinds = KIND(ACT), .modules = MODULE(WORD_EMBEDDINGS), .diagnosis = "permuted neighbour",
     .minimal = {4, 1, "layout.tp=2 layout.sp=true"}, .triggers = other_tp_index},
    {PLANT(XATTN_QKV_WRONG_TP_GROUP),
     .what = "Cross-attention's query and key-value projections communicate over the tp group of the default rank order.",
     .source = "Megatron-LM #7452-6", .kinds = KIND(ACT) | KIND(ACT_GRAD), .modules = MODULE(CROSS_LINEAR_Q) | MODULE(CROSS_LINEAR_KV),
     .diagnosis = "missing_reduction neighbour", .minimal = {4, 1, "layout.tp=2 layout.dp=2 model.memory_seq=1"},
     .also = {4, 1, "layout.tp=2 layout.sp=true layout.dp=2 model.memory_seq=2", "/act/"}, .triggers = other_cross_group},
    {PLANT(LS_LOCAL_VOCAB),
     .what = "Label smoothing takes the vocabulary shard's width and its own mean of the log-probabilities for the whole vocabulary's.",
     .source = "Megatron-LM #7452-1, #737, #7464", .kinds = KIND(ACT), .modules = MODULE(LOSS), .diagnosis = "unsynchronised",
     .minimal = {2, 1, "layout.tp=2 train.label_smoothing_milli=100"}, .triggers = smoothed_tp},
    {PLANT(VPP_GRADSYNC_WRONG_MB),
     .what = "With interleaved stages the test for a chunk's last microbatch counts microbatches in place of all steps, so gradients are "
             "reduced before the last ones are there.",
     .source = "Megatron-LM ea76ecde2e, 32bbb76d57", .kinds = KIND(MAIN_GRAD), .modules = ANY_MODULE,
     .diagnosis = "unsynchronised missing_reduction", .minimal = {4, 4, "layout.pp=2 layout.vpp=2 layout.overlap=true"},
     .triggers = chunks_synced_early},
    {PLANT(ZERO_TIED_UNTIE), .what = "With ZeRO the head's copy of the tied embedding does not take the sum over first and last stage.",
     .source = "Megatron-LM #656", .kinds = KIND(MAIN_GRAD), .modules = MODULE(WORD_EMBEDDINGS), .diagnosis = "unsynchronised",
     .minimal = {4, 2, "layout.pp=2 layout.zero=1"}, .triggers = zero_tied},
    {PLANT(ZERO_PARAM_GATHER_SKIPPED), .what = "The loop that collects updated parameters from the shards runs over an empty list.",
     .source = "Megatron-LM PR #6920", .kinds = KIND(PARAM), .modules = ANY_MODULE, .diagnosis = "stale",
     .minimal = {2, 1, "layout.zero=1"}, .triggers = zero_updates},
    {PLANT(ZERO_PARAM_UPDATE_LOST), .what = "The last updated piece of each shard is not written back to the model's weights.",
     .source = "TTrace's study, row of ZeRO", .kinds = KIND(PARAM), .modules = ANY_MODULE, .diagnosis = "stale",
     .minimal = {2, 1, "layout.zero=1"}, .triggers = zero_updates},
    {PLANT(FSDP_SCALE_WRONG_BUFFER), .what = "The factor before the reduction scales the accumulated shard in place of the bucket.",
     .source = "Megatron-LM ba456fdad9 (#3023)", .kinds = KIND(MAIN_GRAD), .modules = ANY_MODULE, .diagnosis = "scale",
     .minimal = {2, 1, "layout.zero=2"}, .triggers = zero2_trains},
    {PLANT(ZERO_BOUNDARY_DROPS_ACCUM),
     .what = "Every backward is taken for the step's last, so the accumulated shard starts anew with each microbatch.",
     .source = "open-instruct PR #1498; DeepSpeed #545", .kinds = KIND(MAIN_GRAD), .modules = ANY_MODULE, .diagnosis = "missing_reduction",
     .minimal = {2, 1, "layout.zero=2"}, .triggers = zero2_accumulates},
    {PLANT(SHARED_BUF_OVERZERO), .what = "After one bucket's weights are copied out, the buffer that all buckets share is cleared.",
     .source = "Megatron-LM c2c36f77cf (!3999)", .kinds = KIND(PARAM), .modules = ANY_MODULE, .diagnosis = "stale",
     .minimal = {2, 1, "layout.zero=1"}, .also = {4, 2, "layout.pp=2 layout.zero=1", "conflict/"}, .triggers = zero_buckets},
    {PLANT(WGRAD_RS_LOW_PRECISION), .what = "Main gradients are rounded to the compute format before they are reduce-scattered.",
     .source = "Megatron-LM e5542e85f2 (#6624)", .kinds = KIND(MAIN_GRAD), .modules = ANY_MODULE, .diagnosis = "low_precision",
     .minimal = {2, 1, "layout.zero=1 precision.compute=bf16"}, .triggers = zero_low_precision},
    {PLANT(MLA_KPOS_GRAD_NOAR),
     .what = "The rotated key part that all heads share gets the gradient of the rank's own heads only: it is not summed over tp.",
     .source = "Megatron-LM #1699; Transformer Engine #1975", .kinds = KIND(ACT_GRAD), .modules = MODULE(LINEAR_KV_DOWN),
     .diagnosis = "missing_reduction", .minimal = {2, 1, "layout.tp=2 layout.sp=true model.kv_lora_rank=8 model.qk_rope_dim=2"},
     .triggers = shared_key_tp},
    {PLANT(CP_LOCAL_LOSS_MEAN), .what = "A microbatch's loss is divided by each cp rank's own token count, then the ranks are averaged.",
     .source = "Megatron-LM #7452-9, PR #7513", .kinds = KIND(ACT_GRAD), .modules = MODULE(LOSS), .diagnosis = "scale part",
     .minimal = {2, 1, "layout.cp=2 train.loss_norm=per_microbatch"}, .triggers = uneven_cp_parts},
    {PLANT(CP_ATTN_BWD_WRONG),
     .what = "The backward of ring attention takes each block's own softmax sum in place of the merged one; the forward is right.",
     .source = "Megatron-LM #1464, #1465; Transformer Engine #1557", .kinds = KIND(ACT_GRAD), .modules = MODULE(CORE_ATTENTION),
     .minimal = {2, 1, "layout.cp=2"}, .triggers = ring},
    {PLANT(CP_LOSS_SCALE),
     .what = "The loss's gradient is multiplied by cp, though gradients are later divided by the token count of all ranks.",
     .source = "Megatron-LM #673, PR #672, 5946e24b37", .kinds = KIND(ACT_GRAD), .modules = MODULE(LOSS), .diagnosis = "scale",
     .minimal = {2, 1, "layout.cp=2"}, .triggers = per_token_cp},
    {PLANT(DP_SCALE_EXCL_CP),
     .what = "Gradients are scaled for a mean over dp before a reduction that spans dp and cp: they come out cp times too large.",
     .source = "Megatron-LM 3bdcbbbe5d", .kinds = KIND(MAIN_GRAD), .modules = ANY_MODULE, .diagnosis = "scale",
     .minimal = {2, 1, "layout.cp=2 train.loss_norm=per_microbatch"}, .triggers = per_microbatch_cp},
    {PLANT(DDP_GROUP_EXCLUDES_CP), .what = "Gradients are reduced over dp alone: every cp rank steps on its own tokens' gradient.",
     .source = "VeOmni #1059, PR #1115", .kinds = KIND(MAIN_GRAD), .modules = ANY_MODULE, .diagnosis = "missing_reduction",
     .minimal = {2, 1, "layout.cp=2"}, .triggers = trains_on_cp},
    {PLANT(ROPE_CP_WRONG_DIM),
     .what =
         "The rotary table is cut over cp along the batch (which 2 cp divides) in place of the sequence: angles of the first positions.",
     .source = "Megatron-LM 28778d1283 (!3603)", .kinds = KIND(ACT), .modules = MODULE(ROTARY), .diagnosis = "part",
     .minimal = {2, 1, "layout.cp=2 model.positions=rotary train.microbatch_size=4"}, .triggers = rotary_batch},
    {PLANT(MTP_LOCAL_TOKEN_NORM),
     .what = "The losses further ahead are normalised by each rank's own token counts in place of those of all ranks.",
     .source = "Megatron-LM #7452-3; PRs #7498, #3159; #2417", .kinds = KIND(ACT_GRAD), .modules = MODULE(MTP_LOSS), .diagnosis = "scale",
     .minimal = {2, 1, "model.mtp_depth=1"}, .triggers = mtp_apart},
    {PLANT(RNG_SP_SAME_SEED),
     .what = "With sequence parallelism each rank draws its dropout mask by its local rows: every shard has the same mask.",
     .source = "PaddleFleetX PR #1005", .kinds = KIND(ACT), .modules = MODULE(SELF_ATTN_BDA) | MODULE(CROSS_ATTN_BDA) | MODULE(MLP_BDA),
     .diagnosis = "part", .minimal = {2, 1, "layout.tp=2 layout.sp=true train.dropout_milli=100"},
     .also = {2, 1, "layout.tp=2 layout.sp=true train.dropout_milli=500", "exact/"}, .triggers = dropout_sp},
    {PLANT(RNG_REPLICA_DESYNC),
     .what = "One tp rank has a random stream of its own: replicas of one activation are dropped by different masks.",
     .source = "Megatron-LM PR #206; tt-metal #55947", .kinds = KIND(ACT),
     .modules = MODULE(SELF_ATTN_BDA) | MODULE(CROSS_ATTN_BDA) | MODULE(MLP_BDA), .diagnosis = "unsynchronised",
     .minimal = {2, 1, "layout.tp=2 train.dropout_milli=100"}, .triggers = dropout_replicas},
    {PLANT(RECOMPUTE_WRONG_TP_GROUP),
     .what = "A chunk's saved input, cut over tp, is gathered again over the tp group of the default rank order.",
     .source = "Megatron-LM #7452-4, PR #6760", .kinds = KIND(ACT), .modules = MODULE(INPUT_LAYERNORM) | MODULE(SELF_ATTN_BDA),
     .diagnosis = "neighbour", .minimal = {4, 1, "layout.tp=2 train.recompute_layers=1 layout.recompute_sharded=true"},
     .triggers = other_tp_group},
    {PLANT(TP_OVERLAP_WGRAD_WRONG),
     .what = "A weight gradient that overlaps the gathering of its input multiplies a chunk before it has arrived.",
     .source = "TTrace's study, row of tensor parallelism with communication overlap", .kinds = KIND(WGRAD),
     .modules = MODULE(WORD_EMBEDDINGS), .traits = SF_TRAIT_COLUMN, .diagnosis = "stale",
     .minimal = {2, 1, "layout.tp=2 layout.sp=true layout.tp_overlap=true"}, .triggers = overlapped_wgrad},
    {PLANT(FP8_AMAX_WRONG_GROUP),
     .what = "Amaxes are max-reduced without the tp ranks, which cast pieces of one logical tensor with different scales.",
     .source = "Megatron-LM f1b88a393f, fc046101ec, 2e429097dd, 98abe37866", .kinds = KIND(ACT) | KIND(ACT_GRAD) | KIND(WGRAD),
     .traits = SF_TRAIT_FP8, .diagnosis = "unsynchronised", .minimal = {2, 1, "layout.tp=2 precision.compute=fp8"}, .triggers = fp8_tp},
    {PLANT(FP8_LAYER_EXEMPT_LOCAL_INDEX),
     .what = "Whether a layer is one of the first that stay in bf16 is asked of its number in the pipeline stage.",
     .source = "Megatron-LM dd1697efdb (!3054)", .kinds = KIND(ACT), .traits = SF_TRAIT_FP8, .diagnosis = "shifted",
     .minimal = {2, 2, "layout.pp=2 precision.compute=fp8 precision.fp8_bf16_first=1"}, .triggers = fp8_exempt_pp},
    {PLANT(FP8_WEIGHT_CACHE_STALE),
     .what = "From the second microbatch on a weight's cached cast is used with a scale that was updated after it was made.",
     .source = "Transformer Engine #1047", .kinds = KIND(ACT), .traits = SF_TRAIT_FP8, .diagnosis = "scale",
     .minimal = {1, 1, "precision.compute=fp8 precision.fp8_recipe=delayed train.steps=2 train.microbatches=2"},
     .triggers = fp8_late_scale},
    {PLANT(FP8_WRONG_CAST), .what = "The input of an MLP's linear_fc2 is cast with the scale of linear_fc1's input.",
     .source = "a class of bugs: a tensor is cast with another tensor's scale", .kinds = KIND(ACT),
     .modules = MODULE(LINEAR_FC2) | MODULE(SHARED_FC2), .minimal = {1, 1, "precision.compute=fp8"}, .triggers = fp8_mlp},
    {PLANT(AUX_LOSS_NO_CP),
     .what =
         "The router's own losses lack the factor cp that the main loss has against the mean over cp ranks: their gradient is cp times too small.",
     .source = "Megatron-LM f6e0d425a5 (#2237); PR #3959", .kinds = KIND(ACT_GRAD), .modules = MODULE(AUX_LOSS), .diagnosis = "scale",
     .minimal = {2, 1, "layout.cp=2 moe.experts=2"}, .triggers = aux_cp},
    {PLANT(AUX_LOSS_TP_MULTIPLE),
     .what = "Every tp rank counts the router's own losses as if they were its alone, and their gradients are summed: tp times too large.",
     .source = "Megatron-LM cac8d1a3f0, 9ef8a2a420 (#5047)", .kinds = KIND(ACT_GRAD), .modules = MODULE(AUX_LOSS),
     .diagnosis = "extra_reduction", .minimal = {2, 1, "layout.tp=2 layout.sp=true moe.experts=2"}, .triggers = aux_tp},
    {PLANT(AUX_PER_TOKEN_EXTRA_DIV), .what = "In the per-token mode the router's own losses are divided by the number of microbatches too.",
     .source = "Megatron-LM 87d9d2506a (!2851)", .kinds = KIND(ACT_GRAD), .modules = MODULE(AUX_LOSS), .diagnosis = "scale",
     .minimal = {1, 1, "moe.experts=2 train.microbatches=2"}, .triggers = aux_accumulates},
    {PLANT(PADMASK_WRONG_TP_GROUP),
     .what =
         "The padding mask that the router's own losses read is scattered along the sequence by the rank's tp index in the default rank order.",
     .source = "Megatron-LM #7452-5, PR #5563", .kinds = KIND(ACT) | KIND(ACT_GRAD), .modules = MODULE(AUX_LOSS),
     .diagnosis = "permuted neighbour", .minimal = {4, 1, "layout.tp=2 layout.sp=true moe.experts=2"}, .triggers = padding_of_other_tp},
    {PLANT(CKPT_LOCAL_LAYER_NAMES),
     .what = "State is looked for under the layer's number in its pipeline stage, so every later stage loads the first one's layers.",
     .source = "Megatron-LM #7452-12", .kinds = KIND(PARAM), .modules = ANY_MODULE, .diagnosis = "shifted",
     .minimal = {2, 2, "reload.after_step=1 reload.pp=2"}, .triggers = reloads_stages},
    {PLANT(CKPT_BUCKET_OVERWRITE),
     .what = "With ZeRO the dictionary of optimizer states is made anew for each gradient bucket: only the last one's moments are saved.",
     .source = "Megatron-LM 9a8420c90a", .kinds = KIND(PARAM_DELTA), .modules = MODULE(OPTIMIZER), .diagnosis = "stale",
     .minimal = {2, 1, "layout.zero=1 reload.after_step=1"}, .triggers = reloads_buckets},
    {PLANT(STALE_MASTER_AFTER_LOAD),
     .what = "Weights are loaded into the model alone; masters keep their first values, and the next step writes those back.",
     .source = "Megatron-LM PR #5071; Megatron-Bridge PR #4082; SkyRL PR #2149", .kinds = KIND(PARAM) | KIND(PARAM_DELTA),
     .modules = ANY_MODULE, .diagnosis = "stale", .minimal = {1, 1, "reload.after_step=1 mode=e2e precision.compute=bf16"},
     .triggers = reloads_masters},
    {CANARY(CANARY_CRASH, "parallel_mlp.bwd.canary"), .what = "The last rank raises SIGSEGV in the backward of the last layer's MLP.",
     .minimal = {1, 1, ""}, .triggers = always},
    {CANARY(CANARY_HANG, "parallel_mlp.bwd.canary"), .what = "The last rank loops for ever in the backward of the last layer's MLP.",
     .minimal = {1, 1, ""}, .triggers = always},
    {CANARY(CANARY_DEADLOCK, "finalize_grads.canary_deadlock"), .what = "Every rank waits for a message that its neighbour never sends.",
     .minimal = {2, 1, ""}, .triggers = with_two_ranks},
    {CANARY(CANARY_MISMATCH, "finalize_grads.canary_mismatch"), .what = "The last rank gives an all-reduce another count than the others.",
     .minimal = {2, 1, ""}, .triggers = with_two_ranks},
};

_Static_assert(sizeof sf_plants / sizeof sf_plants[0] == SF_FAULT_COUNT - 1, "a row for each fault");

const struct sf_plant *sf_plant_find(const char *id) {
  for (int i = 0; i < SF_FAULT_COUNT - 1; i++)
    if (strcmp(sf_plants[i].id, id) == 0) return &sf_plants[i];
  return NULL;
}

const struct sf_plant *sf_plant_of(enum sf_fault fault) {
  return fault > SF_FAULT_NONE && fault < SF_FAULT_COUNT ? &sf_plants[fault - 1] : NULL;
}

bool sf_plant_may_blame(const struct sf_plant *plant, enum sf_module_class cls) {
  return (plant->modules >> (int)cls & 1) != 0 || sf_module_is(cls, plant->traits);
}

bool sf_plant_is_triggered(const struct sf_plant *plant, const struct sf_case *c) {
  const struct sf_case second = c->reload.after_step > 0 ? sf_case_after_reload(c) : *c;
  return plant->triggers(c) || plant->triggers(&second);
}
