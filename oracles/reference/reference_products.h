/* Template: matrix products, split ones of the reruns among them, and sums over rows. */
#ifndef SF_ORACLES_REFERENCE_PRODUCTS_H
#define SF_ORACLES_REFERENCE_PRODUCTS_H

#include "oracles/reference/reference_core.h"

#include <string.h>

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

/* c [m x n] = op(a) op(b); false: whoever gave the table has nothing faster for it. */
static inline bool multiply_faster(const struct run *run, bool in_order, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k,
                                   const real *a, int64_t lda, const real *b, int64_t ldb, real *c, int64_t ldc) {
  const struct sf_gemm_table *gemm = run->options->gemm;
  const struct sf_product product = {sizeof(real) == sizeof(double), trans_a, trans_b, in_order, m, n, k, a, lda, b, ldb, c, ldc};
  return gemm->faster != NULL && m > 0 && n > 0 && k > 0 && gemm->faster(gemm->ctx, &product);
}

static inline void multiply_whole(const struct run *run, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const real *a,
                                  int64_t lda, const real *b, int64_t ldb, real *c, int64_t ldc) {
  if (multiply_faster(run, false, trans_a, trans_b, m, n, k, a, lda, b, ldb, c, ldc)) return;
  run->options->gemm->REAL_GEMM(trans_a, trans_b, m, n, k, a, lda, b, ldb, c, ldc);
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
  multiply_whole(run, trans_a, trans_b, m, n, count, run->part_a, trans_a ? m : count, run->part_b, trans_b ? count : n, c, ldc);
}

enum { CHAIN_COLUMNS = 64 }; /* sums of a row that are added to by turns, in registers */

/* c [m x width] = a panel, one term after the other; a [m x k], panel [k x width]. */
static inline void chain_panel(real *c, int64_t ldc, const real *restrict a, const real *restrict panel, int64_t m, int64_t k,
                               int64_t width) {
  for (int64_t i = 0; i < m; i++) {
    real sum[CHAIN_COLUMNS] = {0};
    if (width == CHAIN_COLUMNS) {
      for (int64_t p = 0; p < k; p++)
        for (int64_t j = 0; j < CHAIN_COLUMNS; j++) sum[j] += a[i * k + p] * panel[p * CHAIN_COLUMNS + j];
    } else {
      for (int64_t p = 0; p < k; p++)
        for (int64_t j = 0; j < width; j++) sum[j] += a[i * k + p] * panel[p * width + j];
    }
    memcpy(c + i * ldc, sum, (size_t)width * sizeof *c);
  }
}

/* The same, one term after the other onto what is there. */
static inline void multiply_in_order(struct run *run, bool trans_a, bool trans_b, int64_t m, int64_t n, const int32_t *order, int64_t k,
                                     const real *a, int64_t lda, const real *b, int64_t ldb, real *c, int64_t ldc) {
  for (int64_t i = 0; i < m; i++)
    for (int64_t p = 0; p < k; p++) run->part_a[i * k + p] = trans_a ? a[order[p] * lda + i] : a[i * lda + order[p]];
  for (int64_t p = 0; p < k; p++)
    for (int64_t j = 0; j < n; j++) run->part_b[p * n + j] = trans_b ? b[j * ldb + order[p]] : b[order[p] * ldb + j];
  if (multiply_faster(run, true, false, false, m, n, k, run->part_a, k, run->part_b, n, c, ldc)) return;
  for (int64_t first = 0; first < n; first += CHAIN_COLUMNS) {
    const int64_t width = n - first < CHAIN_COLUMNS ? n - first : CHAIN_COLUMNS;
    for (int64_t p = 0; p < k; p++) memcpy(run->part + p * width, run->part_b + p * n + first, (size_t)width * sizeof(real));
    chain_panel(c + first, ldc, run->part_a, run->part, m, k, width);
  }
}

static inline real slice_squares(const real *x, int64_t stride, int64_t count) {
  real sum = 0;
  for (int64_t i = 0; i < count; i++) sum += x[i * stride] * x[i * stride];
  return sum;
}

static inline void swap_terms(int32_t *order, real *sizes, int64_t i, int64_t j) {
  const int32_t index = order[i];
  const real size = sizes[i];
  order[i] = order[j], sizes[i] = sizes[j];
  order[j] = index, sizes[j] = size;
}

/* Moves indices with large terms, those above the mean, to the ends of a shuffled sum. All to the front: whatever is added after them is
 * rounded at their size, and small terms are lost one by one. All to the back: small terms are summed by themselves. To either end: large
 * terms that cancel in the end stand far apart. In between, a random order shows less than a layout may have. sizes: room for k. */
static inline void large_to_ends(int32_t *order, real *sizes, const struct sf_split *split, int64_t k) {
  real total = 0;
  for (int64_t i = 0; i < k; i++) total += sizes[i];
  int64_t front = 0, back = k - 1;
  for (int64_t i = 0; i < k; i++) {
    const bool to_front =
        split->large == SF_LARGE_FRONT || (split->large == SF_LARGE_EITHER && sf_mix64(split->key + (uint64_t)order[i]) % 2 == 0);
    if (to_front && sizes[i] * (real)k > total) swap_terms(order, sizes, i, front++);
  }
  for (int64_t i = k - 1; i >= front; i--)
    if (sizes[i] * (real)k > total) swap_terms(order, sizes, i, back--);
}

/* sizes [k], of the terms of a product in the given order: products of the slices' squares. */
static inline void term_sizes(real *sizes, const int32_t *order, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const real *a,
                              int64_t lda, const real *b, int64_t ldb) {
  for (int64_t i = 0; i < k; i++) {
    const int64_t p = order[i];
    sizes[i] = (trans_a ? slice_squares(a + p * lda, 1, m) : slice_squares(a + p, lda, m)) *
               (trans_b ? slice_squares(b + p, ldb, n) : slice_squares(b + p * ldb, 1, n));
  }
}

static inline void scale_rows(real *c, int64_t ldc, int64_t m, int64_t n, real unit) {
  if (unit == 1) return;
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) c[i * ldc + j] *= unit;
}

/* E3: the terms of a sum, each moved as an fp32 number is. Where they cancel, what is rounded on the way is as large as they are and not as
 * the result; E5 mostly does not show it where there are few of them or their grid is coarse, so that every order of them rounds alike. */
static inline struct inner terms_of(const struct run *run) {
  const struct sf_trace_id none = {0};
  return inner_of(run, none, TERMS_PART + run->sum_count);
}

/* Moves all terms of a product by moving the second factor's numbers, so that the terms of a row's columns, which softmax and norms
 * compare, move apart. b: as it is stored, [rows x cols]; becomes a copy. */
static inline void move_terms(struct run *run, const real **b, int64_t *ldb, int64_t rows, int64_t cols) {
  for (int64_t i = 0; i < rows; i++) memcpy(run->part_b + i * cols, *b + i * *ldb, (size_t)cols * sizeof(real));
  inner_perturb(terms_of(run), 0, run->part_b, rows * cols);
  *b = run->part_b, *ldb = cols;
}

/* c [m x n] = unit op(a) op(b). format: what the parts of a split product are stored in; an unsplit product is not rounded. */
static inline void multiply_units(struct run *run, enum sf_dtype format, real unit, bool trans_a, bool trans_b, int64_t m, int64_t n,
                                  int64_t k, const real *a, int64_t lda, const real *b, int64_t ldb, real *c, int64_t ldc) {
  const struct sf_split split = next_split(run, k, format);
  if (split.order == NULL) {
    if (format == SF_F32 && run->options->perturb == SF_PERTURB_STORED) move_terms(run, &b, &ldb, trans_b ? n : k, trans_b ? k : n);
    multiply_whole(run, trans_a, trans_b, m, n, k, a, lda, b, ldb, c, ldc);
    scale_rows(c, ldc, m, n, unit);
    return;
  }
  if (split.count == 1) {
    term_sizes(run->sizes, run->order, trans_a, trans_b, m, n, k, a, lda, b, ldb);
    large_to_ends(run->order, run->sizes, &split, k);
  }
  if (split.in_order) {
    multiply_in_order(run, trans_a, trans_b, m, n, split.order, k, a, lda, b, ldb, c, ldc);
    scale_rows(c, ldc, m, n, unit);
    return;
  }
  for (int32_t p = 0; p < split.count; p++) {
    const int32_t *chosen = split.order + split.cut[p];
    const int64_t count = split.cut[p + 1] - split.cut[p];
    multiply_part(run, trans_a, trans_b, m, n, chosen, count, a, lda, b, ldb, p == 0 ? c : run->part, p == 0 ? ldc : n);
    scale_rows(p == 0 ? c : run->part, p == 0 ? ldc : n, m, n, unit);
    if (p > 0) add_part(c, ldc, run->part, m, n, format);
  }
}

static inline void multiply(struct run *run, enum sf_dtype format, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k,
                            const real *a, int64_t lda, const real *b, int64_t ldb, real *c, int64_t ldc) {
  multiply_units(run, format, 1, trans_a, trans_b, m, n, k, a, lda, b, ldb, c, ldc);
}

static inline const real *moved_row(const struct run *run, struct inner terms, int64_t i, const real *row, int64_t cols) {
  memcpy(run->part_b, row, (size_t)cols * sizeof *row);
  inner_perturb(terms, i * cols, run->part_b, cols);
  return run->part_b;
}

/* out [cols] = sum over rows of x [rows x cols], in order; split like a weight gradient, large rows to the ends too. */
static inline void sum_rows(struct run *run, real *restrict out, const real *x, int64_t rows, int64_t cols) {
  const struct sf_split split = next_split(run, rows, SF_F32);
  const struct inner terms = terms_of(run);
  if (split.order != NULL && split.count == 1) {
    for (int64_t i = 0; i < rows; i++) run->sizes[i] = slice_squares(x + run->order[i] * cols, 1, cols);
    large_to_ends(run->order, run->sizes, &split, rows);
  }
  for (int64_t j = 0; j < cols; j++) out[j] = 0;
  for (int32_t p = 0; p < split.count; p++) {
    real *restrict sum = p == 0 ? out : run->part;
    if (p > 0)
      for (int64_t j = 0; j < cols; j++) sum[j] = 0;
    for (int64_t i = split.cut[p]; i < split.cut[p + 1]; i++) {
      const real *row = x + (split.order != NULL ? split.order[i] : i) * cols;
      if (terms.on) row = moved_row(run, terms, i, row, cols);
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

/* Position of a token row in its document. */
static inline int64_t position_of(const struct run *run, int64_t t) {
  const int64_t b = run->c->train.microbatch_size, position = t / b;
  return run->documents == NULL ? position : position - run->documents[t % b * run->c->model.seq + position];
}

#endif
