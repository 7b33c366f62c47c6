/* End to end: judges a later step once more, against a reference whose weights change as the candidate's do. Where a gradient is small
 * compared with its noise, rounding decides the sign of Adam's change, which moves a weight by 2 lr. A candidate may have moved a weight in
 * a way that no perturbed run shows. Its changes are judged by themselves, from its own gradients (judge_step.c), so a later step may start
 * from them. */
#include "oracles/judge/collector.h"

#include <string.h>

struct following {
  struct sf_judging *judging;
  int32_t next; /* ordinal of the next tensor */
};

/* The candidate's change, if it was traced whole and is finite; else NULL. */
static const float *change_of(void *ctx, struct sf_trace_id id) {
  const struct sf_slot *slot = sf_slot_find(ctx, id);
  if (slot == NULL || !sf_slot_is_whole(slot)) return NULL;
  const struct sf_shape shape = slot->expected->spec.shape;
  return sf_first_nonfinite(slot->merged, NULL, shape.rows * shape.cols) < 0 ? slot->merged : NULL;
}

/* Skips tensors without a place, which were not asked for. */
static void emit_followed(void *ctx, struct sf_trace_id id, const void *values, struct sf_shape shape) {
  struct following *following = ctx;
  struct sf_judging *judging = following->judging;
  struct sf_collector *collector = judging->collector;
  const int32_t ordinal = following->next++;
  (void)id; /* the run follows the expectations' order */
  if (judging->followed[ordinal] == NULL) return;
  const struct sf_slot *slot = sf_slot_at(collector, ordinal, SF_SLOT_FIRST);
  const struct sf_arena_mark mark = sf_arena_mark(collector->of_judgement);
  const size_t size_bytes = (size_t)(shape.rows * shape.cols) * sizeof(float);
  struct sf_expected expected = *slot->expected;
  expected.x = sf_arena_alloc(collector->of_judgement, size_bytes);
  if (expected.x == NULL) {
    judging->status = SF_ENOMEM;
    return;
  }
  memcpy(expected.x, values, size_bytes);
  sf_compare(judging->followed[ordinal], &expected, slot->merged, SF_MODE_E2E, judging->last, judging->row_scratch);
  sf_arena_rewind(collector->of_judgement, mark);
}

/* Gives places to the tensors that need another look. */
static enum sf_status places_create(struct sf_judging *judging, const int32_t *results, int32_t count, int32_t *asked) {
  struct sf_collector *collector = judging->collector;
  for (int32_t i = 0; i < count; i++) {
    const struct sf_expected *e = judging->results[results[i]].expected;
    struct sf_comparison comparison;
    if (e->id.step == 0) continue;
    sf_judging_compare(&comparison, judging, sf_slot_at(collector, e->ordinal, SF_SLOT_FIRST), judging->last);
    if (!comparison.flagged) continue;
    if (judging->followed == NULL) {
      const size_t size_bytes = (size_t)collector->count * sizeof(struct sf_comparison *);
      judging->followed = sf_arena_alloc(collector->of_judgement, size_bytes);
      if (judging->followed == NULL) return SF_ENOMEM;
      memset(judging->followed, 0, size_bytes);
    }
    struct sf_comparison *place = sf_arena_alloc(collector->of_judgement, sizeof *place);
    if (place == NULL) return SF_ENOMEM;
    *place = comparison;
    judging->followed[e->ordinal] = place;
    ++*asked;
  }
  return SF_OK;
}

enum sf_status sf_follow_changes(struct sf_judging *judging, const int32_t *results, int32_t count) {
  struct sf_collector *collector = judging->collector;
  int32_t asked = 0;
  if (collector->c.mode != SF_MODE_E2E) return SF_OK;
  enum sf_status status = places_create(judging, results, count, &asked);
  if (status != SF_OK || asked == 0) return status;
  struct following following = {.judging = judging};
  const struct sf_reference_options options = {.perturb = SF_PERTURB_NONE, .change = change_of, .change_ctx = collector};
  const struct sf_reference_sink sink = {.ctx = &following, .emit = emit_followed};
  status = sf_expectations_run(collector->expectations, &options, &sink);
  return status != SF_OK ? status : judging->status;
}
