/* Template: what a run may leave out because the caller looks at some tensors alone. What is wanted has the bits that it has in a whole
 * run: sums that are left out are counted. */
#ifndef SF_ORACLES_REFERENCE_WANTED_H
#define SF_ORACLES_REFERENCE_WANTED_H

#include "oracles/reference/reference_run.h"

#include "harness/base/hash.h"

/* What is wanted of a microbatch. */
enum { WANTS_FORWARD = 1, WANTS_BACKWARD = 2 };

/* Where the key lies in the table, or the free place for it. */
static inline uint64_t *wanted_place(const struct wanted_set *set, uint64_t key) {
  uint64_t at = sf_mix64(key) & set->mask;
  while (set->keys[at] != 0 && set->keys[at] != key + 1) at = (at + 1) & set->mask;
  return &set->keys[at];
}

/* Whether only some tensors are looked at. */
static inline bool wants_some(const struct run *run) { return run->options->wanted != NULL; }

/* Whether the caller looks at this tensor. */
static inline bool is_wanted(const struct run *run, struct sf_trace_id id) {
  return !wants_some(run) || *wanted_place(&run->wanted, sf_trace_key(id)) != 0;
}

/* Puts a tensor into the table and among what is wanted of its microbatch or step. */
static inline void wanted_add(struct run *run, struct sf_trace_id id) {
  struct wanted_set *set = &run->wanted;
  const bool is_forward = id.kind == SF_KIND_ACT, is_backward = id.kind == SF_KIND_ACT_GRAD || id.kind == SF_KIND_WGRAD;
  const int64_t at = (int64_t)id.step * run->c->train.microbatches + id.microbatch;
  *wanted_place(set, sf_trace_key(id)) = sf_trace_key(id) + 1;
  if (is_forward || is_backward) {
    set->of_microbatch[at] |= is_forward ? WANTS_FORWARD : WANTS_BACKWARD;
    if (at > set->last_microbatch) set->last_microbatch = at;
    return;
  }
  if (id.kind == SF_KIND_MAIN_GRAD)
    set->of_step[id.step].main_grads = true;
  else
    set->of_step[id.step].more = true;
  if (id.step > set->last_step_end) set->last_step_end = id.step;
}

/* Takes over the caller's list. */
static inline void wanted_create(struct run *run) {
  const struct sf_wanted *wanted = run->options->wanted;
  struct wanted_set *set = &run->wanted;
  if (wanted == NULL) return;
  uint64_t size = 16;
  while (size < 2 * (uint64_t)wanted->count) size *= 2;
  const int64_t steps = run->c->train.steps + 1, microbatches = steps * run->c->train.microbatches;
  *set = (struct wanted_set){.mask = size - 1, .last_microbatch = -1, .last_step_end = -1};
  set->keys = take_all(run, (int64_t)size, sizeof *set->keys);
  set->of_microbatch = take_all(run, microbatches, sizeof *set->of_microbatch);
  set->of_step = take_all(run, steps, sizeof *set->of_step);
  if (run->out_of_memory) return;
  memset(set->keys, 0, size * sizeof *set->keys);
  memset(set->of_microbatch, 0, (size_t)microbatches * sizeof *set->of_microbatch);
  memset(set->of_step, 0, (size_t)steps * sizeof *set->of_step);
  for (int32_t i = 0; i < wanted->count; i++) wanted_add(run, wanted->ids[i]);
}

/* Number of the microbatch at hand, counted through all steps. */
static inline int64_t microbatch_now(const struct run *run) { return (int64_t)run->step * run->c->train.microbatches + run->microbatch; }

/* Sums are counted anew in each microbatch, so that one that is left out does not show in the next. */
static inline void microbatch_begin(struct run *run, int64_t number) {
  run->microbatch = (uint16_t)number;
  run->noise.sum_count = (uint64_t)microbatch_now(run) << 32;
}

/* Whether everything that is wanted has been computed, once the microbatch at hand is over. */
static inline bool has_all(const struct run *run) {
  return wants_some(run) && microbatch_now(run) >= run->wanted.last_microbatch && (int64_t)run->step > run->wanted.last_step_end;
}

/* Whether later steps go on from what this one leaves. In isolated mode all that modules read is given, weights too, unless the caller
 * gives them and may have none for a later step. */
static inline bool has_state(const struct run *run) {
  const struct sf_precision *precision = &run->c->precision;
  return run->fp8.casts != NULL || precision->loss_scale_window > 0 || run->c->mode != SF_MODE_ISOLATED ||
         (run->options->given != NULL && run->c->train.steps > 1);
}

/* Whether the step's own tensors matter: main gradients and what is made from them. */
static inline bool needs_step_end(const struct run *run) {
  return !wants_some(run) || has_state(run) || run->wanted.of_step[run->step].main_grads || run->wanted.of_step[run->step].more;
}

/* Whether the parameter's main gradient of this step matters. */
static inline bool needs_main_grad(const struct run *run, int32_t param) {
  const struct sf_trace_id id = {.step = run->step, .pass = SF_PASS_STEP, .kind = SF_KIND_MAIN_GRAD, .subject = param};
  return !wants_some(run) || has_state(run) || run->wanted.of_step[run->step].more || is_wanted(run, id);
}

/* Whether the microbatch at hand need not be run. */
static inline bool is_needless_microbatch(const struct run *run) {
  if (!wants_some(run)) return false;
  const bool is_over = microbatch_now(run) > run->wanted.last_microbatch && (int64_t)run->step > run->wanted.last_step_end;
  return is_over || (!needs_step_end(run) && run->wanted.of_microbatch[microbatch_now(run)] == 0);
}

/* Whether the microbatch at hand need only be run forward. */
static inline bool ends_with_forward(const struct run *run) {
  if (!wants_some(run) || (run->wanted.of_microbatch[microbatch_now(run)] & WANTS_BACKWARD) != 0) return false;
  return has_all(run) || !needs_step_end(run);
}

/* Whether a tensor need not be computed: it is not looked at, and something else is given in its place. An fp8 cast leaves its amax to
 * later ones. */
static inline bool is_needless(const struct run *run, struct sf_trace_id id) {
  const struct sf_given *given = run->options->given;
  if (is_wanted(run, id) || run->c->mode != SF_MODE_ISOLATED || run->fp8.casts != NULL) return false;
  return given == NULL || given->tensor(given->ctx, id) != NULL;
}

/* Leaves out a sum: the tensor has any finite values until something else is given in its place. */
static inline void leave_out(struct run *run, real *values, int64_t count) {
  run->noise.sum_count++;
  memset(values, 0, (size_t)count * sizeof *values);
}

#endif
