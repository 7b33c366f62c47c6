/* Where the choices of a case come from: a generator of random numbers, or bytes that somebody else chose. */
#ifndef SF_GENERATORS_DRAW_H
#define SF_GENERATORS_DRAW_H

#include "harness/base/pcg.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sf_draw {
  struct sf_pcg pcg;
  const unsigned char *bytes; /* borrowed; NULL: choices come from pcg */
  size_t byte_count, byte_at;
};

/* Case `index` of the campaign `seed`. */
void sf_draw_from_pcg(struct sf_draw *draw, uint64_t seed, uint64_t index);
/* One byte a choice, two above 256 values, eight above 65536; zeros past the end. Weights are not followed: libFuzzer has its own. */
void sf_draw_from_bytes(struct sf_draw *draw, const void *bytes, size_t byte_count);

/* Writes the bytes that make the choice `value` out of `bound`, and returns how many: at most 8. */
size_t sf_draw_to_bytes(unsigned char *bytes, uint64_t bound, uint64_t value);

/* A choice out of 0..bound-1, simplest first. weights: `bound` relative frequencies that a random source follows (NULL, or all
 * zero: uniform). bound > 0. */
uint64_t sf_draw_choice(struct sf_draw *draw, uint64_t bound, const uint32_t *weights);
/* A number below bound for which only the random source is limited: 0 in `zero_percent` of the draws, else uniform below `likely`. */
uint64_t sf_draw_number(struct sf_draw *draw, uint64_t bound, uint64_t likely, uint32_t zero_percent);

#endif
