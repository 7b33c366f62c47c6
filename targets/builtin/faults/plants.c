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

/* The router's own losses have a gradient. Where every expert gets every token, the balance is always the same. */
static bool has_aux_loss(const struct sf_case *c) { return c->moe.z_micro > 0 || (c->moe.aux_micro > 0 && c->moe.topk < c->moe.experts); }
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

#define PLANT(name, text, ...) {.fault = SF_FAULT_##name, .id = text, .label = "", __VA_ARGS__},
#define CANARY(name, text, at, ...) {.fault = SF_FAULT_##name, .id = text, .source = "", .diagnosis = "", .label = at, __VA_ARGS__},
const struct sf_plant sf_plants[] = {
#include "targets/builtin/faults/plants.def"
};

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
