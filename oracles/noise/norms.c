/* Sums run in eight lanes, which are written out: without fast-math a compiler may not reorder a sum, and these loops read every element of
 * every traced tensor. Compilers turn the lanes into vectors of the machine's width. */
#include "oracles/noise/norms.h"

#include <math.h>

enum { LANES = 8 };

static double lanes_total(const double s[LANES]) { return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7])); }

double sf_sum_squares(const float *x, int64_t count) {
  double sum[LANES] = {0};
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES)
    for (int k = 0; k < LANES; k++) sum[k] += (double)x[i + k] * (double)x[i + k];
  double total = lanes_total(sum);
  for (; i < count; i++) total += (double)x[i] * (double)x[i];
  return total;
}

double sf_diff_squares(const float *a, const float *b, int64_t count) {
  double sum[LANES] = {0};
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES)
    for (int k = 0; k < LANES; k++) {
      const float difference = a[i + k] - b[i + k];
      sum[k] += (double)difference * (double)difference;
    }
  double total = lanes_total(sum);
  for (; i < count; i++) {
    const float difference = a[i] - b[i];
    total += (double)difference * (double)difference;
  }
  return total;
}

double sf_row_norms(double *out, const float *x, int64_t rows, int64_t cols) {
  double total = 0;
  for (int64_t r = 0; r < rows; r++) {
    const double squares = sf_sum_squares(x + r * cols, cols);
    total += squares;
    out[r] = sqrt(squares);
  }
  return sqrt(total);
}

double sf_row_diff_norms(double *out, const float *a, const float *b, int64_t rows, int64_t cols) {
  double total = 0;
  for (int64_t r = 0; r < rows; r++) {
    const double squares = sf_diff_squares(a + r * cols, b + r * cols, cols);
    total += squares;
    out[r] = sqrt(squares);
  }
  return sqrt(total);
}
