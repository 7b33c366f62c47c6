#include "harness/check/kernel.h"

#include "harness/base/assert.h"

enum { BYTES = 256 };

/* fp8 by table: 256 values. */
struct f8_table { float value[BYTES]; };

static struct f8_table f8_table_of(enum sf_dtype dtype) {
  struct f8_table table;
  for (int i = 0; i < BYTES; i++) table.value[i] = sf_f8_value((uint8_t)i, dtype);
  return table;
}

/* Each loop is written out for its type, so that the compiler can vectorise it. */
#define DISTANCE(type, wide, convert)                                \
  do {                                                               \
    const type *left = c, *right = x;                                \
    double total = 0;                                                \
    _Pragma("omp simd reduction(+ : total)")                         \
    for (int64_t i = 0; i < count; i++) {                            \
      const wide d = convert(left[i]) - convert(right[i]);           \
      total += (double)d * (double)d;                                \
    }                                                                \
    return total;                                                    \
  } while (0)

#define APART(type, wide, convert)                                   \
  do {                                                               \
    const type *left = c, *right = x;                                \
    double squares = 0, along = 0;                                   \
    _Pragma("omp simd reduction(+ : squares, along)")                \
    for (int64_t i = 0; i < count; i++) {                            \
      const wide v = convert(right[i]), d = convert(left[i]) - v;    \
      squares += (double)d * (double)d;                              \
      along += (double)d * (double)v;                                \
    }                                                                \
    return (struct sf_apart){squares, along};                        \
  } while (0)

#define SQUARES(type, wide, convert)                                       \
  do {                                                               \
    const type *values = x;                                          \
    double total = 0;                                                \
    _Pragma("omp simd reduction(+ : total)")                         \
    for (int64_t i = 0; i < count; i++) {                            \
      const double v = (double)convert(values[i]);                   \
      total += v * v;                                                \
    }                                                                \
    return total;                                                    \
  } while (0)

#define WIDEN(type, wide, convert)                                         \
  do {                                                               \
    const type *values = in;                                         \
    for (int64_t i = 0; i < count; i++) out[i] = (double)convert(values[i]); \
    return;                                                          \
  } while (0)

#define SAME(v) (v)
#define BY_TABLE(v) (table.value[v])

/* The loop for a type: LOOP(type of a number, type of a difference, conversion). */
#define FOR_DTYPE(LOOP, dtype)                                       \
  switch (dtype) {                                                   \
  case SF_F32: LOOP(float, float, SAME);                             \
  case SF_BF16: LOOP(uint16_t, float, sf_bf16_value);                \
  case SF_F16: LOOP(uint16_t, float, sf_f16_value);                  \
  case SF_F64: LOOP(double, double, SAME);                           \
  default: {                                                         \
    SF_ASSERT(sf_dtype_is_f8(dtype));                                \
    const struct f8_table table = f8_table_of(dtype);                \
    LOOP(uint8_t, float, BY_TABLE);                                  \
  }                                                                  \
  }

double sf_distance_squares(const void *c, const void *x, int64_t count, enum sf_dtype dtype) { FOR_DTYPE(DISTANCE, dtype) }
struct sf_apart sf_apart(const void *c, const void *x, int64_t count, enum sf_dtype dtype) { FOR_DTYPE(APART, dtype) }
double sf_squares(const void *x, int64_t count, enum sf_dtype dtype) { FOR_DTYPE(SQUARES, dtype) }
void sf_widen(double *out, const void *in, int64_t count, enum sf_dtype dtype) { FOR_DTYPE(WIDEN, dtype) }
