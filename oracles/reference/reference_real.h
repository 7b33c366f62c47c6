/* The number type of a build of the reference: double with SF_REFERENCE_DOUBLE, else float. */
#ifndef SF_ORACLES_REFERENCE_REAL_H
#define SF_ORACLES_REFERENCE_REAL_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* glibc has these for vectors too. In double what such versions are less exact by is nothing beside fp32's rounding. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#if __GLIBC_PREREQ(2, 35)
__attribute__((simd("notinbranch"))) double exp(double x);
__attribute__((simd("notinbranch"))) double erfc(double x);
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

static inline uint32_t real_bits(real value) {
  real_word word;
  memcpy(&word, &value, sizeof word);
  return (uint32_t)(word ^ (uint64_t)word >> 32);
}

#endif
