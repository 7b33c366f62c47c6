/* The inner loops: arrays of any type of a trace file, as they lie in it. */
#ifndef SF_CHECK_KERNEL_H
#define SF_CHECK_KERNEL_H

#include "harness/spec/dtype.h"

/* Sum of (c - x)^2. Accumulates in fp64; differences of 32 bits and less are formed in fp32 (error 2^-24 of each). NaN or infinite when
 * some value is, and perhaps when a difference leaves fp32's range. */
double sf_distance_squares(const void *c, const void *x, int64_t count, enum sf_dtype dtype);
struct sf_apart {
  double squares, along;
};
/* Sum of (c - x)^2, as sf_distance_squares, and sum of (c - x) x. */
struct sf_apart sf_apart(const void *c, const void *x, int64_t count, enum sf_dtype dtype);
/* Sum of x^2 in fp64. NaN or infinite when some value is. */
double sf_squares(const void *x, int64_t count, enum sf_dtype dtype);
/* Each number as a double, exactly. */
void sf_widen(double *out, const void *in, int64_t count, enum sf_dtype dtype);

#endif
