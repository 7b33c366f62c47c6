/* Template: the state of a run of the reference, and what every module uses: storing and tracing. */
#ifndef SF_ORACLES_REFERENCE_CORE_H
#define SF_ORACLES_REFERENCE_CORE_H

#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/base/hash.h"
#include "oracles/reference/reference_acts.h"
#include "oracles/reference/reference_perturb.h"

#include <string.h>

struct param_state {
  real *master, *weight;               /* weight = round(master); the same array when nothing is rounded */
  real *main_grad, *moment1, *moment2; /* NULL when frozen; moments NULL in a run of one step, where they start from zero */
};

/* One operand of one linear layer: the largest sizes that it has had. */
struct fp8_cast {
  float amax;                        /* of the step so far */
  float history[SF_FP8_HISTORY_MAX]; /* of earlier steps, the last one first */
  int32_t count;                     /* of those that count */
};

/* How sums are taken and numbers moved; see enum sf_perturb. */
struct noise {
  const struct sf_reference_options *options;
  uint64_t sum_count;           /* sums taken so far: tells the splits of E5 apart */
  real *part, *part_a, *part_b; /* E5: a part of a split product and of its two factors; E3: part_b, a factor, moved; SIZES: both factors */
  int32_t *order;               /* E5 only: the indices of a split sum, shuffled */
  real *sizes;                  /* E5 only: of the terms of a product */
};

/* fp8 only. */
struct fp8_state {
  struct fp8_cast *casts;      /* [modules][operands] */
  real *input, *grad, *weight; /* operands as they are multiplied */
};

/* Of the steps. */
struct step_state {
  double loss_sum;                   /* of the step, before normalisation by its tokens */
  double loss_scale;                 /* 1 without scaling */
  int64_t good_steps, steps_applied; /* without overflow: since the scale last changed, in all */
};

struct run {
  const struct sf_catalog *catalog;
  const struct sf_case *c;
  const struct sf_reference_options *options;
  const struct sf_reference_sink *sink;
  const struct sf_reference_nudge *nudge;
  struct sf_arena *arena;
  bool out_of_memory;
  enum sf_dtype format;        /* of stored tensors */
  enum sf_dtype stream_format; /* of the residual stream and its gradients */
  uint16_t step, microbatch;
  int64_t tokens, memory_rows, hidden, qkv_width, context_width;
  struct param_state *params;
  struct step_state state;
  struct model_acts acts;
  struct scratch scratch;
  struct attention_scratch attention;
  struct latent_scratch latent;
  struct cross_scratch cross;
  struct moe_scratch moe;
  struct fp8_state fp8;
  struct noise noise;
};

/* Memory of the run for `count` objects of `bytes` each; NULL once it is out. */
static inline void *take_all(struct run *run, int64_t count, size_t bytes) {
  void *memory = sf_arena_alloc(run->arena, (size_t)count * bytes);
  run->out_of_memory = run->out_of_memory || memory == NULL;
  return memory;
}
static inline real *take(struct run *run, int64_t count) { return take_all(run, count, sizeof(real)); }               /* count numbers */
static inline int32_t *take_indices(struct run *run, int64_t count) { return take_all(run, count, sizeof(int32_t)); } /* count indices */

/* --- storing and tracing ---------------------------------------------------------------------------------------- */

/* Rounds to the format; not in the build in double, which stores nothing in less. */
static inline void round_to(real *values, int64_t count, enum sf_dtype format) {
#ifdef SF_REFERENCE_DOUBLE
  (void)values, (void)count, (void)format;
#else
  sf_round_array(values, count, format);
#endif
}

/* E3 reaches what a module keeps in fp32 on its way too (a norm's mean, a softmax's scores, the two terms of GELU's slope), in every
 * precision: where such numbers cancel, rounding them moves the result further than rounding the result does. One stream per (trace point,
 * part). */
struct inner {
  bool on;
  uint64_t key;
};
/* above all parts of stored tensors, above all parts of those; of given tensors */
enum { INNER_PART = 1 << 30, TERMS_PART = 1 << 20, GIVEN_PART = 1 << 29 };

/* The stream of part `part` of this trace point; off unless the run perturbs what is stored. */
static inline struct inner inner_in(const struct noise *noise, struct sf_trace_id id, uint64_t part) {
  if (noise->options->perturb != SF_PERTURB_STORED) return (struct inner){false, 0};
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

/* What attention multiplies scores with. */
static inline real score_scale(const struct run *run) {
  const real d = (real)run->c->model.head_dim;
  return has_slip(run, SF_SLIP_SCORES_RAW) ? 1 : has_slip(run, SF_SLIP_SCORES_BY_SIZE) ? 1 / d : 1 / real_sqrt(d);
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

/* What the caller gives in the place of this tensor, if it gives anything. */
static inline void take_given(const struct run *run, struct sf_trace_id id, real *values, int64_t count) {
  const struct sf_given *from = run->options->given;
  const enum sf_perturb how = run->options->perturb;
  const float *given = from->tensor(from->ctx, id), *sizes = how != SF_PERTURB_NONE ? from->part_sizes(from->ctx, id) : NULL;
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

/* Clears the scratch for this parameter's gradient. */
static inline void zero_wgrad(struct run *run, int32_t param) {
  const struct sf_shape shape = run->catalog->params[param].shape;
  for (int64_t i = 0; i < shape.rows * shape.cols; i++) run->scratch.wgrad[i] = 0;
}

/* run->scratch.wgrad holds the microbatch's gradient of a trained parameter: traced, then added to its main gradient. */
static inline void finish_wgrad(struct run *run, int32_t param, uint8_t call) {
  const struct sf_shape shape = run->catalog->params[param].shape;
  const struct sf_trace_id id = {
      .step = run->step, .microbatch = run->microbatch, .pass = SF_PASS_BWD, .kind = SF_KIND_WGRAD, .call = call, .subject = param};
  finish(run, id, run->scratch.wgrad, shape.rows, shape.cols, SF_F32);
  real *restrict sum = run->params[param].main_grad;
  const real *restrict term = run->scratch.wgrad;
  for (int64_t i = 0; i < shape.rows * shape.cols; i++) sum[i] += term[i];
  /* The running sum is stored too. The first term of a step is added to zero, which does not round. */
  if (run->microbatch > 0 || call > 0 || run->c->model.mtp_depth > 0) inner_perturb(inner_of(run, id, 0), 0, sum, shape.rows * shape.cols);
}

#endif
