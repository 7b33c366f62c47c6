/* Feasibility of experts: the rules of sf_case_validate that join them with the axes. */
#include "generators/bounds_internal.h"

static const int64_t experts_cut_max = 8;

static bool may_be(const struct sf_range *at, enum sf_walk place, int64_t value) { return at[place].lo <= value && value <= at[place].hi; }

bool sf_bounds_may_be_dense(const struct sf_range *at) {
  static const struct { enum sf_walk place; int64_t smallest; } unused[] = {
      {SF_WALK_EXPERTS, 0},     {SF_WALK_TOPK, 1},       {SF_WALK_EXPERT_FFN, 8}, {SF_WALK_ROUTER, 0},
      {SF_WALK_MOE_SCOPE, 0}, {SF_WALK_CAPACITY, 0}, {SF_WALK_EP, 1},         {SF_WALK_ETP, 1},    {SF_WALK_SHARED_FFN, 0},
      {SF_WALK_AUX, 0},       {SF_WALK_Z_LOSS, 0},
  };
  for (size_t i = 0; i < sizeof unused / sizeof unused[0]; i++)
    if (!may_be(at, unused[i].place, unused[i].smallest)) return false;
  return true;
}

/* Some number of experts that ep divides, of a width that etp divides. */
static bool experts_exist(const struct sf_range *at, int64_t ep, int64_t etp) {
  const struct sf_range experts = at[SF_WALK_EXPERTS], ffn = at[SF_WALK_EXPERT_FFN];
  int64_t least = at[SF_WALK_TOPK].lo > 2 ? at[SF_WALK_TOPK].lo : 2;
  if (experts.lo > least) least = experts.lo;
  least = (least + ep - 1) / ep * ep;
  if (least > experts.hi || (etp > 1 && least / ep > experts_cut_max)) return false;
  return (ffn.lo + etp - 1) / etp * etp <= ffn.hi;
}

/* Whether the ranks of a stage are a multiple of some ep * etp that experts allow. */
static bool parts_exist(const struct sf_range *at, int64_t ranks) {
  const struct sf_range ep = at[SF_WALK_EP], etp = at[SF_WALK_ETP];
  for (int64_t e = ep.lo; e <= ep.hi && e <= ranks && e <= at[SF_WALK_EXPERTS].hi; e++) {
    if (ranks % e != 0) continue;
    for (int64_t t = etp.lo; t <= etp.hi && e * t <= ranks && t <= at[SF_WALK_EXPERT_FFN].hi; t++)
      if (ranks / e % t == 0 && experts_exist(at, e, t)) return true;
  }
  return false;
}

/* tp and cp are decided in `bounds`. */
static bool dp_exists(const struct sf_bounds *bounds) {
  struct sf_bounds scratch = *bounds;
  const int64_t others = bounds->at[SF_WALK_TP].lo * bounds->at[SF_WALK_CP].lo;
  const struct sf_range dp = bounds->at[SF_WALK_DP];
  const bool is_sharded = bounds->at[SF_WALK_ZERO].lo > 0 && bounds->at[SF_WALK_CP].lo == 1; /* ZeRO needs dp or cp above 1 */
  for (int64_t d = is_sharded && dp.lo == 1 ? 2 : dp.lo; d <= dp.hi && d <= bounds->at[SF_WALK_MICROBATCHES].hi && others * d <= bounds->max_ranks; d++) {
    scratch.at[SF_WALK_DP] = (struct sf_range){d, d};
    if (parts_exist(bounds->at, others * d) && sf_bounds_axes_fit(scratch.at, bounds->max_ranks)) return true;
  }
  return false;
}

/* No shared expert, or one whose width tp divides. */
static bool shared_fits(const struct sf_range *at, int64_t tp) {
  const struct sf_range width = at[SF_WALK_SHARED_FFN];
  return (width.lo + tp - 1) / tp * tp <= width.hi;
}

/* Sharded recomputation wants tp above 1 without sp. */
bool sf_bounds_moe_company(const struct sf_range *at) { return at[SF_WALK_RECOMPUTE_SHARDED].lo == 0; }

bool sf_bounds_may_be_moe(const struct sf_bounds *bounds) {
  const struct sf_range *at = bounds->at, tp = at[SF_WALK_TP], cp = at[SF_WALK_CP];
  const int64_t limit = bounds->max_ranks;
  if (!sf_bounds_moe_company(at)) return false;
  if (at[SF_WALK_EXPERTS].hi < 2 || !sf_bounds_axes_fit(at, limit)) return false;
  for (int64_t t = tp.lo; t <= tp.hi && t <= limit; t++) {
    struct sf_bounds scratch = *bounds;
    if (!shared_fits(at, t)) continue;
    scratch.at[SF_WALK_TP] = (struct sf_range){t, t};
    if (t > 1) scratch.at[SF_WALK_SP].lo = 1;
    if (scratch.at[SF_WALK_SP].lo > scratch.at[SF_WALK_SP].hi || !sf_bounds_axes_fit(scratch.at, limit)) continue;
    for (int64_t c = cp.lo; c <= cp.hi && t * c <= limit; c++) {
      scratch.at[SF_WALK_CP] = (struct sf_range){c, c};
      if (sf_bounds_axes_fit(scratch.at, limit) && dp_exists(&scratch)) return true;
    }
  }
  return false;
}
