/* Eight lanes are written out as vectors: without fast-math a compiler may not reorder a sum by itself, and these loops see every element
 * of every traced tensor. */
#include "oracles/norms.h"

#include <math.h>
#include <string.h>

enum { LANES = 8 };
typedef float lanes_f32 __attribute__((vector_size(LANES * sizeof(float))));
typedef double lanes_f64 __attribute__((vector_size(LANES * sizeof(double))));

static double lanes_total(const lanes_f64 *lanes) {
  const lanes_f64 s = *lanes;
  return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

double sf_sum_squares(const float *x, int64_t count) {
  lanes_f64 sum = {0};
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES) {
    lanes_f32 part;
    memcpy(&part, x + i, sizeof part);
    const lanes_f64 wide = __builtin_convertvector(part, lanes_f64);
    sum += wide * wide;
  }
  double total = lanes_total(&sum);
  for (; i < count; i++) total += (double)x[i] * (double)x[i];
  return total;
}

double sf_diff_squares(const float *a, const float *b, int64_t count) {
  lanes_f64 sum = {0};
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES) {
    lanes_f32 left, right;
    memcpy(&left, a + i, sizeof left);
    memcpy(&right, b + i, sizeof right);
    const lanes_f64 wide = __builtin_convertvector(left - right, lanes_f64);
    sum += wide * wide;
  }
  double total = lanes_total(&sum);
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
