/* Anchored comparison: end to end, compares each tensor with what the reference makes of the candidate's own tensors, that is of its
 * module's inputs, weights and incoming gradients as the candidate had them. Only one module's rounding lies between the two, so a wrong
 * module stands out by itself, whatever the modules before it did. Nothing is rewritten: the candidate runs as it is.
 *
 * Below fp32 every case is judged so, since end to end the rounding of all modules before hides small errors. In fp32 it explains tensors
 * that stay suspicious: a module can amplify rounding in a way that none of the perturbed runs happens to show (a norm of a vector that is
 * nearly constant, a softmax between two equal scores). Then every module still makes the right outputs from what it was given. */
#include "oracles/judge/collector.h"

#include "harness/base/assert.h"
#include "oracles/noise/norms.h"

#include <math.h>
#include <string.h>

static const double NEAR_LEVELS = 10; /* larger than chance makes it: a first tensor further away is wrong */
static const double FAR = 1.5;        /* times the bound: more perturbed runs do not clear such a tensor */
static const double NUMBER_ULPS = 4;  /* of a single number, which was summed in another order */

/* --- the reference on the candidate's tensors -------------------------------------------------------------------- */

static const float *tensor_of(void *ctx, struct sf_trace_id id) {
  const struct sf_slot *slot = sf_slot_find(ctx, id);
  return slot != NULL && sf_slot_is_whole(slot) ? slot->merged : NULL;
}

static const float *part_sizes_of(void *ctx, struct sf_trace_id id) {
  const struct sf_slot *slot = sf_slot_find(ctx, id);
  return slot != NULL ? slot->part_sizes : NULL;
}

/* One rounding of each part, by row: parts that cancel leave more of it than a rounding of their sum. */
static void add_parts(double *rows, const struct sf_slot *slot, const struct sf_expected *e) {
  const double unit = sf_dtype_unit_roundoff(e->spec.promised), *norms = slot->part_rows != NULL ? slot->part_rows : e->row_norm;
  for (int64_t r = 0; r < e->spec.shape.rows; r++) rows[r] += unit * norms[r];
}

/* The step's gradients of each parameter so far, as a list: main gradients are sums of them. */
struct summands {
  int32_t *last, *before; /* ordinals: of a parameter's last gradient, of the one before a gradient; -1: none */
};

/* What the main gradient's sum, of the gradients that the candidate made, was divided by: the quotient at its largest element. 0: it is
 * zero. */
static double divisor_of(const struct sf_collector *collector, const struct summands *summands, const struct sf_expected *main) {
  int64_t at = 0;
  double sum = 0;
  for (int64_t i = 0; i < main->spec.shape.rows * main->spec.shape.cols; i++)
    if (fabsf(main->x[i]) > fabsf(main->x[at])) at = i;
  for (int32_t i = summands->last[main->id.subject]; i >= 0; i = summands->before[i]) {
    const struct sf_slot *slot = sf_slot_at(collector, i, SF_SLOT_FIRST);
    sum += (double)(sf_slot_is_whole(slot) ? slot->merged : sf_expectations_at(collector->anchored, i)->x)[at];
  }
  return main->x[at] != 0 ? fabs(sum / (double)main->x[at]) : 0;
}

static void add_summands(double *rows, const struct sf_collector *collector, const struct summands *summands,
                         const struct sf_expected *main) {
  const double divisor = divisor_of(collector, summands, main);
  for (int32_t i = summands->last[main->id.subject]; i >= 0 && divisor > 0; i = summands->before[i])
    add_parts(rows, sf_slot_at(collector, i, SF_SLOT_FIRST), sf_expectations_at(collector->anchored, i));
  for (int64_t r = 0; r < main->spec.shape.rows && divisor > 0; r++) rows[r] /= divisor;
}

/* The levels that follow from the parts of a tensor, of which the reference sees only the sum. */
static enum sf_status set_parts(struct sf_collector *collector, const struct summands *summands, int32_t ordinal) {
  const struct sf_slot *slot = sf_slot_at(collector, ordinal, SF_SLOT_FIRST);
  const struct sf_expected *e = sf_expectations_at(collector->anchored, ordinal);
  const bool is_number = e->spec.shape.rows * e->spec.shape.cols == 1, is_main = e->id.kind == SF_KIND_MAIN_GRAD;
  if (!is_number && !is_main && slot->part_rows == NULL) return SF_OK;
  const size_t size_bytes = (size_t)e->spec.shape.rows * sizeof(double);
  double *rows = sf_arena_alloc(collector->of_judgement, size_bytes);
  if (rows == NULL) return SF_ENOMEM;
  memset(rows, 0, size_bytes);
  if (is_main)
    add_summands(rows, collector, summands, e);
  else
    add_parts(rows, slot, e);
  if (is_number) rows[0] = sf_larger(rows[0], NUMBER_ULPS * sf_dtype_unit_roundoff(e->spec.promised) * e->norm);
  sf_expectations_set_parts(collector->anchored, ordinal, rows);
  return SF_OK;
}

static enum sf_status set_all_parts(struct sf_collector *collector) {
  const int32_t params = collector->catalog->param_count;
  struct summands summands = {.last = sf_arena_alloc(collector->of_judgement, (size_t)params * sizeof *summands.last),
                              .before = sf_arena_alloc(collector->of_judgement, (size_t)collector->count * sizeof *summands.before)};
  if (summands.last == NULL || summands.before == NULL) return SF_ENOMEM;
  for (int32_t p = 0; p < params; p++) summands.last[p] = -1;
  for (int32_t i = 0; i < collector->count; i++) {
    const struct sf_trace_id id = sf_expectations_at(collector->anchored, i)->id;
    SF_ASSERT(sf_trace_key(id) == sf_trace_key(sf_slot_at(collector, i, SF_SLOT_FIRST)->expected->id)); /* one order in both modes */
    if (!sf_kind_has_noise((enum sf_kind)id.kind)) continue;
    const enum sf_status status = set_parts(collector, &summands, i);
    if (status != SF_OK) return status;
    if (id.kind == SF_KIND_WGRAD) summands.before[i] = summands.last[id.subject], summands.last[id.subject] = i;
    if (id.kind == SF_KIND_MAIN_GRAD) summands.last[id.subject] = -1; /* the next step begins anew */
  }
  return SF_OK;
}

/* Runs the reference on the candidate's tensors, unless that was done. */
static enum sf_status anchored_create(struct sf_collector *collector) {
  if (collector->anchored != NULL) return SF_OK;
  collector->given = (struct sf_given){tensor_of, part_sizes_of, collector};
  const enum sf_status status = sf_expectations_create_given(&collector->anchored, collector->catalog,
                                                             sf_expectations_gemm(collector->expectations), &collector->given);
  return status == SF_OK ? set_all_parts(collector) : status;
}

enum sf_status sf_collector_anchor(struct sf_collector *out, const struct sf_collector *of, struct sf_arena *arena) {
  const size_t size_bytes = (size_t)of->count * SF_SLOT_PHASES * sizeof *of->slots;
  struct sf_slot *slots = sf_arena_alloc(arena, size_bytes);
  if (slots == NULL) return SF_ENOMEM;
  memcpy(slots, of->slots, size_bytes);
  for (int64_t i = 0; i < (int64_t)of->count * SF_SLOT_PHASES; i++)
    slots[i].expected = sf_expectations_at(of->anchored, (int32_t)(i / SF_SLOT_PHASES));
  *out = *of;
  out->slots = slots;
  out->expectations = of->anchored;
  out->is_anchored = true;
  return SF_OK;
}

/* --- steps ------------------------------------------------------------------------------------------------------- */

/* Marks the steps whose tensors all came, are finite, and were scaled as the reference scales: others cannot be computed once more. */
static enum sf_status steps_mark(bool **out, const struct sf_collector *collector) {
  const int64_t steps = collector->c.train.steps + 1;
  bool *usable = sf_arena_alloc(collector->of_judgement, (size_t)steps * sizeof *usable);
  if (usable == NULL) return SF_ENOMEM;
  for (int64_t step = 0; step < steps; step++) usable[step] = true;
  for (int32_t i = 0; i < collector->count; i++) {
    const struct sf_slot *slot = sf_slot_at(collector, i, SF_SLOT_FIRST);
    const struct sf_expected *e = slot->expected;
    if (slot->holders == 0 || !usable[e->id.step]) continue;
    const bool is_scale = e->id.kind == SF_KIND_SCALAR && e->id.subject == (int32_t)SF_SCALAR_LOSS_SCALE;
    if (e->id.kind == SF_KIND_SCALAR && !is_scale) continue;
    usable[e->id.step] = sf_slot_is_whole(slot) && sf_first_nonfinite(slot->merged, NULL, e->spec.shape.rows * e->spec.shape.cols) < 0 &&
                         (!is_scale || slot->merged[0] == sf_expectations_at(collector->anchored, i)->x[0]);
  }
  *out = usable;
  return SF_OK;
}

/* --- comparing --------------------------------------------------------------------------------------------------- */

/* The results of tensors that can be compared and that the perturbed runs so far do not clear. */
struct anchored {
  struct sf_judging *judging;
  const bool *suspicious; /* NULL, or by ordinal: suspicious end to end */
  enum sf_level level;
  int32_t *left, count; /* results */
};

static const struct sf_expected *expected_of(const struct anchored *a, int32_t result) {
  return sf_expectations_at(a->judging->collector->anchored, a->judging->results[result].expected->ordinal);
}

/* A tensor that was suspicious end to end keeps the factor that made it so, and must be judged. Returns whether it is not cleared. */
static bool compare(struct sf_comparison *out, const struct anchored *a, int32_t result) {
  const struct sf_expected *e = expected_of(a, result);
  const struct sf_slot *slot = sf_slot_at(a->judging->collector, e->ordinal, SF_SLOT_FIRST);
  const bool suspicious = a->suspicious != NULL && a->suspicious[e->ordinal];
  sf_compare(out, e, slot->merged, suspicious ? SF_MODE_E2E : SF_MODE_ISOLATED, a->level, a->judging->row_scratch);
  return out->flagged || (suspicious && out->why_not != NULL && !(out->noise <= sf_factors.ill_conditioned * e->norm));
}

static double share_of_bound(const struct sf_comparison *comparison) {
  return fmax(comparison->fro_ratio / sf_factors.fro, comparison->row_ratio / sf_factors.row_isolated);
}

/* Keeps what is not cleared. Returns how many of that are so near their bound that more perturbed runs may clear them. */
static int32_t look(struct anchored *a) {
  int32_t left = 0, near = 0;
  for (int32_t i = 0; i < a->count; i++) {
    struct sf_comparison comparison;
    if (!compare(&comparison, a, a->left[i])) continue;
    near += !(share_of_bound(&comparison) > FAR);
    a->left[left++] = a->left[i];
  }
  a->count = left;
  return near;
}

/* Looks with no perturbed run at first, since they only widen what the floors allow, then with more and more. */
static enum sf_status look_until_sure(struct anchored *a) {
  for (a->level = SF_LEVEL_NONE; a->level <= SF_LEVEL_SURE; a->level++) {
    const enum sf_status status = sf_expectations_raise(a->judging->collector->anchored, a->level);
    if (status != SF_OK) return status;
    const int32_t near = look(a);
    if (a->count == 0 || (near == 0 && a->level >= SF_LEVEL_FULL) || a->level == SF_LEVEL_SURE) break;
  }
  return SF_OK;
}

/* Begins with every tensor of a step that can be computed once more. */
static enum sf_status begin(struct anchored *out, struct sf_judging *judging) {
  struct sf_collector *collector = judging->collector;
  bool *usable = NULL;
  enum sf_status status = anchored_create(collector);
  if (status == SF_OK) status = steps_mark(&usable, collector);
  if (status != SF_OK) return status;
  *out = (struct anchored){.judging = judging};
  out->left = sf_arena_alloc(collector->of_judgement, (size_t)judging->result_count * sizeof *out->left);
  if (out->left == NULL) return SF_ENOMEM;
  for (int32_t i = 0; i < judging->result_count; i++)
    if (usable[judging->results[i].id.step]) out->left[out->count++] = i;
  return SF_OK;
}

/* --- judging ----------------------------------------------------------------------------------------------------- */

bool sf_is_judged_anchored(const struct sf_case *c) { return c->mode == SF_MODE_E2E && c->precision.compute != SF_COMPUTE_FP32; }

/* Counts tensors as judged that are too noisy end to end and passed here. */
static void count_judged(struct anchored *a) {
  for (int32_t i = 0; i < a->count; i++) {
    struct sf_tensor_result *result = &a->judging->results[a->left[i]];
    struct sf_comparison comparison;
    if (result->judged || compare(&comparison, a, a->left[i]) || comparison.why_not != NULL || !isfinite(comparison.noise)) continue;
    result->judged = true;
    result->why_not = NULL;
  }
}

/* Whether the tensor is suspicious for a reason that anchored comparison does not see. */
static bool stays(struct sf_judging *judging, int32_t result) {
  const struct sf_slot *slot = sf_slot_at(judging->collector, judging->results[result].expected->ordinal, SF_SLOT_FIRST);
  struct sf_comparison comparison;
  sf_judging_compare(&comparison, judging, slot, SF_LEVEL_FIRST);
  return !(comparison.error < INFINITY) || !sf_replicas_agree(slot, SF_LEVEL_FIRST);
}

enum sf_status sf_judge_anchored(struct sf_judging *judging, int32_t *suspicious, int32_t *count) {
  struct anchored a;
  enum sf_status status = begin(&a, judging);
  if (status != SF_OK) return status;
  const struct anchored all = a;
  int32_t *compared = sf_arena_alloc(judging->collector->of_judgement, (size_t)a.count * sizeof *compared);
  if (compared == NULL) return SF_ENOMEM;
  memcpy(compared, a.left, (size_t)a.count * sizeof *compared);
  status = look_until_sure(&a);
  if (status != SF_OK) return status;
  for (int32_t i = 0; i < a.count; i++) {
    struct sf_comparison comparison;
    compare(&comparison, &a, a.left[i]);
    sf_judging_report(judging, &judging->results[a.left[i]], expected_of(&a, a.left[i]), &comparison, a.level);
  }
  count_judged(&(struct anchored){judging, NULL, a.level, compared, all.count});
  if (a.count == 0) return SF_OK;
  int32_t left = 0;
  for (int32_t i = 0; i < *count; i++)
    if (stays(judging, suspicious[i])) suspicious[left++] = suspicious[i];
  *count = left;
  return SF_OK;
}

enum sf_status sf_mark_anchored(struct sf_judging *judging) {
  struct anchored a;
  bool has_any = false;
  for (int32_t i = 0; i < judging->finding_count; i++) has_any |= judging->findings[i].finding.cls == SF_CLASS_TOLERANCE;
  if (judging->collector->c.mode != SF_MODE_E2E || !has_any) return SF_OK;
  enum sf_status status = begin(&a, judging);
  if (status == SF_OK) status = look_until_sure(&a);
  for (int32_t i = 0; i < a.count && status == SF_OK; i++) {
    for (int32_t k = 0; k < judging->finding_count; k++) {
      struct sf_ranked_finding *ranked = &judging->findings[k];
      const bool same = ranked->phase == SF_SLOT_FIRST && ranked->finding.ordinal == expected_of(&a, a.left[i])->ordinal;
      if (same && ranked->finding.cls == SF_CLASS_TOLERANCE) ranked->finding.anchored = true;
    }
  }
  return status;
}

/* --- explaining -------------------------------------------------------------------------------------------------- */

static struct sf_comparison compared_end_to_end(struct sf_judging *judging, const struct sf_slot *slot) {
  struct sf_comparison comparison;
  sf_judging_compare(&comparison, judging, slot, judging->last);
  return comparison;
}

/* Whether the first suspicious tensor is near its noise level, nothing else speaks against the run, and all numbers are finite. */
static bool may_be_noise(struct sf_judging *judging, const int32_t *results, int32_t count) {
  const struct sf_collector *collector = judging->collector;
  if (collector->c.mode != SF_MODE_E2E || count == 0 || judging->finding_count > 0) return false;
  const struct sf_slot *first = NULL;
  for (int32_t i = 0; i < count; i++) {
    const struct sf_slot *slot = sf_slot_at(collector, judging->results[results[i]].expected->ordinal, SF_SLOT_FIRST);
    const struct sf_comparison comparison = compared_end_to_end(judging, slot);
    if (!(comparison.error < INFINITY)) return false;
    if (comparison.flagged && (first == NULL || slot->expected->ordinal < first->expected->ordinal)) first = slot;
  }
  if (first == NULL) return false;
  const struct sf_comparison comparison = compared_end_to_end(judging, first);
  return comparison.fro_ratio <= NEAR_LEVELS && comparison.row_ratio <= NEAR_LEVELS;
}

enum sf_status sf_explain_anchored(struct sf_judging *judging, const int32_t *results, int32_t count) {
  if (!may_be_noise(judging, results, count)) return SF_OK;
  bool *suspicious = sf_arena_alloc(judging->collector->of_judgement, (size_t)judging->collector->count * sizeof *suspicious);
  if (suspicious == NULL) return SF_ENOMEM;
  memset(suspicious, 0, (size_t)judging->collector->count * sizeof *suspicious);
  for (int32_t i = 0; i < count; i++) suspicious[judging->results[results[i]].expected->ordinal] = true;
  struct anchored a;
  enum sf_status status = begin(&a, judging);
  if (status != SF_OK) return status;
  a.suspicious = suspicious;
  int32_t comparable = 0;
  for (int32_t i = 0; i < a.count; i++) comparable += suspicious[judging->results[a.left[i]].expected->ordinal];
  status = look_until_sure(&a);
  judging->explained = status == SF_OK && comparable == count && a.count == 0;
  return status;
}
