/* The number type of a build of the reference: double with SF_REFERENCE_DOUBLE, else float. */
#ifndef SF_ORACLES_REFERENCE_REAL_H
#define SF_ORACLES_REFERENCE_REAL_H

#include <math.h>

#ifdef SF_REFERENCE_DOUBLE
typedef double real;
#define REAL_GEMM dgemm
#define real_exp exp
#define real_erfc erfc
#define real_log log
#define real_sqrt sqrt
#define SF_REFERENCE_RUN sf_reference_run_f64
#else
typedef float real;
#define REAL_GEMM sgemm
#define real_exp expf
#define real_erfc erfcf
#define real_log logf
#define real_sqrt sqrtf
#define SF_REFERENCE_RUN sf_reference_run_f32
#endif

#endif
