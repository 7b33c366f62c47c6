/* Passes, over and over until none makes the case smaller: dimensions one by one; all smaller shapes, smallest first, when they are few;
 * what is not shape. A shape that fails only for some values must not be missed, so shapes are tried with several seeds. */
#include "harness/run/opfuzz/op_shrink.h"

enum { SEEDS = 12, SHAPES_MAX = 400, SLOW_BUDGET = 120 };

struct shrinking {
  struct sf_op_shrunk *best;
  struct sf_op_worker *worker;
  const struct sf_op_target *target;
  int64_t budget;
  int32_t cls, operand;
  struct sf_error *error;
  enum sf_status status; /* SF_ECANCELLED: stopped */
};

/* Runs a candidate and takes it when it fails alike. */
static bool take(struct shrinking *s, const struct sf_op_case *c) {
  struct sf_op_job job = {.one = *c};
  struct sf_op_answer answer;
  if (s->status == SF_OK && sf_op_worker_is_stopped(s->worker)) s->status = SF_ECANCELLED;
  if (s->status != SF_OK || s->best->trials >= s->budget || !sf_op_case_valid(s->target, c, NULL, NULL)) return false;
  s->best->trials++;
  s->status = sf_op_worker_run(s->worker, &job, &answer, s->error);
  if (s->status != SF_OK || answer.outcome.cls != s->cls || answer.outcome.operand != s->operand) return false;
  s->best->c = *c;
  s->best->outcome = answer.outcome;
  return true;
}

/* The same with other seeds. */
static bool take_seeded(struct shrinking *s, struct sf_op_case *c) {
  const int64_t own = c->field[SF_OP_SEED];
  const int seeds = s->cls == SF_OP_HANG ? 1 : SEEDS;
  for (int k = 0; k < seeds; k++) {
    c->field[SF_OP_SEED] = k == 0 ? own : k - 1;
    if (take(s, c)) return true;
  }
  return false;
}

/* One number as small as it goes: its smallest value, half the way, one less. */
static bool lower(struct shrinking *s, int32_t field, int64_t step, bool seeded) {
  const int64_t least = sf_op_field_min(&s->target->entries[s->best->c.entry], field);
  bool changed = false;
  for (int tries = 0; tries < 64; tries++) {
    const int64_t value = s->best->c.field[field];
    const int64_t candidates[] = {least, least + step, least + (value - least) / step / 2 * step, value - step};
    bool taken = false;
    for (int k = 0; k < 4 && !taken; k++) {
      struct sf_op_case c = s->best->c;
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
  const struct sf_op_entry *entry = &s->target->entries[s->best->c.entry];
  bool changed = false;
  for (int32_t i = 0; i < entry->op->dim_count; i++) changed |= lower(s, SF_OP_DIM + i, entry->dim_multiple[i], true);
  return changed;
}

/* The number of shapes that are no larger in any dimension, at most SHAPES_MAX + 1. */
static int64_t shapes_below(const struct shrinking *s) {
  const struct sf_op_entry *entry = &s->target->entries[s->best->c.entry];
  int64_t count = 1;
  for (int32_t i = 0; i < entry->op->dim_count && count <= SHAPES_MAX; i++)
    count *= (s->best->c.field[SF_OP_DIM + i] - sf_op_field_min(entry, SF_OP_DIM + i)) / entry->dim_multiple[i] + 1;
  return count > SHAPES_MAX ? SHAPES_MAX + 1 : count;
}

/* Shape number k of those below the best one; returns the sum of its dimensions. */
static int64_t shape_at(const struct shrinking *s, struct sf_op_case *c, int64_t k) {
  const struct sf_op_entry *entry = &s->target->entries[s->best->c.entry];
  int64_t sum = 0;
  *c = s->best->c;
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
  const struct sf_op_entry *entry = &s->target->entries[s->best->c.entry];
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

enum sf_status sf_op_shrink(struct sf_op_shrunk *out, struct sf_op_worker *worker, const struct sf_op_target *target,
                            const struct sf_op_case *c, const struct sf_op_outcome *outcome, int64_t budget, struct sf_error *error) {
  *out = (struct sf_op_shrunk){.c = *c, .outcome = *outcome};
  struct shrinking s = {out, worker, target, budget, outcome->cls, outcome->operand, error, SF_OK};
  /* Each trial of a hang takes its whole deadline. */
  if (outcome->cls == SF_OP_HANG && s.budget > SLOW_BUDGET / 10) s.budget = SLOW_BUDGET / 10;
  out->again = take(&s, c);
  for (bool changed = out->again; changed && s.status == SF_OK && out->trials < s.budget;) {
    changed = lower_dims(&s);
    changed |= search_shapes(&s);
    changed |= simplify(&s);
  }
  out->minimal = out->again && s.status == SF_OK && out->trials < s.budget;
  return s.status == SF_ECANCELLED ? SF_OK : s.status;
}
