/* Feasibility of two layouts for one case: the same sizes must suit both, and their worlds must be as large. Where the bounds leave both the
 * same layout, that decides. Else sizes of all axes are tried, world by world. */
#include "generators/bounds_internal.h"

/* Worlds that are looked at while neither layout is decided, and key/value head counts that are tried. */
enum { RANKS_MAX = 256, MULTIPLES_MAX = 4096, EXPERTS_CUT_MAX = 8 };

/* A layout with the sizes of its axes. */
struct side {
  const struct sf_range *at; /* this layout in the first one's places */
  int64_t tp, cp, pp, dp;
};

static int64_t common_multiple(int64_t a, int64_t b) {
  int64_t x = a, y = b;
  while (y != 0) {
    const int64_t rest = x % y;
    x = y;
    y = rest;
  }
  return a / x * b;
}

static bool has_common_multiple(struct sf_range range, int64_t a, int64_t b) { return sf_range_has_multiple(range, common_multiple(a, b)); }

/* --- rules of one layout -------------------------------------------------------------------------------------------- */

static bool is_cut_by_sp(const struct side *s, bool is_moe) { return sf_bounds_need_sp(s->at) || (is_moe && s->tp > 1); }

static bool side_stands(const struct side *s, bool is_moe) {
  const struct sf_range *at = s->at;
  const bool is_cut = is_cut_by_sp(s, is_moe), is_sharded = at[SF_WALK_RECOMPUTE_SHARDED].lo > 0;
  if (s->tp == 1 && (is_cut || is_sharded)) return false;
  if (is_cut && (is_sharded || at[SF_WALK_SP].hi == 0)) return false;
  if (s->cp == 1 && at[SF_WALK_CP_COMM].lo != SF_CP_RING) return false;
  return at[SF_WALK_ZERO].lo == 0 || s->dp > 1 || s->cp > 1;
}

/* --- rules that join both with the model's sizes -------------------------------------------------------------------- */

static bool tokens_fit(const struct side *a, const struct side *b, bool is_moe) {
  const int64_t parts_a = is_cut_by_sp(a, is_moe) ? a->tp : 1, parts_b = is_cut_by_sp(b, is_moe) ? b->tp : 1;
  const int64_t seq_a = a->cp > 1 ? 2 * a->cp * parts_a : parts_a, seq_b = b->cp > 1 ? 2 * b->cp * parts_b : parts_b;
  if (!has_common_multiple(a->at[SF_WALK_SEQ], seq_a, seq_b)) return false;
  if (a->cp > 1 || b->cp > 1) return a->at[SF_WALK_MEMORY_SEQ].lo == 0;
  return has_common_multiple(a->at[SF_WALK_MEMORY_SEQ], parts_a, parts_b);
}

static bool shares_heads(const struct side *s, int64_t kv) {
  const int64_t step = s->at[SF_WALK_CP_COMM].lo == SF_CP_A2A ? s->tp * s->cp : 1;
  return kv % step == 0 && (kv % s->tp == 0 || (!sf_bounds_need_fp8(s->at) && s->tp % kv == 0));
}

static bool heads_fit(const struct side *a, const struct side *b) {
  const struct sf_range heads = a->at[SF_WALK_HEADS], kv_heads = a->at[SF_WALK_KV_HEADS];
  const int64_t step = common_multiple(a->tp, b->tp);
  const bool own_keys = a->at[SF_WALK_KV_LORA].lo > 0;
  int64_t h = (heads.lo + step - 1) / step * step;
  for (int i = 0; i < MULTIPLES_MAX && h <= heads.hi; i++, h += step) {
    const int64_t least = own_keys && h > kv_heads.lo ? h : kv_heads.lo;
    for (int64_t kv = least; kv <= kv_heads.hi && kv <= h; kv++)
      if (h % kv == 0 && shares_heads(a, kv) && shares_heads(b, kv)) return true;
  }
  return false;
}

static bool widths_fit(const struct side *a, const struct side *b) {
  const struct sf_range *at = a->at;
  if (at[SF_WALK_MTP_DEPTH].lo > 0 && !has_common_multiple(at[SF_WALK_HIDDEN], a->tp, b->tp)) return false;
  return has_common_multiple(at[SF_WALK_FFN], a->tp, b->tp) && has_common_multiple(sf_bounds_vocab_rows(at), a->tp, b->tp);
}

static bool takes_layers(const struct side *s, int64_t layers, bool is_interleaved) {
  const struct sf_range *at = s->at, chunks = at[SF_WALK_VPP];
  if (!is_interleaved) return chunks.lo == 1 && sf_bounds_stages_fit(at, layers, s->pp);
  if (s->pp == 1 || at[SF_WALK_PP_FIRST].lo > 0 || at[SF_WALK_PP_LAST].lo > 0) return false;
  for (int64_t vpp = chunks.lo > 2 ? chunks.lo : 2; vpp <= chunks.hi && s->pp * vpp <= layers; vpp++)
    if (layers % (s->pp * vpp) == 0) return true;
  return false;
}

/* Layers and microbatches; either layout's stages may be interleaved. */
static bool stages_fit(const struct side *a, const struct side *b) {
  const struct sf_range layers = sf_bounds_layers(a->at);
  for (int choice = 0; choice < 4; choice++) {
    const bool inter_a = choice & 1, inter_b = choice & 2;
    const int64_t by_a = a->dp * (inter_a ? a->pp : 1), by_b = b->dp * (inter_b ? b->pp : 1);
    if (!has_common_multiple(a->at[SF_WALK_MICROBATCHES], by_a, by_b)) continue;
    for (int64_t n = layers.lo; n <= layers.hi; n++)
      if (takes_layers(a, n, inter_a) && takes_layers(b, n, inter_b)) return true;
  }
  return false;
}

/* --- experts ---------------------------------------------------------------------------------------------------------- */

struct parts {
  int64_t ep, etp;
};

static bool experts_exist(const struct sf_range *at, struct parts a, struct parts b) {
  const struct sf_range experts = at[SF_WALK_EXPERTS];
  const int64_t step = common_multiple(a.ep, b.ep);
  int64_t least = at[SF_WALK_TOPK].lo > 2 ? at[SF_WALK_TOPK].lo : 2;
  if (experts.lo > least) least = experts.lo;
  least = (least + step - 1) / step * step;
  if (least > experts.hi) return false;
  if ((a.etp > 1 && least / a.ep > EXPERTS_CUT_MAX) || (b.etp > 1 && least / b.ep > EXPERTS_CUT_MAX)) return false;
  return has_common_multiple(at[SF_WALK_EXPERT_FFN], a.etp, b.etp);
}

static bool next_parts(struct parts *p, const struct side *s) {
  const struct sf_range ep = s->at[SF_WALK_EP], etp = s->at[SF_WALK_ETP];
  const int64_t ranks = s->tp * s->cp * s->dp;
  for (;;) {
    if (p->ep == 0)
      *p = (struct parts){ep.lo, etp.lo};
    else if (++p->etp > etp.hi || p->ep * p->etp > ranks)
      *p = (struct parts){p->ep + 1, etp.lo};
    if (p->ep > ep.hi || p->ep > ranks) return false;
    if (ranks % (p->ep * p->etp) == 0) return true;
  }
}

static bool experts_fit(const struct side *a, const struct side *b) {
  if (!has_common_multiple(a->at[SF_WALK_SHARED_FFN], a->tp, b->tp)) return false;
  for (struct parts x = {0, 0}; next_parts(&x, a);)
    for (struct parts y = {0, 0}; next_parts(&y, b);)
      if (experts_exist(a->at, x, y)) return true;
  return false;
}

/* --- both layouts ----------------------------------------------------------------------------------------------------- */

static bool pair_fits(const struct side *a, const struct side *b, bool is_moe) {
  return side_stands(b, is_moe) && tokens_fit(a, b, is_moe) && widths_fit(a, b) && heads_fit(a, b) && stages_fit(a, b) &&
         (!is_moe || experts_fit(a, b));
}

/* The next sizes whose product is `ranks`; {0} stands before the first. */
static bool next_sizes(struct side *s, int64_t ranks) {
  const struct sf_range *at = s->at;
  do {
    if (s->tp == 0)
      s->tp = s->cp = s->pp = 1;
    else if (++s->pp > ranks / (s->tp * s->cp)) {
      s->pp = 1;
      if (++s->cp > ranks / s->tp) s->cp = 1, s->tp++;
    }
    if (s->tp > ranks) return false;
    s->dp = ranks / (s->tp * s->cp * s->pp);
  } while (s->tp * s->cp * s->pp * s->dp != ranks || s->tp < at[SF_WALK_TP].lo || s->tp > at[SF_WALK_TP].hi || s->cp < at[SF_WALK_CP].lo ||
           s->cp > at[SF_WALK_CP].hi || s->pp < at[SF_WALK_PP].lo || s->pp > at[SF_WALK_PP].hi || s->dp < at[SF_WALK_DP].lo ||
           s->dp > at[SF_WALK_DP].hi);
  return true;
}

static bool world_fits(const struct sf_range *first, const struct sf_range *second, int64_t ranks, bool is_moe) {
  for (struct side a = {.at = first}; next_sizes(&a, ranks);) {
    if (!side_stands(&a, is_moe)) continue;
    for (struct side b = {.at = second}; next_sizes(&b, ranks);)
      if (pair_fits(&a, &b, is_moe)) return true;
  }
  return false;
}

static int64_t ranks_of(int64_t tp, int64_t cp, int64_t pp, int64_t dp) {
  const int64_t limit = 65537;
  int64_t ranks = 1;
  const int64_t sizes[] = {tp, cp, pp, dp};
  for (int i = 0; i < 4; i++) ranks = ranks > limit / sizes[i] ? limit : ranks * sizes[i];
  return ranks;
}

static bool some_world_fits(const struct sf_bounds *first, const struct sf_bounds *second, bool is_moe) {
  const struct sf_range *a = first->at, *b = second->at;
  const int64_t lo_a = ranks_of(a[SF_WALK_TP].lo, a[SF_WALK_CP].lo, a[SF_WALK_PP].lo, a[SF_WALK_DP].lo);
  const int64_t lo_b = ranks_of(b[SF_WALK_TP].lo, b[SF_WALK_CP].lo, b[SF_WALK_PP].lo, b[SF_WALK_DP].lo);
  const int64_t hi_a = ranks_of(a[SF_WALK_TP].hi, a[SF_WALK_CP].hi, a[SF_WALK_PP].hi, a[SF_WALK_DP].hi);
  const int64_t hi_b = ranks_of(b[SF_WALK_TP].hi, b[SF_WALK_CP].hi, b[SF_WALK_PP].hi, b[SF_WALK_DP].hi);
  const int64_t lo = lo_a > lo_b ? lo_a : lo_b;
  int64_t hi = hi_a < hi_b ? hi_a : hi_b;
  if (hi > first->max_ranks) hi = first->max_ranks;
  if (hi - lo > RANKS_MAX) hi = lo + RANKS_MAX;
  for (int64_t ranks = lo; ranks <= hi; ranks++)
    if (world_fits(a, b, ranks, is_moe)) return true;
  return false;
}

/* Each layout's own rules, then the joint ones. */
static bool two_fit(const struct sf_bounds *first, const struct sf_bounds *second) {
  if (!sf_bounds_singles_fit(first) || !sf_bounds_singles_fit(second)) return false;
  if (sf_bounds_may_be_dense(first->at) && sf_bounds_may_be_dense(second->at) && some_world_fits(first, second, false)) return true;
  if (first->at[SF_WALK_EXPERTS].hi < 2 || !sf_bounds_moe_company(first->at) || !sf_bounds_moe_company(second->at)) return false;
  return some_world_fits(first, second, true);
}

/* Both layouts in the first one's places; the places of the second mean nothing then. */
static struct sf_bounds second_of(const struct sf_bounds *bounds) {
  struct sf_bounds second = *bounds;
  for (int place = SF_WALK_SECOND_TP; place <= SF_WALK_SECOND_OVERLAP; place++) second.at[sf_walk_first((enum sf_walk)place)] = bounds->at[place];
  return second;
}

static bool same_layout_fits(const struct sf_bounds *first, const struct sf_bounds *second) {
  struct sf_bounds both = *first;
  for (int place = SF_WALK_TP; place <= SF_WALK_OVERLAP; place++) {
    const struct sf_range other = second->at[place];
    struct sf_range *range = &both.at[place];
    if (other.lo > range->lo) range->lo = other.lo;
    if (other.hi < range->hi) range->hi = other.hi;
    if (range->lo > range->hi) return false;
  }
  return sf_bounds_layout_fits(&both);
}

bool sf_bounds_reload_fits(const struct sf_bounds *bounds) {
  struct sf_bounds first = *bounds;
  const int64_t after = first.at[SF_WALK_RELOAD_AFTER].lo > 1 ? first.at[SF_WALK_RELOAD_AFTER].lo : 1;
  if (after > first.at[SF_WALK_RELOAD_AFTER].hi || after >= first.at[SF_WALK_STEPS].hi) return false;
  struct sf_bounds second = second_of(&first);
  if (same_layout_fits(&first, &second)) return true;
  if (!sf_bounds_layout_fits(&first) || !sf_bounds_layout_fits(&second)) return false;
  if (sf_bounds_may_lack_latents(first.at) && two_fit(&first, &second)) return true;
  if (first.at[SF_WALK_KV_LORA].hi == 0) return false;
  return sf_bounds_with_latents(&first) && sf_bounds_with_latents(&second) && two_fit(&first, &second);
}
