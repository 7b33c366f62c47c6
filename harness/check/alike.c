#include "harness/check/alike.h"

#include "harness/base/alloc.h"
#include "harness/check/kernel.h"

#include <string.h>

enum sf_status sf_alike_create(struct sf_alike *out, int32_t count) {
  *out = (struct sf_alike){
      .count = count, .first = sf_alloc((size_t)count * sizeof *out->first), .before = sf_alloc((size_t)count * sizeof *out->before)};
  if (out->first && out->before) return SF_OK; /* zeroed: run 0 is everybody's first */
  sf_alike_destroy(out);
  return SF_ENOMEM;
}

void sf_alike_destroy(struct sf_alike *alike) {
  sf_free(alike->first);
  sf_free(alike->before);
  *alike = (struct sf_alike){0};
}

static bool same(const struct sf_alike_block *a, const struct sf_alike_block *b, int64_t count, double *const *wide) {
  if (a->dtype == b->dtype) return memcmp(a->data, b->data, (size_t)count * sf_dtype_wire_bytes(a->dtype)) == 0;
  sf_widen(wide[0], a->data, count, a->dtype);
  sf_widen(wide[1], b->data, count, b->dtype);
  return memcmp(wide[0], wide[1], (size_t)count * sizeof **wide) == 0;
}

void sf_alike_compare(struct sf_alike *alike, const struct sf_alike_block *blocks, int64_t count, double *const *wide) {
  int32_t *first = alike->first;
  memcpy(alike->before, first, (size_t)alike->count * sizeof *first);
  for (int32_t run = 1; run < alike->count; run++) {
    const int32_t before = alike->before[run];
    if (before == run || same(&blocks[run], &blocks[before], count, wide)) continue;
    int32_t other = before + 1; /* one that has just left the same first may still be alike */
    while (other < run && !(first[other] == other && alike->before[other] == before && same(&blocks[run], &blocks[other], count, wide)))
      other++;
    first[run] = other;
  }
}
