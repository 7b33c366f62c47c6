/* Matrices in memory, as the layers multiply them. Row-major, with ld elements from one row to the next. */
#ifndef SF_TARGETS_MATRIX_H
#define SF_TARGETS_MATRIX_H

#include "harness/device/device.h"

/* rows x cols as the product takes it; transposed: the memory holds cols x rows. */
struct sf_matrix {
  const float *at;
  int64_t ld, rows, cols;
  bool transposed;
};

/* The matrix that lies there. */
static inline struct sf_matrix sf_matrix(const float *at, int64_t ld, int64_t rows, int64_t cols) {
  return (struct sf_matrix){at, ld, rows, cols, false};
}

/* The transpose of the matrix `rows x cols` that lies there. */
static inline struct sf_matrix sf_transposed(const float *at, int64_t ld, int64_t rows, int64_t cols) {
  return (struct sf_matrix){at, ld, cols, rows, true};
}

/* c = alpha a b, or with `accumulate` c + alpha a b; summed in fp32, rounded to `store`. c: rows of a x columns of b. */
static inline void sf_multiply_into(struct sf_device *dev, float *c, int64_t ldc, struct sf_matrix a, struct sf_matrix b, float alpha,
                                    bool accumulate, enum sf_dtype store) {
  const struct sf_gemm gemm = {a.transposed, b.transposed, a.rows, b.cols, a.cols, a.at, a.ld, b.at, b.ld, c, ldc, alpha, accumulate};
  dev->ops->gemm(dev, &gemm, store);
}

/* c = alpha a b, rounded to `store`. */
static inline void sf_multiply(struct sf_device *dev, float *c, int64_t ldc, struct sf_matrix a, struct sf_matrix b, float alpha,
                               enum sf_dtype store) {
  sf_multiply_into(dev, c, ldc, a, b, alpha, false, store);
}

/* to [rows x cols] = from; each has its own leading dimension. */
static inline void sf_copy_columns(float *to, int64_t ld_to, const float *from, int64_t ld_from, int64_t rows, int64_t cols) {
  for (int64_t row = 0; row < rows; row++) memcpy(to + row * ld_to, from + row * ld_from, (size_t)cols * sizeof *to);
}

#endif
