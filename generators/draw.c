#include "generators/draw.h"

#include "harness/base/assert.h"

#include <string.h>

void sf_draw_from_pcg(struct sf_draw *draw, uint64_t seed, uint64_t index) {
  memset(draw, 0, sizeof *draw);
  draw->pcg = sf_pcg_create(seed, index);
}

void sf_draw_from_bytes(struct sf_draw *draw, const void *bytes, size_t byte_count) {
  memset(draw, 0, sizeof *draw);
  draw->bytes = bytes != NULL ? bytes : (const unsigned char *)"";
  draw->byte_count = bytes != NULL ? byte_count : 0;
}

/* Bytes of a choice out of bound. */
static size_t bytes_of(uint64_t bound) { return bound <= 256 ? 1 : bound <= 65536 ? 2 : 8; }

size_t sf_draw_to_bytes(unsigned char *bytes, uint64_t bound, uint64_t value) {
  const size_t count = bytes_of(bound);
  SF_ASSERT(value < bound);
  for (size_t k = 0; k < count; k++) bytes[k] = (unsigned char)(value >> (8 * k));
  return count;
}

static uint64_t from_bytes(struct sf_draw *draw, uint64_t bound) {
  const size_t taken = bytes_of(bound);
  uint64_t value = 0;
  for (size_t k = 0; k < taken; k++)
    if (draw->byte_at < draw->byte_count) value |= (uint64_t)draw->bytes[draw->byte_at++] << (8 * k);
  return value % bound;
}

static uint64_t from_weights(struct sf_pcg *pcg, uint64_t bound, const uint32_t *weights) {
  uint64_t total = 0, at = 0;
  for (uint64_t i = 0; weights != NULL && i < bound; i++) total += weights[i];
  if (total == 0) return sf_pcg_below(pcg, bound);
  uint64_t left = sf_pcg_below(pcg, total);
  while (left >= weights[at]) left -= weights[at++];
  return at;
}

uint64_t sf_draw_choice(struct sf_draw *draw, uint64_t bound, const uint32_t *weights) {
  SF_ASSERT(bound > 0);
  return draw->bytes != NULL ? from_bytes(draw, bound) : from_weights(&draw->pcg, bound, weights);
}

uint64_t sf_draw_number(struct sf_draw *draw, uint64_t bound, uint64_t likely, uint32_t zero_percent) {
  if (draw->bytes != NULL) return from_bytes(draw, bound);
  const bool zero = sf_pcg_below(&draw->pcg, 100) < zero_percent;
  const uint64_t value = sf_pcg_below(&draw->pcg, likely < bound ? likely : bound);
  return zero ? 0 : value;
}
