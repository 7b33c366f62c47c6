/* Template: the state of a run of the reference, and what every module uses: storing, tracing, products, sums. */
#ifndef SF_ORACLES_REFERENCE_CORE_H
#define SF_ORACLES_REFERENCE_CORE_H

#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/base/hash.h"
#include "oracles/reference_internal.h"
#include "oracles/reference_real.h"

/* Activations of a layer, as its modules put them out (isolated mode: as they were overwritten). [tokens x width] each. */
struct layer_acts {
  real *norm1, *qkv, *rotary, *context, *proj, *attn_bda, *norm2, *fc1, *activation, *fc2, *mlp_bda;
  real *probs; /* [microbatch_size][heads][seq x seq] */
};

struct param_state {
  real *master, *weight;               /* weight = round(master); the same array when nothing is rounded */
  real *main_grad, *moment1, *moment2; /* NULL when frozen; moments NULL in a run of one step, where they start from zero */
};

struct run {
  const struct sf_catalog *catalog;
  const struct sf_case *c;
  const struct sf_reference_options *options;
  const struct sf_reference_sink *sink;
  const struct sf_reference_nudge *nudge;
  struct sf_arena *arena;
  bool out_of_memory;
  enum sf_dtype format; /* of stored tensors */
  int32_t input_module; /* whose output is the embedding's output */
  uint16_t step, microbatch;
  uint64_t sum_count; /* sums taken so far: tells the splits of E5 apart */

  int64_t tokens, hidden, qkv_width, context_width, fc1_width;
  struct param_state *params;
  struct layer_acts *layers;
  real *words, *embedded, *adapter, *adapter_bda, *final_norm, *logits, *loss;
  real *cosines, *sines; /* [seq x head_dim / 2] */
  int32_t *token, *label;
  float *mask;
  real *loss_weight;
  double loss_sum; /* of the step, before normalisation by its tokens */

  real *stream, *branch_a, *branch_b, *wide_a, *wide_b; /* gradients; wide = the widest module */
  real *scores;                                         /* [group x seq x seq], group = query heads of a key/value head */
  real *group_rows, *head_grad;                         /* [group x seq x head_dim], [seq x head_dim] */
  real *wgrad;                                          /* the largest parameter */
  real *part, *part_a, *part_b;                         /* E5 only: a part of a split product and of its two factors */
  int32_t *order;                                       /* E5 only: the indices of a split sum, shuffled */
};

static inline real *take(struct run *run, int64_t count) {
  real *memory = sf_arena_alloc(run->arena, (size_t)count * sizeof(real));
  run->out_of_memory = run->out_of_memory || memory == NULL;
  return memory;
}

/* --- storing and tracing ---------------------------------------------------------------------------------------- */

static inline void round_to(real *values, int64_t count, enum sf_dtype format) {
#ifdef SF_REFERENCE_DOUBLE
  (void)values, (void)count, (void)format;
#else
  sf_round_array(values, count, format);
#endif
}

/* x (1 + size v), v uniform in (-1, -least) and (least, 1). */
static inline void perturb(real *values, int64_t count, uint64_t key, double size, double least) {
  const real scale = (real)(size * (1 - least) / 8388608.0), step = (real)(size * least);
  for (int64_t i = 0; i < count; i++) {
    const int32_t bits = (int32_t)(sf_mix64(key + (uint64_t)i * UINT64_C(0x9e3779b97f4a7c15)) >> 40);
    const real v = ((real)bits - (real)8388607.5) * scale;
    values[i] += values[i] * (v < 0 ? v - step : v + step);
  }
}

/* A number that is in fp32 already stays where it is when moved by less than half an ulp: draws of v near zero would show nothing at all,
 * and a tensor that hangs on one number would seem exact in all of them too often. */
static inline void perturb_f32(real *values, int64_t count, uint64_t key) { perturb(values, count, key, 0x1p-23, 0.5); }

/* E3 reaches what a module keeps in fp32 on its way too (a norm's mean, a softmax's scores, the two terms of GELU's slope), in every
 * precision: where such numbers cancel, rounding them moves the result further than rounding the result does. One stream per (trace point,
 * part). */
struct inner {
  bool on;
  uint64_t key;
};
enum { INNER_PART = 1 << 30 }; /* above all parts of stored tensors */

static inline struct inner inner_of(const struct run *run, struct sf_trace_id id, uint64_t part) {
  if (run->options->perturb != SF_PERTURB_STORED) return (struct inner){false, 0};
  return (struct inner){true, sf_noise_key(run->options->draw, id, INNER_PART + part)};
}

/* first: place of values[0] in the stream. */
static inline void inner_perturb(struct inner inner, int64_t first, real *values, int64_t count) {
  if (inner.on) perturb_f32(values, count, inner.key + (uint64_t)first * UINT64_C(0x9e3779b97f4a7c15));
}

static inline real inner_number(struct inner inner, int64_t first, real value) {
  inner_perturb(inner, first, &value, 1);
  return value;
}

/* Stores a tensor in its format: E3's perturbation, then rounding. part: as in sf_noise_key. */
static inline void store(struct run *run, struct sf_trace_id id, uint64_t part, real *values, int64_t count, enum sf_dtype format) {
  const struct sf_reference_options *options = run->options;
  const bool bf16 = format == SF_BF16;
  const bool is_input = id.kind == SF_KIND_ACT && id.subject == run->input_module;
  const uint64_t key = sf_noise_key(options->draw, id, part);
  if (options->perturb == SF_PERTURB_STORED && bf16) perturb(values, count, key, 0x1p-8, 0);
  if (options->perturb == SF_PERTURB_STORED && !bf16) perturb_f32(values, count, key);
  if (options->perturb == SF_PERTURB_INPUT && is_input) perturb(values, count, key, bf16 ? 0x1p-7 : 0x1p-23, 0);
  round_to(values, count, format);
}

static inline void emit(struct run *run, struct sf_trace_id id, const real *values, int64_t rows, int64_t cols) {
  run->sink->emit(run->sink->ctx, id, values, (struct sf_shape){rows, cols});
}

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

/* A finished tensor: stored, emitted, and in isolated mode overwritten before anything uses it. */
static inline void finish(struct run *run, struct sf_trace_id id, real *values, int64_t rows, int64_t cols, enum sf_dtype format) {
  store(run, id, 0, values, rows * cols, format);
  emit(run, id, values, rows, cols);
  if (run->c->mode != SF_MODE_ISOLATED) return;
  const struct sf_fill how = sf_fill_for_trace(run->catalog, id);
  fill(values, &how, rows * cols);
}

static inline struct sf_trace_id act_id(const struct run *run, enum sf_module_class cls, int32_t layer, enum sf_kind kind) {
  return (struct sf_trace_id){.step = run->step,
                              .microbatch = run->microbatch,
                              .pass = kind == SF_KIND_ACT ? SF_PASS_FWD : SF_PASS_BWD,
                              .kind = (uint8_t)kind,
                              .call = 0,
                              .subject = sf_catalog_module(run->catalog, cls, layer)};
}

static inline void finish_act(struct run *run, enum sf_module_class cls, int32_t layer, real *values, int64_t cols) {
  finish(run, act_id(run, cls, layer, SF_KIND_ACT), values, run->tokens, cols, run->format);
}

static inline void finish_act_grad(struct run *run, enum sf_module_class cls, int32_t layer, real *values, int64_t cols) {
  finish(run, act_id(run, cls, layer, SF_KIND_ACT_GRAD), values, run->tokens, cols, run->format);
}

static inline bool is_trained(const struct run *run, int32_t param) { return param >= 0 && !run->catalog->params[param].frozen; }

/* run->wgrad holds the microbatch's gradient of a trained parameter: traced, then added to its main gradient. */
static inline void finish_wgrad(struct run *run, int32_t param, uint8_t call) {
  const struct sf_shape shape = run->catalog->params[param].shape;
  const struct sf_trace_id id = {
      .step = run->step, .microbatch = run->microbatch, .pass = SF_PASS_BWD, .kind = SF_KIND_WGRAD, .call = call, .subject = param};
  finish(run, id, run->wgrad, shape.rows, shape.cols, SF_F32);
  real *restrict sum = run->params[param].main_grad;
  const real *restrict term = run->wgrad;
  for (int64_t i = 0; i < shape.rows * shape.cols; i++) sum[i] += term[i];
  /* The running sum is stored too. The first term of a step is added to zero, which does not round. */
  if (run->microbatch > 0 || call > 0) inner_perturb(inner_of(run, id, 0), 0, sum, shape.rows * shape.cols);
}

/* --- products and sums ------------------------------------------------------------------------------------------ */

/* format: what the parts are stored in. */
static inline struct sf_split next_split(struct run *run, int64_t size, enum sf_dtype format) {
  const uint64_t number = run->sum_count++;
  if (run->options->perturb != SF_PERTURB_SPLIT) return sf_split_whole(size);
  return sf_split_shuffled(run->order, run->options->draw, number, size, format != SF_F32);
}

/* out [count x cols] = the chosen rows of x. */
static inline void gather_rows(real *restrict out, const real *restrict x, int64_t ld, const int32_t *chosen, int64_t count, int64_t cols) {
  for (int64_t i = 0; i < count; i++)
    for (int64_t j = 0; j < cols; j++) out[i * cols + j] = x[chosen[i] * ld + j];
}

/* out [rows x count] = the chosen columns of x. */
static inline void gather_cols(real *restrict out, const real *restrict x, int64_t ld, const int32_t *chosen, int64_t count, int64_t rows) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < count; j++) out[i * count + j] = x[i * ld + chosen[j]];
}

/* c [m x n] += part, both rounded to the format, the sum too. */
static inline void add_part(real *c, int64_t ldc, real *part, int64_t m, int64_t n, enum sf_dtype format) {
  round_to(part, m * n, format);
  for (int64_t i = 0; i < m; i++) {
    real *restrict row = c + i * ldc;
    const real *restrict add = part + i * n;
    round_to(row, n, format);
    for (int64_t j = 0; j < n; j++) row[j] += add[j];
    round_to(row, n, format);
  }
}

/* c [m x n] = op(a) op(b) over the chosen indices of the contraction. */
static inline void multiply_part(struct run *run, bool trans_a, bool trans_b, int64_t m, int64_t n, const int32_t *chosen, int64_t count,
                                 const real *a, int64_t lda, const real *b, int64_t ldb, real *c, int64_t ldc) {
  if (trans_a)
    gather_rows(run->part_a, a, lda, chosen, count, m);
  else
    gather_cols(run->part_a, a, lda, chosen, count, m);
  if (trans_b)
    gather_cols(run->part_b, b, ldb, chosen, count, n);
  else
    gather_rows(run->part_b, b, ldb, chosen, count, n);
  run->options->gemm->REAL_GEMM(trans_a, trans_b, m, n, count, run->part_a, trans_a ? m : count, run->part_b, trans_b ? count : n, c, ldc);
}

static inline real slice_squares(const real *x, int64_t stride, int64_t count) {
  real sum = 0;
  for (int64_t i = 0; i < count; i++) sum += x[i * stride] * x[i * stride];
  return sum;
}

/* Brings the index with the largest terms to the front: whatever is added later is rounded at their size, and small terms are lost one by
 * one. Or to the back: small terms are summed by themselves. Somewhere in between, a random order shows less than a layout may have. */
static inline void largest_to_an_end(int32_t *order, bool front, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const real *a,
                                     int64_t lda, const real *b, int64_t ldb) {
  int64_t largest = 0;
  real best = -1;
  for (int64_t i = 0; i < k; i++) {
    const int64_t p = order[i];
    const real size = (trans_a ? slice_squares(a + p * lda, 1, m) : slice_squares(a + p, lda, m)) *
                      (trans_b ? slice_squares(b + p, ldb, n) : slice_squares(b + p * ldb, 1, n));
    if (size > best) best = size, largest = i;
  }
  const int64_t end = front ? 0 : k - 1;
  const int32_t held = order[end];
  order[end] = order[largest];
  order[largest] = held;
}

/* c [m x n] = op(a) op(b). format: what the parts of a split product are stored in; an unsplit product is not rounded. */
static inline void multiply(struct run *run, enum sf_dtype format, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k,
                            const real *a, int64_t lda, const real *b, int64_t ldb, real *c, int64_t ldc) {
  const struct sf_split split = next_split(run, k, format);
  if (split.order == NULL) {
    run->options->gemm->REAL_GEMM(trans_a, trans_b, m, n, k, a, lda, b, ldb, c, ldc);
    return;
  }
  if (split.count == 1) largest_to_an_end(run->order, split.front, trans_a, trans_b, m, n, k, a, lda, b, ldb);
  for (int32_t p = 0; p < split.count; p++) {
    const int32_t *chosen = split.order + split.cut[p];
    const int64_t count = split.cut[p + 1] - split.cut[p];
    multiply_part(run, trans_a, trans_b, m, n, chosen, count, a, lda, b, ldb, p == 0 ? c : run->part, p == 0 ? ldc : n);
    if (p > 0) add_part(c, ldc, run->part, m, n, format);
  }
}

/* out [cols] = sum over rows of x [rows x cols], in order; split like a weight gradient. */
static inline void sum_rows(struct run *run, real *restrict out, const real *x, int64_t rows, int64_t cols) {
  const struct sf_split split = next_split(run, rows, SF_F32);
  for (int64_t j = 0; j < cols; j++) out[j] = 0;
  for (int32_t p = 0; p < split.count; p++) {
    real *restrict sum = p == 0 ? out : run->part;
    if (p > 0)
      for (int64_t j = 0; j < cols; j++) sum[j] = 0;
    for (int64_t i = split.cut[p]; i < split.cut[p + 1]; i++) {
      const real *restrict row = x + (split.order != NULL ? split.order[i] : i) * cols;
      for (int64_t j = 0; j < cols; j++) sum[j] += row[j];
    }
    if (p > 0)
      for (int64_t j = 0; j < cols; j++) out[j] += sum[j];
  }
}

/* Sums over a row, in double whatever the build, in LANES interleaved partial sums: many small terms beside a large one (the tail of a
 * nearly one-hot softmax) would be lost in fp32, one by one and all in the same direction. E3 rounds the results (inner_number). */
enum { LANES = 8 };
static inline real add_lanes(const double *lane) {
  double sum = 0;
  for (int l = 0; l < LANES; l++) sum += lane[l];
  return (real)sum;
}

static inline real row_sum(const real *x, int64_t count) {
  double lane[LANES] = {0};
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES)
    for (int l = 0; l < LANES; l++) lane[l] += (double)x[i + l];
  for (; i < count; i++) lane[i % LANES] += (double)x[i];
  return add_lanes(lane);
}

static inline real row_dot(const real *x, const real *y, int64_t count) {
  double lane[LANES] = {0};
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES)
    for (int l = 0; l < LANES; l++) lane[l] += (double)x[i + l] * (double)y[i + l];
  for (; i < count; i++) lane[i % LANES] += (double)x[i] * (double)y[i];
  return add_lanes(lane);
}

static inline real row_max(const real *x, int64_t count) {
  real best = x[0];
  for (int64_t i = 1; i < count; i++) best = x[i] > best ? x[i] : best;
  return best;
}

#endif
