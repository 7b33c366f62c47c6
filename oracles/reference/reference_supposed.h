/* Template: mistakes that a run makes on purpose (struct sf_supposed). Without one, every function here gives what is right. */
#ifndef SF_ORACLES_REFERENCE_SUPPOSED_H
#define SF_ORACLES_REFERENCE_SUPPOSED_H

#include "oracles/reference/reference_run.h"

/* The step and microbatch whose data the run reads, which a supposed mistake changes. */
struct moment {
  int64_t step, microbatch;
};
/* Of a part of the microbatch's data, or of the step's weights. */
static inline struct moment moment_of(const struct run *run, enum sf_data_part part) {
  const struct sf_supposed *supposed = run->options->supposed;
  if (supposed == NULL || supposed->has_depth || supposed->order != NULL || !(supposed->parts >> part & 1))
    return (struct moment){run->step, run->microbatch};
  return (struct moment){supposed->step, supposed->microbatch};
}

/* Where a mistake is supposed, puts the microbatch's data, so many bytes a token, in another order. */
static inline void order_data(struct run *run, enum sf_data_part part, void *data, size_t token_bytes) {
  const struct sf_supposed *supposed = run->options->supposed;
  const size_t position_bytes = (size_t)run->c->train.microbatch_size * token_bytes;
  if (supposed == NULL || supposed->order == NULL || !(supposed->parts >> part & 1)) return;
  char *was = sf_arena_alloc(run->arena, (size_t)run->tokens * token_bytes), *to = data;
  if (was == NULL) {
    run->out_of_memory = true;
    return;
  }
  memcpy(was, data, (size_t)run->tokens * token_bytes);
  for (size_t i = 0; i < (size_t)run->c->model.seq; i++)
    memcpy(to + i * position_bytes, was + (size_t)supposed->order[i] * position_bytes, position_bytes);
}

/* Whether the run is to take this formula for the right one. */
static inline bool has_slip(const struct run *run, enum sf_slip slip) {
  return run->options->supposed != NULL && run->options->supposed->slip == slip;
}

/* Sets that a supposed mistake computes something within; 1: there is no such mistake. */
static inline int32_t sets_within(const struct run *run, enum sf_within what) {
  const struct sf_supposed *supposed = run->options->supposed;
  return supposed != NULL && supposed->within >> what & 1 ? supposed->sets : 1;
}
/* The set of a token row; 0 where there is no such mistake. */
static inline int32_t set_of_token(const struct run *run, enum sf_within what, int64_t t) {
  return sets_within(run, what) > 1 ? run->options->supposed->set_of[t / run->c->train.microbatch_size] : 0;
}

/* Whether a query and a key meet, which a supposed mistake may keep apart. */
static inline bool do_meet(const struct run *run, enum sf_within what, int64_t query, int64_t key) {
  const struct sf_supposed *supposed = run->options->supposed;
  if (sets_within(run, what) == 1) return true;
  const int32_t behind = (supposed->set_of[key] - supposed->set_of[query] + supposed->sets) % supposed->sets;
  return (behind == supposed->offset) != supposed->without;
}

/* What attention multiplies scores with. */
static inline real score_scale(const struct run *run) {
  const real d = (real)run->c->model.head_dim;
  const double times = run->options->supposed != NULL ? run->options->supposed->score_times : 0;
  const real scale = has_slip(run, SF_SLIP_SCORES_RAW) ? 1 : has_slip(run, SF_SLIP_SCORES_BY_SIZE) ? 1 / d : 1 / real_sqrt(d);
  return times != 0 ? (real)times * scale : scale;
}

/* Of the tensor that modules read in place of this one, which a supposed mistake changes. */
static inline struct sf_trace_id read_instead(const struct run *run, struct sf_trace_id id) {
  const struct sf_supposed *supposed = run->options->supposed;
  if (supposed == NULL || !supposed->reads || id.kind != (uint8_t)supposed->kind) return id;
  if (supposed->module < 0) id.step = (uint16_t)supposed->step, id.microbatch = (uint16_t)supposed->microbatch;
  if (supposed->module == id.subject) id.subject = supposed->from;
  return id;
}

/* Replaces or multiplies what modules read of a tensor, as a supposed mistake says. */
static inline void change_read(const struct run *run, struct sf_trace_id id, real *values, int64_t count) {
  const struct sf_supposed *supposed = run->options->supposed;
  if (supposed == NULL || !supposed->reads || id.kind != (uint8_t)supposed->kind || supposed->module != id.subject) return;
  if (supposed->values == NULL)
    for (int64_t i = 0; i < count; i++) values[i] *= (real)supposed->times;
  else if (id.step == supposed->step && id.microbatch == supposed->microbatch)
    for (int64_t i = 0; i < count; i++) values[i] = (real)supposed->values[i];
}

#endif
