/* Anchored comparison: end to end, compares each tensor with what the reference makes of the candidate's own tensors, that is of its
 * module's inputs, weights and incoming gradients as the candidate had them. Only one module's rounding lies between the two, so a wrong
 * module stands out by itself, whatever the modules before it did and however much their rounding was amplified. Nothing is rewritten: the
 * candidate runs as it is. */
#include "oracles/judge/collector.h"

#include "harness/base/assert.h"
#include "oracles/noise/norms.h"

#include <math.h>
#include <string.h>

/* --- the reference on the candidate's tensors -------------------------------------------------------------------- */

static const float *tensor_of(void *ctx, struct sf_trace_id id) {
  const struct sf_slot *slot = sf_slot_find(ctx, id);
  return slot != NULL && sf_slot_is_whole(slot) ? slot->merged : NULL;
}

static const float *part_sizes_of(void *ctx, struct sf_trace_id id) {
  const struct sf_slot *slot = sf_slot_find(ctx, id);
  return slot != NULL && sf_slot_is_whole(slot) ? slot->part_sizes : NULL;
}

/* What rounding leaves of each part, by row: if parts cancel it is more than a rounding of their sum. */
static void add_parts(double *rows, const struct sf_slot *slot, const struct sf_expected *e) {
  const double unit = sf_dtype_unit_roundoff(e->spec.promised) * (e->spec.promised == SF_F32 ? sf_factors.sum_ulps : 1);
  const double *norms = slot->part_rows != NULL ? slot->part_rows : e->row_norm;
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
  if (e->spec.promised != SF_F32 && slot->part_rows == NULL) return SF_OK;
  const size_t size_bytes = (size_t)e->spec.shape.rows * sizeof(double);
  double *rows = sf_arena_alloc(collector->of_judgement, size_bytes);
  if (rows == NULL) return SF_ENOMEM;
  memset(rows, 0, size_bytes);
  if (e->id.kind == SF_KIND_MAIN_GRAD && summands->last[e->id.subject] >= 0)
    add_summands(rows, collector, summands, e);
  else
    add_parts(rows, slot, e);
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

enum sf_status sf_anchored_create(struct sf_collector *collector) {
  collector->given = (struct sf_given){tensor_of, part_sizes_of, collector};
  const enum sf_status status = collector->anchored != NULL
                                    ? sf_expectations_renew(collector->anchored)
                                    : sf_expectations_create_given(&collector->anchored, collector->expectations, &collector->given);
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

bool sf_is_scaled_alike(const struct sf_collector *collector, const struct sf_expectations *expectations, int32_t step) {
  const struct sf_trace_id id = {
      .step = (uint16_t)step, .pass = SF_PASS_STEP, .kind = SF_KIND_SCALAR, .subject = (int32_t)SF_SCALAR_LOSS_SCALE};
  const struct sf_slot *slot = sf_slot_find(collector, id);
  const struct sf_expected *e = sf_expectations_find(expectations, id);
  return slot == NULL || e == NULL || (sf_slot_is_whole(slot) && slot->merged[0] == e->x[0]);
}
