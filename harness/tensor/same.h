/* Promises of equal bits. NaNs are all the same: which of two an operation passes on, and with which sign, is its machine's choice. */
#ifndef SF_TENSOR_SAME_H
#define SF_TENSOR_SAME_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Elements that are not the same; *first is the first of them, or as it was. */
static inline int64_t sf_count_differing(const float *a, const float *b, int64_t count, int64_t *first) {
  int64_t differing = 0;
  if (memcmp(a, b, (size_t)count * sizeof *a) == 0) return 0;
  for (int64_t i = count - 1; i >= 0; i--)
    if (memcmp(a + i, b + i, sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i]))) differing++, *first = i;
  return differing;
}

#endif
