/* Finds runs that have the same values in every tensor: a perturbed run that moved nothing, or the same run twice. */
#ifndef SF_CHECK_ALIKE_H
#define SF_CHECK_ALIKE_H

#include "harness/base/status.h"
#include "harness/spec/dtype.h"

struct sf_alike {
  int32_t count;
  int32_t *first, *before; /* by run: the lowest run that has been the same so far; the same as it was before the block at hand */
};

/* The same elements of one run. */
struct sf_alike_block {
  const void *data;
  enum sf_dtype dtype;
};

/* Takes all of `count` runs for the same until a block shows otherwise. SF_ENOMEM. */
enum sf_status sf_alike_create(struct sf_alike *out, int32_t count) SF_MUST_USE;
void sf_alike_destroy(struct sf_alike *alike); /* takes what is zeroed */
/* Compares a block of every run, bit for bit where types are the same, by value (in wide, two of `count` numbers) where they are not. */
void sf_alike_compare(struct sf_alike *alike, const struct sf_alike_block *blocks, int64_t count, double *const *wide);

#endif
