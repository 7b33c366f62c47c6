/* Template: parameters, gradient normalisation and clipping, Adam. */
#ifndef SF_ORACLES_REFERENCE_STEP_H
#define SF_ORACLES_REFERENCE_STEP_H

#include "harness/tensor/rounding_bits.h"
#include "oracles/reference/reference_products.h"

#include <string.h>

/* Of what belongs to a step and not to a microbatch. */
static inline struct sf_trace_id step_id(const struct run *run, enum sf_kind kind, int32_t subject) {
  return (struct sf_trace_id){
      .step = run->step, .microbatch = 0, .pass = SF_PASS_STEP, .kind = (uint8_t)kind, .call = 0, .subject = subject};
}

/* weight = round(master). */
static inline void weight_from_master(struct run *run, int32_t param) {
  const struct param_state *state = &run->params[param];
  if (state->weight == state->master) return;
  memcpy(state->weight, state->master, (size_t)param_count(run, param) * sizeof(real));
  round_to(state->weight, param_count(run, param), run->format);
}

/* With stochastic rounding the weight in the compute format is the only one there is. */
static inline bool keeps_no_master(const struct run *run) { return run->c->precision.stochastic && run->format == SF_BF16; }

/* Rounds values of a parameter to bf16 by the bits that the target draws too (sf_rounding_bits_range). */
static inline void round_stochastic(const struct run *run, int32_t param, real *values, int64_t count) {
#ifdef SF_REFERENCE_DOUBLE
  (void)run, (void)param, (void)values, (void)count;
#else
  enum { CHUNK = 512 };
  uint16_t random[CHUNK];
  const uint64_t key = sf_rounding_key(run->catalog, param, run->step);
  for (int64_t first = 0; first < count; first += CHUNK) {
    const int64_t size = count - first < CHUNK ? count - first : CHUNK;
    sf_rounding_bits_range(random, key, first, size);
    for (int64_t i = 0; i < size; i++) values[first + i] = sf_bf16_round_stochastic(values[first + i], random[i]);
  }
#endif
}

/* Initial values, or in isolated mode those of the step; with the caller's nudge in step 0. */
static inline void params_load(struct run *run, int64_t step) {
  for (int32_t p = 0; p < run->catalog->param_count; p++) {
    const struct sf_fill how = sf_fill_for_param(run->catalog, p, step);
    fill(run->params[p].master, &how, param_count(run, p));
    const struct sf_reference_nudge *nudge = run->nudge;
    if (nudge != NULL && nudge->param == p && step == 0)
      for (int64_t i = 0; i < param_count(run, p); i++) run->params[p].master[i] += (real)(nudge->amount * nudge->direction[i]);
    if (keeps_no_master(run)) round_to(run->params[p].master, param_count(run, p), run->format);
    weight_from_master(run, p);
  }
}

/* Emits every weight, and takes what the caller gives in its place from step 1 on. */
static inline void params_emit(struct run *run) {
  for (int32_t p = 0; p < run->catalog->param_count; p++) {
    const struct sf_shape shape = run->catalog->params[p].shape;
    const struct sf_trace_id id = step_id(run, SF_KIND_PARAM, p);
    emit(run, id, run->params[p].weight, shape.rows, shape.cols);
    struct sf_trace_id from = id;
    from.step = (uint16_t)moment_of(run, SF_DATA_WEIGHTS).step;
    if (run->options->given != NULL && run->step > 0) take_given(run, from, run->params[p].weight, param_count(run, p));
    const struct sf_supposed *supposed = run->options->supposed;
    if (supposed == NULL || supposed->weight == NULL || supposed->param != p) continue;
    for (int64_t i = 0; i < param_count(run, p); i++) run->params[p].weight[i] = (real)supposed->weight[i];
  }
}

/* Start of a step. */
static inline void main_grads_zero(struct run *run) {
  for (int32_t p = 0; p < run->catalog->param_count; p++)
    if (is_trained(run, p) && needs_main_grad(run, p)) memset(run->params[p].main_grad, 0, (size_t)param_count(run, p) * sizeof(real));
}

/* Normalises and traces the main gradients that matter; returns the sum of their squares. */
static inline double main_grads_finish(struct run *run, double divisor) {
  double squares = 0;
  for (int32_t p = 0; p < run->catalog->param_count; p++) {
    if (!is_trained(run, p) || !needs_main_grad(run, p)) continue;
    const struct sf_shape shape = run->catalog->params[p].shape;
    real *grad = run->params[p].main_grad;
    const int64_t count = param_count(run, p);
    for (int64_t i = 0; i < count; i++) grad[i] /= (real)divisor;
    store(run, step_id(run, SF_KIND_MAIN_GRAD, p), 0, grad, count, SF_F32);
    emit(run, step_id(run, SF_KIND_MAIN_GRAD, p), grad, shape.rows, shape.cols);
    double lane[8] = {0};
    for (int64_t i = 0; i < count; i++) lane[i % 8] += (double)grad[i] * (double)grad[i];
    for (int l = 0; l < 8; l++) squares += lane[l];
  }
  return squares;
}

/* Stores in fp32 and emits a scalar; returns what was stored. */
static inline real scalar_finish(struct run *run, enum sf_scalar scalar, double value) {
  real stored = (real)value;
  const struct sf_trace_id id = step_id(run, SF_KIND_SCALAR, (int32_t)scalar);
  store(run, id, 0, &stored, 1, SF_F32);
  emit(run, id, &stored, 1, 1);
  return stored;
}

/* Not computed, so not rounded. */
static inline void emit_scalar(struct run *run, enum sf_scalar scalar, double value) {
  const real exact = (real)value;
  emit(run, step_id(run, SF_KIND_SCALAR, (int32_t)scalar), &exact, 1, 1);
}

/* What a step begins with, or what the last one leaves. */
static inline void state_emit(struct run *run, int64_t step) {
  run->step = (uint16_t)step;
  params_emit(run);
  if (run->c->precision.loss_scale_log2 > 0) emit_scalar(run, SF_SCALAR_LOSS_SCALE, run->state.loss_scale);
}

struct adam {
  real clip, lr, beta1, beta2, rest1, rest2, correction1, correction2; /* rest = 1 - beta, correction = 1 - beta^t */
};

/* The step's numbers, in double and then rounded. */
static inline struct adam adam_create(const struct run *run, real clip) {
  const struct sf_train *train = &run->c->train;
  const double beta1 = (double)train->beta1_milli / 1000, beta2 = (double)train->beta2_milli / 1000,
               t = (double)run->state.steps_applied + 1;
  return (struct adam){.clip = clip,
                       .lr = (real)((double)train->lr_micro / 1e6),
                       .beta1 = (real)beta1,
                       .beta2 = (real)beta2,
                       .rest1 = (real)(1 - beta1),
                       .rest2 = (real)(1 - beta2),
                       .correction1 = (real)(1 - pow(beta1, t)),
                       .correction2 = (real)(1 - pow(beta2, t))};
}

/* moment = beta moment + rest g (or g^2), stored. m and v are the moments, or, when a run of one step keeps none, scratch of any content.
 */
static inline void moments_update(struct run *run, const struct adam *adam, int32_t param, real *m, real *v) {
  const struct param_state *state = &run->params[param];
  const real *grad = state->main_grad;
  const bool from_zero = state->moment1 == NULL;
  const int64_t count = param_count(run, param);
  for (int64_t i = 0; i < count; i++) {
    const real g = adam->clip * grad[i];
    m[i] = (from_zero ? 0 : adam->beta1 * m[i]) + adam->rest1 * g;
    v[i] = (from_zero ? 0 : adam->beta2 * v[i]) + adam->rest2 * g * g;
  }
  store(run, step_id(run, SF_KIND_PARAM_DELTA, param), 1, m, count, SF_F32);
  store(run, step_id(run, SF_KIND_PARAM_DELTA, param), 2, v, count, SF_F32);
}

/* The main gradient is not needed after the moments, nor the buffer of wgrad between microbatches: both serve as scratch. */
static inline void param_step(struct run *run, const struct adam *adam, int32_t param) {
  const struct sf_param *info = &run->catalog->params[param];
  const struct param_state *state = &run->params[param];
  const int64_t count = param_count(run, param);
  const real decay = info->decayed ? (real)((double)run->c->train.weight_decay_milli / 1000) : 0;
  real *next = state->main_grad, *delta = run->scratch.wgrad, *master = state->master;
  real *m = state->moment1 != NULL ? state->moment1 : next, *v = state->moment2 != NULL ? state->moment2 : delta;
  moments_update(run, adam, param, m, v);
  for (int64_t i = 0; i < count; i++) {
    const real direction = m[i] / adam->correction1 / (real_sqrt(v[i] / adam->correction2) + (real)1e-8);
    next[i] = master[i] - adam->lr * (direction + decay * master[i]);
  }
  store(run, step_id(run, SF_KIND_PARAM_DELTA, param), 3, next, count, SF_F32);
  if (keeps_no_master(run)) round_stochastic(run, param, next, count);
  for (int64_t i = 0; i < count; i++) delta[i] = next[i] - master[i];
  memcpy(master, next, (size_t)count * sizeof(real));
  weight_from_master(run, param);
  emit(run, step_id(run, SF_KIND_PARAM_DELTA, param), delta, info->shape.rows, info->shape.cols);
}

/* With loss scaling: whether some main gradient is not finite. */
static inline bool overflows(const struct run *run) {
  if (run->c->precision.loss_scale_log2 == 0) return false;
  for (int32_t p = 0; p < run->catalog->param_count; p++) {
    if (!is_trained(run, p)) continue;
    const real *grad = run->params[p].main_grad;
    for (int64_t i = 0; i < param_count(run, p); i++)
      if (!isfinite(grad[i])) return true;
  }
  return false;
}

/* The change of a weight that this run does not make: zeros. */
static inline void emit_no_change(struct run *run, int32_t param) {
  const struct sf_shape shape = run->catalog->params[param].shape;
  memset(run->scratch.wgrad, 0, (size_t)param_count(run, param) * sizeof(real));
  emit(run, step_id(run, SF_KIND_PARAM_DELTA, param), run->scratch.wgrad, shape.rows, shape.cols);
}

/* Whether the caller gives what this step would make of the weight. */
static inline bool next_weight_is_given(const struct run *run, int32_t param) {
  const struct sf_given *given = run->options->given;
  struct sf_trace_id id = step_id(run, SF_KIND_PARAM, param);
  id.step++;
  return given != NULL && given->tensor(given->ctx, id) != NULL;
}

/* A step with overflow: nothing changes but the loss scale. */
static inline void step_skip(struct run *run) {
  emit_scalar(run, SF_SCALAR_OVERFLOW, 1);
  emit_scalar(run, SF_SCALAR_GRAD_NORM, 0);
  emit_scalar(run, SF_SCALAR_CLIP, 1);
  for (int32_t p = 0; p < run->catalog->param_count; p++) {
    if (!is_trained(run, p)) continue;
    emit_no_change(run, p);
  }
  run->state.good_steps = 0;
  if (run->c->precision.loss_scale_window > 0) run->state.loss_scale /= 2;
}

/* Clips, and does Adam's step. squares: the squared norm of all main gradients. */
static inline void step_apply(struct run *run, double squares) {
  const struct sf_train *train = &run->c->train;
  const int64_t window = run->c->precision.loss_scale_window;
  if (run->c->precision.loss_scale_log2 > 0) emit_scalar(run, SF_SCALAR_OVERFLOW, 0);
  const real norm = scalar_finish(run, SF_SCALAR_GRAD_NORM, sqrt(squares));
  const double ratio = (double)train->clip_milli / 1000 / ((double)norm + 1e-6);
  const real clip = scalar_finish(run, SF_SCALAR_CLIP, train->clip_milli == 0 || ratio > 1 ? 1 : ratio);
  const struct adam adam = adam_create(run, clip);
  for (int32_t p = 0; p < run->catalog->param_count; p++) {
    if (!is_trained(run, p)) continue;
    if (next_weight_is_given(run, p))
      emit_no_change(run, p);
    else
      param_step(run, &adam, p);
  }
  run->state.steps_applied++;
  if (++run->state.good_steps == window) run->state.loss_scale *= 2, run->state.good_steps = 0;
}

/* Everything after the last microbatch of a step. */
static inline void step_finish(struct run *run) {
  const struct sf_train *train = &run->c->train;
  const double kept = (double)sf_data_step_tokens(run->c, run->step);
  const double divisor = train->loss_norm == SF_LOSS_PER_TOKEN ? kept : 1;
  emit_scalar(run, SF_SCALAR_TOKENS, kept);
  scalar_finish(run, SF_SCALAR_LOSS, run->state.loss_sum / divisor);
  const double squares = main_grads_finish(run, divisor * run->state.loss_scale);
  if (overflows(run))
    step_skip(run);
  else
    step_apply(run, squares);
}

#endif
