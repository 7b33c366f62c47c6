#include "oracles/ops/judge.h"

#include <string.h>

struct grid {
  int bits, exponent_min;
  double largest;
  bool saturates;
};
static const struct grid grids[SF_DTYPE_COUNT] = {
    [SF_F32] = {24, -126, 0x1.fffffep127, false}, [SF_BF16] = {8, -126, 0x1.fep127, false}, [SF_F16] = {11, -14, 65504, false},
    [SF_F64] = {53, -1022, 0x1.fffffffffffffp1023, false}, [SF_F8E4M3] = {4, -6, 448, true}, [SF_F8E5M2] = {3, -14, 57344, true}};

/* 2^exponent of a normal number. */
static double power(int exponent) {
  const uint64_t bits = (uint64_t)(1023 + exponent) << 52;
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* The distance of the format's numbers around x. */
static double spacing(double x, const struct grid *g) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  const int exponent = (int)(bits >> 52 & 0x7ff) - 1023;
  const int at = exponent < g->exponent_min ? g->exponent_min : exponent;
  return at - g->bits + 1 < -1022 ? 0x1p-1074 : power(at - g->bits + 1);
}

double sf_op_stored(double x, enum sf_dtype dtype) {
  if (dtype == SF_F64) return x;
  if (dtype == SF_F32) return (double)(float)x;
  const struct grid *g = &grids[dtype];
  if (isnan(x)) return x;
  if (isinf(x)) return g->saturates ? copysign(g->largest, x) : x;
  const double quantum = spacing(x, g), rounded = rint(x / quantum) * quantum;
  if (fabs(rounded) <= g->largest) return copysign(rounded, x);
  return copysign(g->saturates ? g->largest : INFINITY, x);
}

bool sf_op_element_right(double got, struct sf_num want, enum sf_dtype dtype, bool bits) {
  if (want.e > 0 && isinf(want.e)) return true;
  if (isnan(want.v)) return isnan(got);
  if (bits && got == 0 && want.v == 0 && want.e == 0) return signbit(got) == signbit(want.v);
  if ((dtype == SF_F32 || dtype == SF_F64) && fabs(got - want.v) <= want.e) return true;
  const double low = sf_op_stored(want.v - want.e, dtype), high = sf_op_stored(want.v + want.e, dtype);
  return got >= low && got <= high && (dtype == SF_F64 || sf_op_stored(got, dtype) == got);
}

int64_t sf_op_first_wrong(const struct sf_op_result *result, int64_t *judged) {
  const int64_t count = result->rows * result->cols;
  int64_t known = 0;
  for (int64_t i = 0; i < count; i++) {
    known += result->want[i].e < INFINITY;
    if (!sf_op_element_right(result->got[i], result->want[i], result->dtype, result->bits)) return i;
  }
  *judged += known;
  return -1;
}

/* Adds the squares of errors and of values of one row; counts wrong elements. */
static void measure_row(struct sf_op_error *out, const struct sf_op_result *r, int64_t row, double *error, double *size) {
  int64_t wrong = 0;
  for (int64_t i = row * r->cols; i < (row + 1) * r->cols; i++) {
    if (!(r->want[i].e < INFINITY)) continue;
    wrong += !sf_op_element_right(r->got[i], r->want[i], r->dtype, r->bits);
    const double distance = fabs(r->got[i] - r->want[i].v);
    if (!isfinite(distance)) continue;
    const double ulps = distance / spacing(r->want[i].v, &grids[r->dtype]);
    *error += distance * distance;
    *size += r->want[i].v * r->want[i].v;
    if (ulps > out->ulps || out->worst < 0) out->ulps = ulps, out->worst = i;
  }
  out->wrong += wrong;
  out->wrong_rows += wrong > 0;
}

struct sf_op_error sf_op_measure(const struct sf_op_result *result) {
  struct sf_op_error out = {.row = -1, .worst = -1};
  double error = 0, size = 0;
  for (int64_t r = 0; r < result->rows; r++) {
    double row_error = 0, row_size = 0;
    measure_row(&out, result, r, &row_error, &row_size);
    const double relative = row_error > 0 ? sqrt(row_error / row_size) : 0;
    if (relative > out.row_relative || out.row < 0) out.row_relative = relative, out.row = r;
    error += row_error;
    size += row_size;
  }
  out.relative = error > 0 ? sqrt(error / size) : 0;
  return out;
}
