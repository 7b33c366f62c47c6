/* End to end: judges tensors that stay suspicious once more, by running each module by itself on the candidate's own tensors. A module can
 * amplify rounding in a way that none of the perturbed runs happens to show (a norm of a vector that is nearly constant, a softmax between
 * two equal scores). If so, every module still makes the right outputs from the inputs that the candidate gave it. A wrong module stands
 * out even more here, since the noise is that of one module and not of the whole model. */
#include "oracles/judge/collector.h"

#include <math.h>
#include <string.h>

static const double NEAR_LEVELS = 10; /* larger than chance makes it: a first tensor further away is wrong */

static struct sf_comparison compared(struct sf_judging *judging, const struct sf_slot *slot) {
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
    const struct sf_comparison comparison = compared(judging, slot);
    if (!(comparison.error < INFINITY)) return false;
    if (comparison.flagged && (first == NULL || slot->expected->ordinal < first->expected->ordinal)) first = slot;
  }
  if (first == NULL) return false;
  const struct sf_comparison comparison = compared(judging, first);
  return comparison.fro_ratio <= NEAR_LEVELS && comparison.row_ratio <= NEAR_LEVELS;
}

static const float *tensor_of(void *ctx, struct sf_trace_id id) {
  const struct sf_slot *slot = sf_slot_find(ctx, id);
  if (slot == NULL || !sf_slot_is_whole(slot)) return NULL;
  const struct sf_shape shape = slot->expected->spec.shape;
  return sf_first_nonfinite(slot->merged, NULL, shape.rows * shape.cols) < 0 ? slot->merged : NULL;
}

/* Tensors that ranks compute from parts of which only the sum is known here; the parts may have cancelled. These are main gradients, since
 * each rank adds up its own over microbatches. With tp > kv_heads they are also the gradients that follow from a key's or value's gradient,
 * since each rank goes backward with its own rounded part. */
static bool comes_from_parts(const struct sf_collector *collector, const struct sf_slot *slot) {
  const struct sf_expected *e = slot->expected;
  if (e->id.kind == SF_KIND_MAIN_GRAD) return true;
  if (slot->of->c.layout.tp <= collector->c.model.kv_heads || (e->id.kind != SF_KIND_ACT_GRAD && e->id.kind != SF_KIND_WGRAD)) return false;
  const struct sf_module_row *row = &sf_modules[collector->catalog->modules[e->spec.module].cls];
  return row->act.cols == SF_SIZE_QKV || row->act_grad.cols == SF_SIZE_QKV;
}

/* Tensors that the candidate's modules made by themselves and that must be as the reference makes them. */
struct alone {
  struct sf_judging *judging;
  struct sf_expectations *expectations;
  bool *suspicious; /* by ordinal; suspicious end to end */
  int32_t *left;    /* ordinals of the tensors that the perturbed runs so far do not clear */
  int32_t count;
};

static enum sf_status alone_create(struct alone *out, struct sf_judging *judging, const int32_t *results, int32_t count) {
  struct sf_collector *collector = judging->collector;
  struct alone alone = {.judging = judging};
  alone.suspicious = sf_arena_alloc(collector->of_judgement, (size_t)collector->count * sizeof *alone.suspicious);
  alone.left = sf_arena_alloc(collector->of_judgement, (size_t)collector->count * sizeof *alone.left);
  if (alone.suspicious == NULL || alone.left == NULL) return SF_ENOMEM;
  memset(alone.suspicious, 0, (size_t)collector->count * sizeof *alone.suspicious);
  for (int32_t i = 0; i < count; i++) alone.suspicious[judging->results[results[i]].expected->ordinal] = true;
  for (int32_t i = 0; i < collector->count; i++) {
    const struct sf_slot *slot = sf_slot_at(collector, i, SF_SLOT_FIRST);
    if (!sf_kind_has_noise((enum sf_kind)slot->expected->id.kind) || !sf_slot_is_whole(slot)) continue;
    if (alone.suspicious[i] || !comes_from_parts(collector, slot)) alone.left[alone.count++] = i;
  }
  *out = alone;
  return sf_expectations_create_given(&out->expectations, collector->catalog, sf_expectations_gemm(collector->expectations), tensor_of,
                                      collector);
}

/* Keeps the tensors that are still wrong. A suspicious tensor keeps the factor that made it suspicious, and must be judged. Returns the
 * largest share of a bound. */
static double alone_look(struct alone *alone, enum sf_level level) {
  const struct sf_collector *collector = alone->judging->collector;
  double worst = 0;
  int32_t left = 0;
  for (int32_t i = 0; i < alone->count; i++) {
    const int32_t ordinal = alone->left[i];
    const struct sf_slot *slot = sf_slot_at(collector, ordinal, SF_SLOT_FIRST);
    const struct sf_expected *e = sf_expectations_find(alone->expectations, slot->expected->id);
    const bool suspicious = alone->suspicious[ordinal];
    struct sf_comparison comparison;
    sf_compare(&comparison, e, slot->merged, suspicious ? SF_MODE_E2E : SF_MODE_ISOLATED, level, alone->judging->row_scratch);
    const bool unknown = suspicious && comparison.why_not != NULL && !(comparison.noise <= sf_factors.ill_conditioned * e->norm);
    if (!comparison.flagged && !unknown) continue;
    const double rows = suspicious ? sf_factors.row_e2e : sf_factors.row_isolated;
    worst = fmax(worst, fmax(comparison.fro_ratio / sf_factors.fro, comparison.row_ratio / rows));
    alone->left[left++] = ordinal;
  }
  alone->count = left;
  return worst;
}

enum sf_status sf_explain_alone(struct sf_judging *judging, const int32_t *results, int32_t count) {
  static const double far = 1.5;
  if (!may_be_noise(judging, results, count)) return SF_OK;
  struct alone alone;
  enum sf_status status = alone_create(&alone, judging, results, count);
  if (status != SF_OK) return status;
  for (enum sf_level level = SF_LEVEL_FIRST; level <= SF_LEVEL_SURE && alone.count > 0; level++) {
    status = sf_expectations_raise(alone.expectations, level);
    if (status != SF_OK || (alone_look(&alone, level) > far && level >= SF_LEVEL_FULL)) break;
  }
  judging->explained = status == SF_OK && alone.count == 0;
  sf_expectations_destroy(alone.expectations);
  return status;
}
