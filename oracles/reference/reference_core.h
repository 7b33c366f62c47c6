/* Template: what every module uses: storing and tracing. */
#ifndef SF_ORACLES_REFERENCE_CORE_H
#define SF_ORACLES_REFERENCE_CORE_H

#include "harness/base/hash.h"
#include "oracles/reference/reference_perturb.h"
#include "oracles/reference/reference_supposed.h"
#include "oracles/reference/reference_wanted.h"

/* E3 reaches what a module keeps in fp32 on its way too (a norm's mean, a softmax's scores, the two terms of GELU's slope), in every
 * precision: where such numbers cancel, rounding them moves the result further than rounding the result does. One stream per (trace point,
 * part). */
struct inner {
  bool on;
  uint64_t key;
};
/* above all parts of stored tensors, above all parts of those; of given tensors */
enum { INNER_PART = 1 << 30, TERMS_PART = 1 << 20, GIVEN_PART = 1 << 29 };

/* Whether the run moves fp32 numbers inside of modules. */
static inline bool moves_inner(const struct sf_reference_options *options) {
  return options->perturb == SF_PERTURB_STORED || options->perturb == SF_PERTURB_INNER;
}

/* The stream of part `part` of this trace point; off unless the run moves such numbers. */
static inline struct inner inner_in(const struct noise *noise, struct sf_trace_id id, uint64_t part) {
  if (!moves_inner(noise->options)) return (struct inner){false, 0};
  return (struct inner){true, sf_noise_key(noise->options->draw, id, INNER_PART + part)};
}
static inline struct inner inner_of(const struct run *run, struct sf_trace_id id, uint64_t part) { return inner_in(&run->noise, id, part); }

/* first: place of values[0] in the stream. */
static inline void inner_perturb(struct inner inner, int64_t first, real *values, int64_t count) {
  if (inner.on) perturb_f32(values, count, inner.key & 1 ? inner.key : inner.key + (uint64_t)(2 * first) * UINT64_C(0x9e3779b97f4a7c15));
}

/* inner_perturb of one number. */
static inline real inner_number(struct inner inner, int64_t first, real value) {
  inner_perturb(inner, first, &value, 1);
  return value;
}

/* Stores a tensor in its format: E3's perturbation, then rounding. part: as in sf_noise_key. */
static inline void store(struct run *run, struct sf_trace_id id, uint64_t part, real *values, int64_t count, enum sf_dtype format) {
  const struct sf_reference_options *options = run->options;
  if (options->perturb == SF_PERTURB_STORED) perturb_stored(values, count, sf_noise_key(options->draw, id, part), format);
  round_to(values, count, format);
}

/* A softmax's P, which a kernel that multiplies it at once keeps in fp32: half of E3's runs do not round it. Where P rounds to 1 its row's
 * dS is 0, and moving P by less than a unit before it is rounded would mostly leave it there. */
static inline void store_probs(struct run *run, struct sf_trace_id id, uint64_t part, real *values, int64_t count) {
  const bool is_kept = run->options->perturb == SF_PERTURB_STORED && (run->options->draw & 2) != 0;
  store(run, id, part, values, count, is_kept ? SF_F32 : run->format);
}

/* Hands [rows x cols] to the sink. */
static inline void emit(struct run *run, struct sf_trace_id id, const real *values, int64_t rows, int64_t cols) {
  run->sink->emit(run->sink->ctx, id, values, (struct sf_shape){rows, cols});
}

/* count numbers from the first on, as `how` says. */
static inline void fill(real *values, const struct sf_fill *how, int64_t count) {
#ifdef SF_REFERENCE_DOUBLE
  enum { CHUNK = 512 };
  float chunk[CHUNK];
  for (int64_t first = 0; first < count; first += CHUNK) {
    const int64_t size = count - first < CHUNK ? count - first : CHUNK;
    sf_fill_range(chunk, how, first, size);
    for (int64_t i = 0; i < size; i++) values[first + i] = (double)chunk[i];
  }
#else
  sf_fill_range(values, how, 0, count);
#endif
}

/* Stored and emitted, and not overwritten in isolated mode. */
static inline void finish_kept(struct run *run, struct sf_trace_id id, real *values, int64_t rows, int64_t cols, enum sf_dtype format) {
  store(run, id, 0, values, rows * cols, format);
  emit(run, id, values, rows, cols);
}

/* What the caller gives in the place of this tensor, if it gives anything. */
static inline void take_given(const struct run *run, struct sf_trace_id id, real *values, int64_t count) {
  const struct sf_given *from = run->options->given;
  const enum sf_perturb how = run->options->perturb;
  const bool has_parts = how != SF_PERTURB_NONE && how != SF_PERTURB_INNER;
  const float *given = from->tensor(from->ctx, id), *sizes = has_parts ? from->part_sizes(from->ctx, id) : NULL;
  const float *taken = sizes != NULL && how == SF_PERTURB_SIZES ? sizes : given;
  for (int64_t i = 0; taken != NULL && i < count; i++) values[i] = (real)taken[i];
  if (sizes != NULL && how != SF_PERTURB_SIZES)
    perturb_by(values, count, sf_noise_key(run->options->draw, id, GIVEN_PART), sizes, sf_dtype_unit_roundoff(run->format));
}

/* A finished tensor: stored, emitted, and in isolated mode overwritten before anything uses it. */
static inline void finish(struct run *run, struct sf_trace_id id, real *values, int64_t rows, int64_t cols, enum sf_dtype format) {
  finish_kept(run, id, values, rows, cols, format);
  if (run->c->mode != SF_MODE_ISOLATED) return;
  if (run->options->given != NULL) {
    take_given(run, read_instead(run, id), values, rows * cols);
  } else {
    const struct sf_fill how = sf_fill_for_trace(run->catalog, read_instead(run, id));
    fill(values, &how, rows * cols);
  }
  change_read(run, id, values, rows * cols);
}

/* Of an activation or its gradient, in the microbatch at hand. layer: -1 outside of layers. */
static inline struct sf_trace_id act_id(const struct run *run, enum sf_module_class cls, int32_t layer, enum sf_kind kind) {
  return (struct sf_trace_id){.step = run->step,
                              .microbatch = run->microbatch,
                              .pass = kind == SF_KIND_ACT ? SF_PASS_FWD : SF_PASS_BWD,
                              .kind = (uint8_t)kind,
                              .call = 0,
                              .subject = sf_catalog_module(run->catalog, cls, layer)};
}

/* Of what a module works on: tokens, or rows of the memory. */
static inline int64_t rows_of(const struct run *run, enum sf_module_class cls) {
  return sf_modules[cls].act_grad.rows == SF_SIZE_MEMORY_ROWS ? run->memory_rows : run->tokens;
}

/* Position of a token row in its document. */
static inline int64_t position_of(const struct run *run, int64_t t) {
  const int64_t b = run->c->train.microbatch_size, position = t / b;
  const struct sf_supposed *supposed = run->options->supposed;
  if (supposed != NULL && supposed->positions != NULL) return supposed->positions[t % b * run->c->model.seq + position];
  return run->acts.documents == NULL ? position : position - run->acts.documents[t % b * run->c->model.seq + position];
}

/* What a tensor of this promise is stored in. */
static inline enum sf_dtype format_of(const struct run *run, enum sf_promise promise) {
  return promise == SF_PROMISE_F32 ? SF_F32 : promise == SF_PROMISE_STREAM ? run->stream_format : run->format;
}

/* Finishes a module's output, in the format that the table of modules says. */
static inline void finish_act(struct run *run, enum sf_module_class cls, int32_t layer, real *values, int64_t cols) {
  const struct sf_trace_id id = act_id(run, cls, layer, SF_KIND_ACT);
  finish(run, id, values, rows_of(run, cls), cols, format_of(run, sf_modules[cls].act.promise));
}

/* Finishes the gradient of a module's input. */
static inline void finish_act_grad(struct run *run, enum sf_module_class cls, int32_t layer, real *values, int64_t cols) {
  const struct sf_trace_id id = act_id(run, cls, layer, SF_KIND_ACT_GRAD);
  finish(run, id, values, rows_of(run, cls), cols, format_of(run, sf_modules[cls].act_grad.promise));
}

/* param -1: there is none. */
static inline bool is_trained(const struct run *run, int32_t param) { return param >= 0 && !run->catalog->params[param].frozen; }

/* Elements of a parameter. */
static inline int64_t param_count(const struct run *run, int32_t param) {
  const struct sf_shape shape = run->catalog->params[param].shape;
  return shape.rows * shape.cols;
}

/* Clears the scratch for this parameter's gradient. */
static inline void zero_wgrad(struct run *run, int32_t param) {
  memset(run->scratch.wgrad, 0, (size_t)param_count(run, param) * sizeof(real));
}

/* Of a parameter's gradient in the microbatch at hand. */
static inline struct sf_trace_id wgrad_id(const struct run *run, int32_t param, uint8_t call) {
  return (struct sf_trace_id){
      .step = run->step, .microbatch = run->microbatch, .pass = SF_PASS_BWD, .kind = SF_KIND_WGRAD, .call = call, .subject = param};
}

/* Leaves out the sum that makes the parameter's gradient, if it is needless. */
static inline bool leaves_out_wgrad(struct run *run, int32_t param, uint8_t call) {
  if (!is_needless(run, wgrad_id(run, param, call))) return false;
  leave_out(run, run->scratch.wgrad, needs_main_grad(run, param) ? param_count(run, param) : 0);
  return true;
}

/* run->scratch.wgrad holds the microbatch's gradient of a trained parameter: traced, then added to its main gradient. */
static inline void finish_wgrad(struct run *run, int32_t param, uint8_t call) {
  const struct sf_shape shape = run->catalog->params[param].shape;
  const struct sf_trace_id id = wgrad_id(run, param, call);
  if (!needs_main_grad(run, param)) {
    if (is_wanted(run, id)) finish_kept(run, id, run->scratch.wgrad, shape.rows, shape.cols, SF_F32);
    return;
  }
  finish(run, id, run->scratch.wgrad, shape.rows, shape.cols, SF_F32);
  real *restrict sum = run->params[param].main_grad;
  const real *restrict term = run->scratch.wgrad;
  for (int64_t i = 0; i < shape.rows * shape.cols; i++) sum[i] += term[i];
  /* The running sum is stored too. The first term of a step is added to zero, which does not round. */
  if (run->microbatch > 0 || call > 0 || run->c->model.mtp_depth > 0) inner_perturb(inner_of(run, id, 0), 0, sum, shape.rows * shape.cols);
}

#endif
