/* Passes, over and over until none makes the case smaller: dimensions one by one; all smaller shapes, smallest first, when they are few;
 * what is not shape. A shape that fails only for some values must not be missed, so shapes are tried with several seeds. */
#include "harness/run/opfuzz/op_shrink.h"

#include <string.h>

enum { SEEDS = 12, SHAPES_MAX = 400, SLOW_BUDGET = 12 };

struct shrinking {
  struct sf_op_case best;
  const struct sf_op_target *target;
  bool is_slow;
  bool (*still_fails)(void *ctx, const struct sf_case *c);
  void *ctx;
  int64_t budget;
  struct sf_shrink_report *report;
};

static bool out_of_budget(const struct shrinking *s) { return s->report->evaluations >= s->budget; }

/* Runs a candidate and takes it when it fails alike. */
static bool take(struct shrinking *s, const struct sf_op_case *c) {
  struct sf_case whole;
  if (out_of_budget(s) || !sf_op_case_valid(s->target, c, NULL, NULL)) return false;
  s->report->evaluations++;
  sf_op_case_put(&whole, s->target, c);
  if (!s->still_fails(s->ctx, &whole)) return false;
  s->report->accepted++;
  s->best = *c;
  return true;
}

/* The same with other seeds. */
static bool take_seeded(struct shrinking *s, struct sf_op_case *c) {
  const int64_t own = c->field[SF_OP_SEED];
  const int seeds = s->is_slow ? 1 : SEEDS;
  for (int k = 0; k < seeds; k++) {
    c->field[SF_OP_SEED] = k == 0 ? own : k - 1;
    if (take(s, c)) return true;
  }
  return false;
}

/* One number as small as it goes: its smallest value, half the way, one less. */
static bool lower(struct shrinking *s, int32_t field, int64_t step, bool seeded) {
  const int64_t least = sf_op_field_min(&s->target->entries[s->best.entry], field);
  bool changed = false;
  for (int tries = 0; tries < 64; tries++) {
    const int64_t value = s->best.field[field];
    const int64_t candidates[] = {least, least + step, least + (value - least) / step / 2 * step, value - step};
    bool taken = false;
    for (int k = 0; k < 4 && !taken; k++) {
      struct sf_op_case c = s->best;
      if (candidates[k] < least || candidates[k] >= value || (k > 0 && candidates[k] <= candidates[k - 1] && k < 3)) continue;
      c.field[field] = candidates[k];
      taken = seeded ? take_seeded(s, &c) : take(s, &c);
    }
    if (!taken) return changed;
    changed = true;
  }
  return changed;
}

static bool lower_dims(struct shrinking *s) {
  const struct sf_op_entry *entry = &s->target->entries[s->best.entry];
  bool changed = false;
  for (int32_t i = 0; i < entry->op->dim_count; i++) changed |= lower(s, SF_OP_DIM + i, entry->dim_multiple[i], true);
  return changed;
}

/* The number of shapes that are no larger in any dimension, at most SHAPES_MAX + 1. */
static int64_t shapes_below(const struct shrinking *s) {
  const struct sf_op_entry *entry = &s->target->entries[s->best.entry];
  int64_t count = 1;
  for (int32_t i = 0; i < entry->op->dim_count && count <= SHAPES_MAX; i++)
    count *= (s->best.field[SF_OP_DIM + i] - sf_op_field_min(entry, SF_OP_DIM + i)) / entry->dim_multiple[i] + 1;
  return count > SHAPES_MAX ? SHAPES_MAX + 1 : count;
}

/* Shape number k of those below the best one; returns the sum of its dimensions. */
static int64_t shape_at(const struct shrinking *s, struct sf_op_case *c, int64_t k) {
  const struct sf_op_entry *entry = &s->target->entries[s->best.entry];
  int64_t sum = 0;
  *c = s->best;
  for (int32_t i = 0; i < entry->op->dim_count; i++) {
    const int64_t least = sf_op_field_min(entry, SF_OP_DIM + i), step = entry->dim_multiple[i],
                  values = (c->field[SF_OP_DIM + i] - least) / step + 1;
    c->field[SF_OP_DIM + i] = least + k % values * step;
    sum += c->field[SF_OP_DIM + i];
    k /= values;
  }
  return sum;
}

/* Every smaller shape, by the sum of its dimensions. */
static bool search_shapes(struct shrinking *s) {
  struct sf_op_case c;
  const int64_t count = shapes_below(s), whole = shape_at(s, &c, count - 1);
  if (count > SHAPES_MAX) return false;
  for (int64_t sum = 0; sum < whole; sum++)
    for (int64_t k = 0; k < count; k++)
      if (shape_at(s, &c, k) == sum && take_seeded(s, &c)) return true;
  return false;
}

static bool simplify(struct shrinking *s) {
  const struct sf_op_entry *entry = &s->target->entries[s->best.entry];
  bool changed = false;
  for (int32_t i = 0; i < entry->op->attr_count; i++) changed |= lower(s, SF_OP_ATTR + i, 1, true);
  for (int32_t i = SF_OP_START; i < SF_OP_FIELDS; i++)
    if (sf_op_field_present(entry->op, i)) changed |= lower(s, i, 1, false);
  changed |= lower(s, SF_OP_IN_PLACE, 1, false);
  changed |= lower(s, SF_OP_SPECIAL, 1, true);
  for (int32_t i = SF_OP_VALUES; i < SF_OP_START; i++)
    if (sf_op_field_present(entry->op, i)) changed |= lower(s, i, 1, true);
  if (entry->declared < 0) {
    changed |= lower(s, SF_OP_STORE, 1, true);
    changed |= lower(s, SF_OP_INPUTS, 1, true);
  }
  return changed | lower(s, SF_OP_SEED, 1, false);
}

enum sf_status sf_op_shrink(struct sf_case *out, const struct sf_case *in, const struct sf_op_target *target, bool is_slow,
                            bool (*still_fails)(void *ctx, const struct sf_case *c), void *ctx, int64_t budget,
                            struct sf_shrink_report *report) {
  struct shrinking s = {.target = target,
                        .is_slow = is_slow,
                        .still_fails = still_fails,
                        .ctx = ctx,
                        .budget = is_slow && budget > SLOW_BUDGET ? SLOW_BUDGET : budget,
                        .report = report};
  memset(report, 0, sizeof *report);
  const enum sf_status status = sf_op_case_of(&s.best, in, target, NULL);
  if (status != SF_OK) return status;
  for (bool changed = true; changed && !out_of_budget(&s);) {
    changed = lower_dims(&s);
    changed |= search_shapes(&s);
    changed |= simplify(&s);
  }
  report->minimal = !out_of_budget(&s);
  sf_op_case_put(out, target, &s.best);
  return SF_OK;
}
