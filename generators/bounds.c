/* Feasibility: whether decided and fixed fields still leave a valid case. The rules that join fields (sf_case_validate) fall into
 * groups that meet only in the sizes of tp and cp, dp and pp, so the smallest possible size of each axis decides; with interleaved stages
 * pp and dp are looked at together, and with ZeRO once dp and once cp is taken above 1. */
#include "generators/bounds_internal.h"

#include "harness/base/assert.h"

/* All multiples of tp (and cp) that matter lie below this; it also bounds the time that a contradiction takes to show. */
enum { MULTIPLES_MAX = 4096 };
static const int64_t none = INT64_MAX;

void sf_bounds_init(struct sf_bounds *bounds, const struct sf_space *space) {
  bounds->max_ranks = space->max_ranks;
  bounds->formats_left_out = space->formats_left_out;
  bounds->may_train_nothing = space->is_set[SF_WALK_FROZEN] && space->is_set[SF_WALK_TIED] && space->is_set[SF_WALK_ADAPTER];
  bounds->at[SF_WALK_SWARM] = (struct sf_range){0, 2};
  for (int place = SF_WALK_SWARM + 1; place < SF_WALK_COUNT; place++) {
    const struct sf_field *field = &sf_case_fields[space->field[place]];
    const int64_t most = sf_walk_first((enum sf_walk)place) == SF_WALK_ORDER ? SF_ORDER_COUNT - 1 : field->max;
    bounds->at[place] = space->is_set[place] ? space->set[place] : (struct sf_range){field->min, most};
  }
}

/* Whether the fields drawn so far ask for fp8. */
bool sf_bounds_need_fp8(const struct sf_range *at) {
  return at[SF_WALK_COMPUTE].lo == SF_COMPUTE_FP8 || at[SF_WALK_FP8_RECIPE].lo == SF_FP8_DELAYED || at[SF_WALK_FP8_HISTORY].lo > 1 ||
         at[SF_WALK_FP8_FIRST].lo > 0 || at[SF_WALK_FP8_LAST].lo > 0;
}

/* kv_step: key/value heads come in multiples of it. Latents: as many as query heads. fp8: tp may not be above kv_heads. */
static bool heads_fit(const struct sf_range *at, int64_t tp, int64_t kv_step) {
  const struct sf_range heads = at[SF_WALK_HEADS], kv_heads = at[SF_WALK_KV_HEADS];
  const bool may_exceed = !sf_bounds_need_fp8(at), own_keys = at[SF_WALK_KV_LORA].lo > 0;
  int64_t h = (heads.lo + tp - 1) / tp * tp;
  for (int i = 0; i < MULTIPLES_MAX && h <= heads.hi; i++, h += tp) {
    const int64_t least = own_keys && h > kv_heads.lo ? h : kv_heads.lo;
    for (int64_t kv = least; kv <= kv_heads.hi && kv <= h; kv++)
      if (h % kv == 0 && kv % kv_step == 0 && (kv % tp == 0 || (may_exceed && tp % kv == 0))) return true;
  }
  return false;
}

bool sf_bounds_need_sp(const struct sf_range *at) { return at[SF_WALK_SP].lo > 0 || at[SF_WALK_TP_OVERLAP].lo > 0; }

static bool tokens_fit(const struct sf_range *at, int64_t tp, int64_t cp) {
  const int64_t parts = sf_bounds_need_sp(at) ? tp : 1;
  if (cp > 1 && at[SF_WALK_MEMORY_SEQ].lo > 0) return false;
  return sf_range_has_multiple(at[SF_WALK_SEQ], cp > 1 ? 2 * cp * parts : parts) &&
         (cp > 1 || sf_range_has_multiple(at[SF_WALK_MEMORY_SEQ], parts));
}

struct sf_range sf_bounds_vocab_rows(const struct sf_range *at) {
  const struct sf_range padded = at[SF_WALK_VOCAB_PADDED], vocab = at[SF_WALK_VOCAB];
  return (struct sf_range){padded.lo > vocab.lo ? padded.lo : vocab.lo, padded.hi};
}

static bool tp_fits(const struct sf_range *at, int64_t tp, int64_t cp) {
  const bool trades = at[SF_WALK_CP_COMM].lo == SF_CP_A2A;
  const bool needs_tp = sf_bounds_need_sp(at) || at[SF_WALK_RECOMPUTE_SHARDED].lo > 0;
  if ((needs_tp && tp == 1) || !tokens_fit(at, tp, cp)) return false;
  if (at[SF_WALK_MTP_DEPTH].lo > 0 && !sf_range_has_multiple(at[SF_WALK_HIDDEN], tp)) return false;
  return sf_range_has_multiple(at[SF_WALK_FFN], tp) && sf_range_has_multiple(sf_bounds_vocab_rows(at), tp) &&
         heads_fit(at, tp, trades ? tp * cp : 1);
}

struct sf_range sf_bounds_layers(const struct sf_range *at) {
  struct sf_range layers = at[SF_WALK_LAYERS];
  const int64_t exempt = at[SF_WALK_FP8_FIRST].lo + at[SF_WALK_FP8_LAST].lo;
  if (at[SF_WALK_RECOMPUTE].lo > layers.lo) layers.lo = at[SF_WALK_RECOMPUTE].lo;
  if (exempt >= layers.lo) layers.lo = exempt + 1;
  return layers;
}

/* How many layers the first and the last stage may have together, with a number of its own for each or an even share (which counts as
 * none); an empty range when that cannot be. */
static struct sf_range exempt_layers(const struct sf_range *at, bool has_first, bool has_last) {
  const struct sf_range ends[2] = {at[SF_WALK_PP_FIRST], at[SF_WALK_PP_LAST]};
  const bool has[2] = {has_first, has_last};
  struct sf_range sum = {0, 0};
  for (int i = 0; i < 2; i++) {
    if (has[i] ? ends[i].hi < 1 : ends[i].lo > 0) return (struct sf_range){1, 0};
    sum.lo += has[i] && ends[i].lo < 1 ? 1 : ends[i].lo;
    sum.hi += has[i] ? ends[i].hi : 0;
  }
  return sum;
}

bool sf_bounds_stages_fit(const struct sf_range *at, int64_t layers, int64_t pp) {
  if (pp > layers) return false;
  for (int i = 0; i < (pp == 1 ? 1 : 4); i++) {
    const struct sf_range exempt = exempt_layers(at, i & 1, i & 2);
    const int64_t sharing = pp - (i & 1) - (i >> 1);
    const struct sf_range left = {layers - exempt.hi > sharing ? layers - exempt.hi : sharing, layers - exempt.lo};
    if (exempt.lo > exempt.hi) continue;
    if (sharing == 0 ? layers >= exempt.lo && layers <= exempt.hi : sf_range_has_multiple(left, sharing)) return true;
  }
  return false;
}

static bool pp_fits(const struct sf_range *at, int64_t pp) {
  const struct sf_range layers = sf_bounds_layers(at);
  for (int64_t n = layers.lo > pp ? layers.lo : pp; n <= layers.hi; n++)
    if (sf_bounds_stages_fit(at, n, pp)) return true;
  return false;
}

static bool dp_fits(const struct sf_range *at, int64_t dp) { return sf_range_has_multiple(at[SF_WALK_MICROBATCHES], dp); }

/* The smallest size of an axis that fits; `none` above limit. */
static int64_t smallest_axis(const struct sf_range *at, enum sf_walk axis, bool (*fits)(const struct sf_range *, int64_t), int64_t limit) {
  for (int64_t size = at[axis].lo; size <= at[axis].hi && size <= limit; size++)
    if (fits(at, size)) return size;
  return none;
}

/* Overlap needs sp, sharded recomputation excludes it. */
static bool tp_options_fit(const struct sf_range *at) {
  const bool is_sharded = at[SF_WALK_RECOMPUTE_SHARDED].lo > 0;
  if (at[SF_WALK_TP_OVERLAP].lo > 0 && at[SF_WALK_SP].hi == 0) return false;
  return !is_sharded || (!sf_bounds_need_sp(at) && at[SF_WALK_RECOMPUTE].hi > 0);
}

/* A format that is not left out, fp8 and bf16 where the other fields want those. */
static bool formats_fit(const struct sf_bounds *bounds) {
  const struct sf_range *at = bounds->at;
  for (int64_t format = at[SF_WALK_COMPUTE].lo; format <= at[SF_WALK_COMPUTE].hi; format++) {
    const bool is_wanted = (!sf_bounds_need_fp8(at) || format == SF_COMPUTE_FP8) && (at[SF_WALK_STOCHASTIC].lo == 0 || format == SF_COMPUTE_BF16);
    if (is_wanted && !(bounds->formats_left_out >> format & 1)) return true;
  }
  return false;
}

bool sf_bounds_singles_fit(const struct sf_bounds *bounds) {
  const struct sf_range *at = bounds->at;
  const struct sf_range head_dim = at[SF_WALK_HEAD_DIM];
  if (at[SF_WALK_POSITIONS].lo == SF_POS_ROTARY && !sf_range_has_multiple(head_dim, 2)) return false;
  if (!formats_fit(bounds)) return false;
  if (at[SF_WALK_FP8_HISTORY].lo > 1 && at[SF_WALK_FP8_RECIPE].hi == SF_FP8_CURRENT) return false;
  if (at[SF_WALK_LOSS_SCALE_WINDOW].lo > 0 && at[SF_WALK_LOSS_SCALE].hi == 0) return false;
  if (at[SF_WALK_HEADS].lo * head_dim.lo > 65536 || !tp_options_fit(at)) return false;
  if ((at[SF_WALK_EXACT].lo > 0 || at[SF_WALK_OVERFLOW].lo > 0 || at[SF_WALK_STOCHASTIC].lo > 0) && sf_bounds_need_fp8(at)) return false;
  if ((at[SF_WALK_EXACT].lo > 0 || at[SF_WALK_OVERFLOW].lo > 0) && at[SF_WALK_MODE].lo > SF_MODE_ISOLATED) return false;
  if (at[SF_WALK_OVERFLOW].lo > 0 && (at[SF_WALK_EXACT].lo > 0 || at[SF_WALK_LOSS_SCALE].hi == 0)) return false;
  if (at[SF_WALK_SEQ].lo * at[SF_WALK_MICROBATCH_SIZE].lo > 1048576) return false;
  if (at[SF_WALK_MEMORY_SEQ].lo * at[SF_WALK_MICROBATCH_SIZE].lo > 1048576) return false;
  if (at[SF_WALK_MEMORY_SEQ].lo > 0 && at[SF_WALK_PARALLEL_RESIDUAL].lo > 0) return false;
  /* Something must be left to train, unless a case was given that says otherwise: the adapter and an output layer of its own
   * have no bit. */
  return bounds->may_train_nothing || at[SF_WALK_FROZEN].lo < SF_FROZEN_ALL || at[SF_WALK_TIED].lo == 0 || at[SF_WALK_ADAPTER].hi > 0;
}

/* Stages that are not interleaved. limit: ranks that tp leaves. */
static bool plain_stages_fit(const struct sf_range *at, int64_t limit) {
  const int64_t pp = smallest_axis(at, SF_WALK_PP, pp_fits, limit);
  return pp != none && smallest_axis(at, SF_WALK_DP, dp_fits, limit / pp) != none;
}

/* Whether some number of layers divides over pp ranks of two chunks or more. */
static bool chunks_divide(const struct sf_range *at, int64_t pp) {
  const struct sf_range chunks = at[SF_WALK_VPP], layers = sf_bounds_layers(at);
  for (int64_t vpp = chunks.lo > 2 ? chunks.lo : 2; vpp <= chunks.hi && pp * vpp <= layers.hi; vpp++)
    if (sf_range_has_multiple(layers, pp * vpp)) return true;
  return false;
}

/* Interleaved stages: here pp and dp meet, in the microbatches. */
static bool interleaved_stages_fit(const struct sf_range *at, int64_t limit) {
  const struct sf_range pps = at[SF_WALK_PP], dps = at[SF_WALK_DP];
  if (at[SF_WALK_PP_FIRST].lo > 0 || at[SF_WALK_PP_LAST].lo > 0) return false;
  for (int64_t pp = pps.lo > 2 ? pps.lo : 2; pp <= pps.hi && pp <= limit && 2 * pp <= at[SF_WALK_LAYERS].hi; pp++) {
    if (!chunks_divide(at, pp)) continue;
    for (int64_t dp = dps.lo; dp <= dps.hi && dp <= limit / pp; dp++)
      if (dp_fits(at, dp) && sf_range_has_multiple(at[SF_WALK_MICROBATCHES], dp * pp)) return true;
  }
  return false;
}

/* The least tp * cp that fits; `none` above limit. */
static int64_t smallest_tp_cp(const struct sf_range *at, int64_t limit) {
  int64_t least = none;
  for (int64_t cp = at[SF_WALK_CP].lo; cp <= at[SF_WALK_CP].hi && cp * at[SF_WALK_TP].lo <= limit; cp++) {
    if (cp == 1 && at[SF_WALK_CP_COMM].lo != SF_CP_RING) continue;
    for (int64_t tp = at[SF_WALK_TP].lo; tp <= at[SF_WALK_TP].hi && tp * cp <= limit; tp++) {
      if (!tp_fits(at, tp, cp)) continue;
      least = limit = tp * cp;
      break;
    }
    if (least == cp * at[SF_WALK_TP].lo) break;
  }
  return least;
}

bool sf_bounds_may_lack_latents(const struct sf_range *at) {
  return at[SF_WALK_KV_LORA].lo == 0 && at[SF_WALK_Q_LORA].lo == 0 && at[SF_WALK_ROPE_DIM].lo == 0;
}

bool sf_bounds_with_latents(struct sf_bounds *bounds) {
  struct sf_range *at = bounds->at;
  const int64_t rope = at[SF_WALK_ROPE_DIM].lo > 2 ? (at[SF_WALK_ROPE_DIM].lo + 1) / 2 * 2 : 2;
  if (at[SF_WALK_KV_LORA].hi == 0 || at[SF_WALK_POSITIONS].hi < SF_POS_ROTARY || at[SF_WALK_QK_NORM].lo > 0) return false;
  if (rope > at[SF_WALK_ROPE_DIM].hi || rope + 2 > at[SF_WALK_HEAD_DIM].hi) return false;
  if (at[SF_WALK_KV_LORA].lo == 0) at[SF_WALK_KV_LORA].lo = 1;
  if (at[SF_WALK_HEAD_DIM].lo < rope + 2) at[SF_WALK_HEAD_DIM].lo = rope + 2;
  at[SF_WALK_POSITIONS].lo = SF_POS_ROTARY;
  return true;
}

bool sf_bounds_axes_fit(const struct sf_range *at, int64_t max_ranks) {
  const int64_t ranks = smallest_tp_cp(at, max_ranks);
  if (ranks == none) return false;
  if (at[SF_WALK_VPP].lo == 1 && plain_stages_fit(at, max_ranks / ranks)) return true;
  return interleaved_stages_fit(at, max_ranks / ranks);
}

/* ZeRO: dp or cp is above 1. */
static bool sharded_axes_fit(const struct sf_bounds *bounds) {
  static const enum sf_walk axes[] = {SF_WALK_DP, SF_WALK_CP};
  for (int i = 0; i < 2; i++) {
    struct sf_bounds above = *bounds;
    if (above.at[axes[i]].lo < 2) above.at[axes[i]].lo = 2;
    if (sf_bounds_axes_fit(above.at, above.max_ranks)) return true;
  }
  return false;
}

static bool dense_fits(const struct sf_bounds *bounds) {
  if (!sf_bounds_may_be_dense(bounds->at)) return false;
  return bounds->at[SF_WALK_ZERO].lo > 0 ? sharded_axes_fit(bounds) : sf_bounds_axes_fit(bounds->at, bounds->max_ranks);
}

static bool fits(const struct sf_bounds *bounds) {
  return sf_bounds_singles_fit(bounds) && (dense_fits(bounds) || sf_bounds_may_be_moe(bounds));
}

/* With latents other rules join the heads, so both are tried where the bounds leave the choice. */
bool sf_bounds_layout_fits(const struct sf_bounds *bounds) {
  if (sf_bounds_may_lack_latents(bounds->at) && fits(bounds)) return true;
  if (bounds->at[SF_WALK_KV_LORA].hi == 0) return false;
  struct sf_bounds narrowed = *bounds;
  return sf_bounds_with_latents(&narrowed) && fits(&narrowed);
}

/* Without reloading the second layout's fields are at their smallest: 1 of sizes, 0 of the others. */
static bool may_lack_reload(const struct sf_range *at) {
  static const enum sf_walk sizes[] = {SF_WALK_SECOND_TP, SF_WALK_SECOND_CP, SF_WALK_SECOND_EP, SF_WALK_SECOND_ETP,
                                       SF_WALK_SECOND_DP, SF_WALK_SECOND_PP, SF_WALK_SECOND_VPP};
  static const enum sf_walk others[] = {
      SF_WALK_RELOAD_AFTER,    SF_WALK_SECOND_SP,      SF_WALK_SECOND_TP_OVERLAP, SF_WALK_SECOND_RECOMPUTE_SHARDED,
      SF_WALK_SECOND_PP_FIRST, SF_WALK_SECOND_PP_LAST, SF_WALK_SECOND_CP_COMM,    SF_WALK_SECOND_ZERO,
      SF_WALK_SECOND_ORDER,    SF_WALK_SECOND_BUCKET,  SF_WALK_SECOND_OVERLAP};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
    if (at[sizes[i]].lo > 1) return false;
  for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
    if (at[others[i]].lo > 0) return false;
  return true;
}

bool sf_bounds_feasible(const struct sf_bounds *bounds) {
  if (may_lack_reload(bounds->at) && sf_bounds_layout_fits(bounds)) return true;
  return bounds->at[SF_WALK_RELOAD_AFTER].hi > 0 && sf_bounds_reload_fits(bounds);
}
