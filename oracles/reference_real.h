/* The number type of a build of the reference: double with SF_REFERENCE_DOUBLE, else float. */
#ifndef SF_ORACLES_REFERENCE_REAL_H
#define SF_ORACLES_REFERENCE_REAL_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef SF_REFERENCE_DOUBLE
typedef double real;
typedef uint64_t real_word;
#define REAL_GEMM dgemm
#define real_exp exp
#define real_erfc erfc
#define real_log log
#define real_sqrt sqrt
#define SF_REFERENCE_RUN sf_reference_run_f64
#else
typedef float real;
typedef uint32_t real_word;
#define REAL_GEMM sgemm
#define real_exp expf
#define real_erfc erfcf
#define real_log logf
#define real_sqrt sqrtf
#define SF_REFERENCE_RUN sf_reference_run_f32
#endif

static inline uint64_t real_bits(real value) {
  real_word word;
  memcpy(&word, &value, sizeof word);
  return word;
}

#endif
