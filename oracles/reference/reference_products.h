/* Template: matrix products, split ones of the reruns among them, and sums over the rows of a matrix. */
#ifndef SF_ORACLES_REFERENCE_PRODUCTS_H
#define SF_ORACLES_REFERENCE_PRODUCTS_H

#include "oracles/reference/reference_core.h"

#include <string.h>

/* A factor of a product: rows x cols numbers as they are multiplied. turned: it is stored as cols x rows. ld: from one stored row on. */
struct matrix {
  const real *at;
  int64_t rows, cols, ld;
  bool turned;
};
/* rows x cols as it lies at `at`, and the transposed of what lies there: at holds cols rows of `rows` numbers. ld: between rows of at. */
static inline struct matrix straight(const real *at, int64_t rows, int64_t cols, int64_t ld) {
  return (struct matrix){at, rows, cols, ld, false};
}
static inline struct matrix turned(const real *at, int64_t rows, int64_t cols, int64_t ld) {
  return (struct matrix){at, rows, cols, ld, true};
}

/* format: what the parts are stored in. */
static inline struct sf_split next_split(struct noise *noise, int64_t size, enum sf_dtype format) {
  const uint64_t number = noise->sum_count++;
  if (noise->options->perturb != SF_PERTURB_SPLIT) return sf_split_whole(size);
  const enum sf_summing sums = format != SF_F32 ? SF_SUMS_IN_PARTS : noise->options->sums;
  return sf_split_shuffled(noise->order, sums, noise->options->draw, number, size);
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

/* c = a b, in fp32 or in double by the build. */
static inline struct sf_product product_of(real *c, int64_t ldc, struct matrix a, struct matrix b) {
  return (struct sf_product){.fp64 = sizeof(real) == sizeof(double),
                             .trans_a = a.turned,
                             .trans_b = b.turned,
                             .m = a.rows,
                             .n = b.cols,
                             .k = a.cols,
                             .a = a.at,
                             .lda = a.ld,
                             .b = b.at,
                             .ldb = b.ld,
                             .c = c,
                             .ldc = ldc};
}

/* False: whoever gave the table has nothing faster for it. */
static inline bool multiply_faster(const struct noise *noise, const struct sf_product *p) {
  const struct sf_gemm_table *gemm = noise->options->gemm;
  return gemm->faster != NULL && p->m > 0 && p->n > 0 && p->k > 0 && gemm->faster(gemm->ctx, p);
}

/* c = a b in one product, by the faster product where the caller has one. */
static inline void multiply_whole(const struct noise *noise, real *c, int64_t ldc, struct matrix a, struct matrix b) {
  const struct sf_product product = product_of(c, ldc, a, b);
  if (!multiply_faster(noise, &product)) noise->options->gemm->multiply(&product);
}

/* The matrix with the chosen columns alone, gathered in `room`. */
static inline struct matrix choose_cols(real *room, struct matrix from, const int32_t *chosen, int64_t count) {
  if (from.turned)
    gather_rows(room, from.at, from.ld, chosen, count, from.rows);
  else
    gather_cols(room, from.at, from.ld, chosen, count, from.rows);
  return (struct matrix){room, from.rows, count, from.turned ? from.rows : count, from.turned};
}
/* The same with the chosen rows. */
static inline struct matrix choose_rows(real *room, struct matrix from, const int32_t *chosen, int64_t count) {
  if (from.turned)
    gather_cols(room, from.at, from.ld, chosen, count, from.cols);
  else
    gather_rows(room, from.at, from.ld, chosen, count, from.cols);
  return (struct matrix){room, count, from.cols, from.turned ? count : from.cols, from.turned};
}

/* c = a b over the chosen indices of the contraction. */
static inline void multiply_part(struct noise *noise, real *c, int64_t ldc, struct matrix a, struct matrix b, const int32_t *chosen,
                                 int64_t count) {
  multiply_whole(noise, c, ldc, choose_cols(noise->part_a, a, chosen, count), choose_rows(noise->part_b, b, chosen, count));
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

/* The same, one term after the other in the given order. */
static inline void multiply_in_order(struct noise *noise, real *c, int64_t ldc, struct matrix a, struct matrix b, const int32_t *order) {
  const int64_t m = a.rows, n = b.cols, k = a.cols;
  for (int64_t i = 0; i < m; i++)
    for (int64_t p = 0; p < k; p++) noise->part_a[i * k + p] = a.turned ? a.at[order[p] * a.ld + i] : a.at[i * a.ld + order[p]];
  for (int64_t p = 0; p < k; p++)
    for (int64_t j = 0; j < n; j++) noise->part_b[p * n + j] = b.turned ? b.at[j * b.ld + order[p]] : b.at[order[p] * b.ld + j];
  struct sf_product product = product_of(c, ldc, straight(noise->part_a, m, k, k), straight(noise->part_b, k, n, n));
  product.in_order = true;
  if (multiply_faster(noise, &product)) return;
  for (int64_t first = 0; first < n; first += CHAIN_COLUMNS) {
    const int64_t width = n - first < CHAIN_COLUMNS ? n - first : CHAIN_COLUMNS;
    for (int64_t p = 0; p < k; p++) memcpy(noise->part + p * width, noise->part_b + p * n + first, (size_t)width * sizeof(real));
    chain_panel(c + first, ldc, noise->part_a, noise->part, m, k, width);
  }
}

/* Sum of squares of count numbers that are stride apart. */
static inline real slice_squares(const real *x, int64_t stride, int64_t count) {
  real sum = 0;
  for (int64_t i = 0; i < count; i++) sum += x[i * stride] * x[i * stride];
  return sum;
}

/* Exchanges two entries of both arrays. */
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

/* sizes [columns of a], of the terms of a product in the given order: products of the slices' squares. */
static inline void term_sizes(real *sizes, const int32_t *order, struct matrix a, struct matrix b) {
  for (int64_t i = 0; i < a.cols; i++) {
    const int64_t p = order[i];
    sizes[i] = (a.turned ? slice_squares(a.at + p * a.ld, 1, a.rows) : slice_squares(a.at + p, a.ld, a.rows)) *
               (b.turned ? slice_squares(b.at + p, b.ld, b.cols) : slice_squares(b.at + p * b.ld, 1, b.cols));
  }
}

/* c [m x n] *= unit. */
static inline void scale_rows(real *c, int64_t ldc, int64_t m, int64_t n, real unit) {
  if (unit == 1) return;
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) c[i * ldc + j] *= unit;
}

/* E3: the terms of a sum, each moved as an fp32 number is. Where they cancel, what is rounded on the way is as large as they are and not as
 * the result; E5 mostly does not show it where there are few of them or their grid is coarse, so that every order of them rounds alike. */
static inline struct inner terms_of(const struct noise *noise) {
  const struct sf_trace_id none = {0};
  return inner_in(noise, none, TERMS_PART + noise->sum_count);
}

/* Moves all terms of a product by moving the second factor's numbers, so that the terms of a row's columns, which softmax and norms
 * compare, move apart: b becomes a copy. */
static inline struct matrix move_terms(struct noise *noise, struct matrix b) {
  const int64_t rows = b.turned ? b.cols : b.rows, cols = b.turned ? b.rows : b.cols; /* as they are stored */
  for (int64_t i = 0; i < rows; i++) memcpy(noise->part_b + i * cols, b.at + i * b.ld, (size_t)cols * sizeof(real));
  inner_perturb(terms_of(noise), 0, noise->part_b, rows * cols);
  return (struct matrix){noise->part_b, b.rows, b.cols, cols, b.turned};
}

/* A copy of the matrix, in `room`, of absolute values. */
static inline struct matrix absolute(real *room, struct matrix from) {
  const int64_t rows = from.turned ? from.cols : from.rows, cols = from.turned ? from.rows : from.cols; /* as they are stored */
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++)
      room[i * cols + j] = from.at[i * from.ld + j] < 0 ? -from.at[i * from.ld + j] : from.at[i * from.ld + j];
  return (struct matrix){room, from.rows, from.cols, cols, from.turned};
}

/* c = unit a b. format: what the parts of a split product are stored in; an unsplit product is not rounded. */
static inline void multiply_units(struct noise *noise, enum sf_dtype format, real unit, real *c, int64_t ldc, struct matrix a,
                                  struct matrix b) {
  const int64_t m = a.rows, n = b.cols, k = a.cols;
  const struct sf_split split = next_split(noise, k, format);
  if (split.order == NULL) {
    if (noise->options->perturb == SF_PERTURB_SIZES) a = absolute(noise->part_a, a), b = absolute(noise->part_b, b);
    if (format == SF_F32 && moves_inner(noise->options)) b = move_terms(noise, b);
    multiply_whole(noise, c, ldc, a, b);
    scale_rows(c, ldc, m, n, unit);
    return;
  }
  if (split.count == 1) {
    term_sizes(noise->sizes, noise->order, a, b);
    large_to_ends(noise->order, noise->sizes, &split, k);
  }
  if (split.in_order) {
    multiply_in_order(noise, c, ldc, a, b, split.order);
    scale_rows(c, ldc, m, n, unit);
    return;
  }
  for (int32_t p = 0; p < split.count; p++) {
    real *sum = p == 0 ? c : noise->part;
    const int64_t ld = p == 0 ? ldc : n;
    multiply_part(noise, sum, ld, a, b, split.order + split.cut[p], split.cut[p + 1] - split.cut[p]);
    scale_rows(sum, ld, m, n, unit);
    if (p > 0) add_part(c, ldc, noise->part, m, n, format);
  }
}

/* multiply_units of factors that were not cast. */
static inline void multiply(struct noise *noise, enum sf_dtype format, real *c, int64_t ldc, struct matrix a, struct matrix b) {
  multiply_units(noise, format, 1, c, ldc, a, b);
}

/* A copy of row i, moved as inner_perturb moves it; valid until the next one. */
static inline const real *moved_row(const struct noise *noise, struct inner terms, int64_t i, const real *row, int64_t cols) {
  memcpy(noise->part_b, row, (size_t)cols * sizeof *row);
  inner_perturb(terms, i * cols, noise->part_b, cols);
  return noise->part_b;
}

/* out [cols] = sum over rows of x [rows x cols], in order; split like a weight gradient, large rows to the ends too. */
static inline void sum_rows(struct noise *noise, real *restrict out, const real *x, int64_t rows, int64_t cols) {
  const struct sf_split split = next_split(noise, rows, SF_F32);
  const struct inner terms = terms_of(noise);
  if (split.order != NULL && split.count == 1) {
    for (int64_t i = 0; i < rows; i++) noise->sizes[i] = slice_squares(x + noise->order[i] * cols, 1, cols);
    large_to_ends(noise->order, noise->sizes, &split, rows);
  }
  for (int64_t j = 0; j < cols; j++) out[j] = 0;
  for (int32_t p = 0; p < split.count; p++) {
    real *restrict sum = p == 0 ? out : noise->part;
    if (p > 0)
      for (int64_t j = 0; j < cols; j++) sum[j] = 0;
    for (int64_t i = split.cut[p]; i < split.cut[p + 1]; i++) {
      const real *row = x + (split.order != NULL ? split.order[i] : i) * cols;
      if (terms.on) row = moved_row(noise, terms, i, row, cols);
      for (int64_t j = 0; j < cols; j++) sum[j] += row[j];
    }
    if (p > 0)
      for (int64_t j = 0; j < cols; j++) out[j] += sum[j];
  }
}

#endif
