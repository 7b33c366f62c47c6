/* The number type of a build of the reference: double with SF_REFERENCE_DOUBLE, else float. */
#ifndef SF_ORACLES_REFERENCE_REAL_H
#define SF_ORACLES_REFERENCE_REAL_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* glibc has exp and erfc for vectors too. In double they are less exact by nothing that counts beside fp32's rounding. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#if __GLIBC_PREREQ(2, 35)
__attribute__((simd("notinbranch"))) double exp(double x);  /* as in math.h */
__attribute__((simd("notinbranch"))) double erfc(double x); /* as in math.h */
#endif
#endif

#ifdef SF_REFERENCE_DOUBLE
typedef double real;
typedef uint64_t real_word;
#define real_exp exp
#define real_erfc erfc
#define real_log log
#define real_sqrt sqrt
#define SF_REFERENCE_RUN sf_reference_run_f64
#else
typedef float real;
typedef uint32_t real_word;
#define real_exp(x) ((float)exp((double)(x)))
#define real_erfc(x) ((float)erfc((double)(x)))
#define real_log logf
#define real_sqrt sqrtf
#define SF_REFERENCE_RUN sf_reference_run_f32
#endif

/* Equal numbers have equal bits; what noise_bits hashes. */
static inline uint32_t real_bits(real value) {
  real_word word;
  memcpy(&word, &value, sizeof word);
  return (uint32_t)(word ^ (uint64_t)word >> 32);
}

/* Sums over a row, in double whatever the build, in LANES interleaved partial sums: many small terms beside a large one (the tail of a
 * nearly one-hot softmax) would be lost in fp32, one by one and all in the same direction. E3 rounds the results (inner_number). */
enum { LANES = 8 };
/* In order, rounded once at the end. */
static inline real add_lanes(const double *lane) {
  double sum = 0;
  for (int l = 0; l < LANES; l++) sum += lane[l];
  return (real)sum;
}

/* Of count numbers. */
static inline real row_sum(const real *x, int64_t count) {
  double lane[LANES] = {0};
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES)
    for (int l = 0; l < LANES; l++) lane[l] += (double)x[i + l];
  for (; i < count; i++) lane[i % LANES] += (double)x[i];
  return add_lanes(lane);
}

/* Of two rows of count numbers. */
static inline real row_dot(const real *x, const real *y, int64_t count) {
  double lane[LANES] = {0};
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES)
    for (int l = 0; l < LANES; l++) lane[l] += (double)x[i + l] * (double)y[i + l];
  for (; i < count; i++) lane[i % LANES] += (double)x[i] * (double)y[i];
  return add_lanes(lane);
}

/* count > 0; a NaN behind the first place is passed over. */
static inline real row_max(const real *x, int64_t count) {
  real best = x[0];
  for (int64_t i = 1; i < count; i++) best = x[i] > best ? x[i] : best;
  return best;
}

#endif
