/* Judges every tensor that has a noise level, by its distance to what it is compared with: in isolated mode what the reference makes of the
 * given tensors, end to end what it makes of the candidate's own (anchored.c). Either way only one module's rounding lies between. */
#include "oracles/judge/collector.h"

#include "harness/base/assert.h"
#include "oracles/noise/norms.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Times the bound. More perturbed runs do not clear a tensor that is further away than this at a level. Below FULL this is only likely,
 * and a quick judgement alone relies on it. */
static const double FAR[SF_LEVEL_COUNT] = {[SF_LEVEL_FIRST] = 6, [SF_LEVEL_SECOND] = 3, [SF_LEVEL_FULL] = 1.5, [SF_LEVEL_SURE] = 1.5};

struct tolerances {
  struct sf_judging *judging;
  struct sf_expectations *expectations;
  enum sf_level level;
  struct sf_tensor_result **left;                        /* of tensors that the perturbed runs so far do not clear: */
  int32_t count, settled;                                /* first those that more of them would not clear either */
  int32_t *ordinals;                                     /* of the others */
  bool is_settled[SF_KIND_COUNT][SF_MODULE_CLASS_COUNT]; /* some tensor of this kind and module is */
};

static bool is_e2e(const struct sf_judging *judging) { return judging->collector->c.mode == SF_MODE_E2E; }

/* --- reports ------------------------------------------------------------------------------------------------------ */

/* The format in which an fp32 tensor may have been kept by mistake. */
static enum sf_dtype suspected_format(const struct sf_judging *judging) {
  return judging->collector->c.precision.compute == SF_COMPUTE_FP16 ? SF_F16 : SF_BF16;
}

/* A tensor promised in fp32 may have been kept in fewer bits. */
static void judge_bits(struct sf_judging *judging, const struct sf_slot *slot, const struct sf_expected *e) {
  const enum sf_dtype format = suspected_format(judging);
  if (!sf_has_bits_of(format, e, slot->merged)) return;
  struct sf_finding *finding = sf_judging_add(judging, slot, SF_CLASS_BITS);
  finding->anchored = is_e2e(judging);
  sf_finding_say(finding, "promised in fp32, but more than 90 %% of its values lie on the %s grid", sf_dtype_name(format));
}

static double row_norm(const struct sf_expected *e, int64_t row) {
  const int64_t cols = e->spec.shape.cols;
  return sqrt(sf_sum_squares(e->x + row * cols, cols));
}

static void report_distance(struct sf_judging *judging, const struct sf_slot *slot, const struct sf_expected *e,
                            const struct sf_comparison *comparison) {
  char distance[SF_DISTANCE_TEXT];
  struct sf_finding *finding = sf_judging_add(judging, slot, SF_CLASS_TOLERANCE);
  finding->anchored = is_e2e(judging);
  if (!(comparison->row_ratio / sf_factors.row_isolated <= comparison->fro_ratio / sf_factors.fro)) {
    finding->row = comparison->row;
    finding->error = comparison->row_error, finding->noise = comparison->row_noise, finding->ratio = comparison->row_ratio;
    sf_finding_say(finding, "row %" PRId64 ": %s", finding->row,
                   sf_distance_text(distance, finding->error, row_norm(e, finding->row), finding->noise));
    return;
  }
  finding->error = comparison->error, finding->noise = comparison->noise, finding->ratio = comparison->fro_ratio;
  sf_finding_say(finding, "%s", sf_distance_text(distance, finding->error, e->norm, finding->noise));
}

static void report_replicas(struct sf_judging *judging, const struct sf_slot *slot, double noise) {
  struct sf_finding *finding = sf_judging_add(judging, slot, SF_CLASS_CONFLICT);
  finding->rank = slot->replica_rank;
  finding->error = slot->replica_error;
  finding->noise = noise;
  finding->ratio = finding->error / finding->noise;
  sf_finding_say(finding, "rank %d holds a replica that differs by %.3g in norm; rounding explains at most %.2g", slot->replica_rank,
                 finding->error, finding->noise);
}

/* --- numbers that are not finite ----------------------------------------------------------------------------------- */

/* Whether the reference has a number near the largest of the format (within a factor of 34) in a step or before it. If that number is
 * infinite in a candidate, it leaves NaN (times zero) where the reference has numbers of any size, and weights that stay so. */
static bool nears_largest(const struct tolerances *t, int32_t step) {
  const double near = t->judging->collector->c.precision.compute == SF_COMPUTE_FP16 ? 2e3 : 1e37;
  for (int32_t i = 0; i < t->judging->collector->count; i++) {
    const struct sf_expected *e = sf_expectations_at(t->expectations, i);
    if (e->id.step <= step && !(e->norm < near)) return true;
  }
  return false;
}

/* Whether each element that is not finite, where the reference has a number, is a sum of which a part may be infinite. A rank stores its
 * part by itself: of a tensor that the trace shows in parts, or of a product over what the ranks share. */
static bool parts_may_overflow(const struct sf_collector *collector, const struct sf_slot *slot, const struct sf_expected *e) {
  const float most = sf_case_storage(&collector->c) == SF_F16 ? 65504 : FLT_MAX;
  for (int64_t i = 0; i < e->spec.shape.rows * e->spec.shape.cols; i++) {
    if (isfinite(slot->merged[i]) || !isfinite(e->x[i])) continue;
    const bool may_be = !(e->part_sizes[i] < most) || (slot->part_sizes != NULL && !(slot->part_sizes[i] < most));
    if (!may_be) return false;
  }
  return true;
}

/* An infinity where the reference makes a number is a finding, unless a perturbed run has one as well: then rounding decides, here and in
 * what comes of it. */
static enum sf_status judge_infinite(struct tolerances *t, struct sf_tensor_result *result) {
  const struct sf_slot *slot = sf_slot_at(t->judging->collector, result->expected->ordinal, SF_SLOT_FIRST);
  const struct sf_expected *e = sf_expectations_at(t->expectations, result->expected->ordinal);
  const int64_t count = e->spec.shape.rows * e->spec.shape.cols;
  const bool is_wrong = sf_first_nonfinite(slot->merged, e->x, count) >= 0;
  result->judged = result->flagged = false;
  result->why_not = "overflow";
  bool is_in_doubt = sf_first_nonfinite(e->x, slot->merged, count) >= 0;
  if (is_wrong && nears_largest(t, e->id.step)) {
    enum sf_status status = sf_expectations_raise(t->expectations, SF_LEVEL_FULL, &e->ordinal, 1);
    if (status == SF_OK) status = sf_expectations_bound_parts(t->expectations);
    if (status != SF_OK) return status;
    is_in_doubt = !isfinite(sf_tensor_noise(e, SF_LEVEL_FULL)) || parts_may_overflow(t->judging->collector, slot, e);
  }
  if (is_wrong && !is_in_doubt) {
    result->judged = result->flagged = sf_judging_nonfinite(t->judging, slot, e);
    result->why_not = NULL;
  } else if (is_in_doubt && is_e2e(t->judging) && e->id.step < t->judging->overflow_step) {
    t->judging->overflow_step = e->id.step;
  }
  return SF_OK;
}

/* --- exact values -------------------------------------------------------------------------------------------------- */

/* Judges a tensor in which nothing was ever rounded: it is equal, or wrong. */
static void judge_exact(struct sf_judging *judging, const struct sf_slot *slot) {
  const struct sf_expected *e = slot->expected;
  const int64_t count = e->spec.shape.rows * e->spec.shape.cols, cols = e->spec.shape.cols;
  struct sf_tensor_result *result = sf_judging_result(judging, slot);
  int64_t differing = 0, first = 0;
  for (int64_t i = count - 1; i >= 0; i--)
    if (!(slot->merged[i] == e->x[i])) differing++, first = i;
  result->why_not = differing > 0 ? NULL : e->norm == 0 ? "zero" : e->rolled == 0 ? "values alike" : NULL;
  result->judged = result->why_not == NULL;
  result->flagged = differing > 0;
  if (differing == 0) return;
  result->fro_ratio = INFINITY;
  if (sf_judging_nonfinite(judging, slot, e)) return;
  struct sf_finding *finding = sf_judging_add(judging, slot, SF_CLASS_EXACT);
  finding->row = first / cols;
  finding->error = sqrt(sf_diff_squares(slot->merged, e->x, count));
  finding->ratio = INFINITY;
  sf_finding_say(finding,
                 "%" PRId64 " of %" PRId64 " elements are not the exact value; (%" PRId64 ", %" PRId64 ") is %.9g and must be %.9g",
                 differing, count, first / cols, first % cols, (double)slot->merged[first], (double)e->x[first]);
}

/* --- distances ------------------------------------------------------------------------------------------------------ */

struct look {
  const struct sf_slot *slot;
  const struct sf_expected *e;
  struct sf_comparison comparison;
  /* Of weight gradients that must be the same on several ranks: their distance over what rounding may make it, since no one promises equal
   * bits; 0 where the perturbed runs are not finite. */
  double replicas;
};

static struct look look_at(const struct tolerances *t, const struct sf_tensor_result *result, enum sf_level level) {
  const int32_t ordinal = result->expected->ordinal;
  struct look look = {.slot = sf_slot_at(t->judging->collector, ordinal, SF_SLOT_FIRST), .e = sf_expectations_at(t->expectations, ordinal)};
  sf_compare(&look.comparison, look.e, look.slot->merged, level, t->judging->row_scratch);
  if (!isfinite(look.comparison.noise))
    look.comparison.why_not = "overflow";
  else if (look.slot->replica_rank >= 0)
    look.replicas = look.slot->replica_error / (2 * sf_factors.fro * look.comparison.noise);
  return look;
}

static bool is_cleared(const struct look *look) { return !look->comparison.flagged && look->replicas <= 1; }

static bool is_near(const struct look *look, double far) {
  const double share = fmax(look->comparison.fro_ratio / sf_factors.fro, look->comparison.row_ratio / sf_factors.row_isolated);
  return (!look->comparison.flagged || !(share > far)) && !(look->replicas > far);
}

static void result_fill(struct sf_tensor_result *result, const struct look *look, enum sf_level level) {
  result->level = level;
  result->norm = look->e->norm;
  result->noise = look->comparison.noise;
  result->fro_ratio = look->comparison.fro_ratio;
  result->row_ratio = look->comparison.row_ratio;
  result->why_not = look->comparison.why_not;
  result->judged = look->comparison.why_not == NULL;
  result->flagged = !is_cleared(look);
}

static bool *settled_alike(struct tolerances *t, const struct sf_tensor_result *result) {
  return &t->is_settled[result->id.kind][t->judging->collector->catalog->modules[result->expected->spec.module].cls];
}

static void settle(struct tolerances *t, int32_t place) {
  struct sf_tensor_result *result = t->left[place];
  t->left[place] = t->left[t->settled];
  t->left[t->settled++] = result;
  *settled_alike(t, result) = true;
}

/* A quick judgement only asks which kinds and modules are wrong: a tensor of which another layer or microbatch is settled is settled too.
 * Returns how many. */
static int32_t settle_alike(struct tolerances *t) {
  const int32_t before = t->settled;
  for (int32_t i = t->settled; i < t->count; i++)
    if (*settled_alike(t, t->left[i])) settle(t, i);
  return t->settled - before;
}

/* Keeps what is not cleared. From the level `least` on, what is far from its bound is settled. Returns how many are near theirs, so that
 * more perturbed runs may clear them. */
static int32_t look_again(struct tolerances *t, enum sf_level least) {
  int32_t kept = t->settled, near = 0;
  for (int32_t i = t->settled; i < t->count; i++) {
    struct sf_tensor_result *result = t->left[i];
    const struct look look = look_at(t, result, t->level);
    result_fill(result, &look, t->level);
    if (is_cleared(&look)) continue;
    const bool may_clear = is_near(&look, FAR[t->level]);
    near += may_clear;
    t->left[kept++] = result;
    if (!may_clear && t->level >= least) settle(t, kept - 1);
  }
  t->count = kept;
  return t->judging->collector->is_quick ? near - settle_alike(t) : near;
}

static enum sf_status raise_left(struct tolerances *t, enum sf_level level) {
  const int32_t count = t->count - t->settled;
  for (int32_t i = 0; i < count; i++) t->ordinals[i] = t->left[t->settled + i]->expected->ordinal;
  return sf_expectations_raise(t->expectations, level, t->ordinals, count);
}

/* Judges the tensors of which no distance is taken, and begins with the others. */
static enum sf_status begin(struct tolerances *t) {
  struct sf_collector *collector = t->judging->collector;
  t->left = sf_arena_alloc(collector->of_judgement, (size_t)collector->count * sizeof *t->left);
  t->ordinals = sf_arena_alloc(collector->of_judgement, (size_t)collector->count * sizeof *t->ordinals);
  if (t->left == NULL || t->ordinals == NULL) return SF_ENOMEM;
  for (int32_t i = 0; i < collector->count; i++) {
    const struct sf_slot *slot = sf_slot_at(collector, i, SF_SLOT_FIRST);
    if (!sf_kind_has_noise((enum sf_kind)slot->expected->id.kind) || !sf_slot_is_whole(slot)) continue;
    if (slot->expected->exact)
      judge_exact(t->judging, slot);
    else
      t->left[t->count++] = sf_judging_result(t->judging, slot);
  }
  return SF_OK;
}

/* The first look. Judges tensors in which something is not finite, so that there is no distance. */
static enum sf_status look_first(struct tolerances *t) {
  int32_t left = 0;
  for (int32_t i = 0; i < t->count; i++) {
    struct sf_tensor_result *result = t->left[i];
    const struct look look = look_at(t, result, t->level);
    result_fill(result, &look, t->level);
    if (!sf_is_scaled_alike(t->judging->collector, t->expectations, result->id.step)) {
      result->judged = result->flagged = false; /* the scale is judged by itself (judge_step.c) */
      result->why_not = "other loss scale";
      continue;
    }
    if (!isfinite(look.comparison.error)) {
      const enum sf_status status = judge_infinite(t, result);
      if (status != SF_OK) return status;
      continue;
    }
    judge_bits(t->judging, look.slot, look.e);
    if (!is_cleared(&look)) t->left[left++] = result;
  }
  t->count = left;
  return SF_OK;
}

enum sf_status sf_judge_tolerances(struct sf_judging *judging) {
  struct tolerances t = {.judging = judging, .expectations = judging->collector->expectations, .level = SF_LEVEL_NONE};
  enum sf_status status = SF_OK;
  if (is_e2e(judging)) {
    status = sf_anchored_create(judging->collector);
    t.expectations = judging->collector->anchored;
  }
  if (status == SF_OK) status = begin(&t);
  /* With no perturbed run at first, since they only widen what the floors allow. */
  if (status == SF_OK) status = look_first(&t);
  const enum sf_level least = judging->collector->is_quick ? SF_LEVEL_FIRST : SF_LEVEL_FULL;
  for (int32_t near = t.count; status == SF_OK && t.count > 0 && t.level < SF_LEVEL_SURE;) {
    if (near == 0 && t.level >= least) break;
    status = raise_left(&t, ++t.level);
    if (status == SF_OK) near = look_again(&t, least);
  }
  for (int32_t i = 0; i < t.count && status == SF_OK; i++) {
    const struct look look = look_at(&t, t.left[i], t.left[i]->level);
    if (look.comparison.flagged) report_distance(judging, look.slot, look.e, &look.comparison);
    if (!(look.replicas <= 1)) report_replicas(judging, look.slot, look.comparison.noise);
  }
  return status == SF_OK ? sf_judge_roundings(judging, t.expectations) : status;
}
