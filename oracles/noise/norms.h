/* Sums of squares over float arrays, in double. */
#ifndef SF_ORACLES_NORMS_H
#define SF_ORACLES_NORMS_H

#include <stdint.h>

/* Sum of x[i]^2, and of (a[i] - b[i])^2.
 * Computes: the difference in fp32, squares and sums in double, in eight interleaved partial sums that are added in a fixed order: the
 * result does not depend on the CPU. Error: 2^-24 relative from the difference (none where a and b are within a factor of two), below 1e-15
 * count from the sum. Special: NaN and infinity give NaN or infinity; no overflow or underflow for finite floats whose difference is
 * finite. */
double sf_sum_squares(const float *x, int64_t count);
double sf_diff_squares(const float *a, const float *b, int64_t count);

/* out[r] = ||x_r|| or ||a_r - b_r|| for each row of contiguous rows x cols matrices; returns the norm of the whole. */
double sf_row_norms(double *out, const float *x, int64_t rows, int64_t cols);
double sf_row_diff_norms(double *out, const float *a, const float *b, int64_t rows, int64_t cols);

/* The larger of two; NaN when either is NaN, so that an unknown bound never passes. */
static inline double sf_larger(double a, double b) { return a >= b || a != a ? a : b; }

#endif
