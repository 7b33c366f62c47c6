/* libshardfuzz.so: the generator of consistent tensors (harness/tensor/consistent.h) for programs in other languages, with plain types
 * only.
 *
 * Calls may come from any thread. A text that is returned is a constant, one line that says what is wrong with the arguments; NULL means
 * done. */
#ifndef SF_LIBRARY_LIBRARY_H
#define SF_LIBRARY_LIBRARY_H

#include <stdint.h>

#define SF_LIBRARY_API __attribute__((visibility("default")))

enum { SF_LIBRARY_VERSION = 1, SF_LIBRARY_DIMS_MAX = 8 };
SF_LIBRARY_API int32_t sf_library_version(void); /* SF_LIBRARY_VERSION of the library that is loaded */

/* One logical tensor's values: struct sf_fill without the exact and shifted ones. */
struct sf_library_fill {
  uint64_t key;        /* sf_library_key */
  int32_t dist;        /* enum sf_value_dist: 0 normal, 1 uniform, 2 heavy, 3 outliers, 4 offset, 5 sparse */
  int32_t dtype;       /* enum sf_dtype: grid that values are rounded to; 0 fp32, 1 bf16, 2 fp16, 4 fp8_e4m3, 5 fp8_e5m2 */
  float scale, offset; /* value = round(offset + round(scale * draw)) */
};

/* What a rank holds of a logical tensor, as in targets/trace_format.md: for each dimension runs of indices, in local order. */
struct sf_library_box {
  int32_t dim_count;       /* 0..SF_LIBRARY_DIMS_MAX; a tensor of no dimension has one element */
  const int64_t *shape;    /* [dim_count] of the logical tensor */
  const int64_t *run_counts; /* [dim_count] */
  const int64_t *runs;     /* start and length of each run, dimension after dimension */
};

/* Key of the tensor `name` (UTF-8) of a case; salt tells uses apart. */
SF_LIBRARY_API uint64_t sf_library_key(int64_t seed, const char *name, uint64_t salt);
/* Elements first .. first + count - 1 of the logical tensor in row-major order. */
SF_LIBRARY_API const char *sf_library_fill_range(float *out, const struct sf_library_fill *fill, int64_t first, int64_t count);
/* Elements of the box in local row-major order; out holds as many as the product of each dimension's run lengths. */
SF_LIBRARY_API const char *sf_library_fill_box(float *out, const struct sf_library_fill *fill, const struct sf_library_box *box);

#endif
