/* Choice streams: the recorded bounded integers from which a case is drawn, and the sources that they come from. */
#ifndef SF_GENERATORS_STREAM_H
#define SF_GENERATORS_STREAM_H

#include "harness/base/pcg.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* More than the codec ever draws: every case takes the same number of choices, so that a place in the stream always means the
 * same field, whatever the choices before it were. */
enum { SF_STREAM_MAX = 128, SF_STREAM_BYTES_MAX = 8 * SF_STREAM_MAX };

/* Choice i took values[i] out of 0..bounds[i]-1; 0 is the simplest. Beyond count all choices are 0. Plain data: copy by assignment. */
struct sf_stream {
  int32_t count;
  uint64_t values[SF_STREAM_MAX];
  uint64_t bounds[SF_STREAM_MAX];
  int32_t fields[SF_STREAM_MAX]; /* index into sf_case_fields; -1 for a choice that is no field (swarm) */
};

bool sf_stream_equal(const struct sf_stream *a, const struct sf_stream *b); /* same values; trailing zeros do not count */

/* Bytes that sf_draw_from_bytes reads back as this stream (seeds for libFuzzer). out holds SF_STREAM_BYTES_MAX; returns the size. */
size_t sf_stream_to_bytes(unsigned char *out, const struct sf_stream *stream);

enum sf_draw_source { SF_DRAW_PCG, SF_DRAW_BYTES, SF_DRAW_SAVED };

/* Where choices come from, and what was drawn so far. */
struct sf_draw {
  enum sf_draw_source source;
  struct sf_pcg pcg;
  const unsigned char *bytes; /* borrowed */
  size_t byte_count, byte_at;
  const struct sf_stream *saved; /* borrowed */
  struct sf_stream record;       /* every choice that was handed out */
};

/* Case `index` of the campaign `seed`. */
void sf_draw_from_pcg(struct sf_draw *draw, uint64_t seed, uint64_t index);
/* One byte a choice, two above 256 values, eight above 65536; zeros past the end. Weights are not followed: libFuzzer has its own. */
void sf_draw_from_bytes(struct sf_draw *draw, const void *bytes, size_t byte_count);
/* The saved values in turn, each at most bound - 1; zeros past the end. */
void sf_draw_from_stream(struct sf_draw *draw, const struct sf_stream *saved);

/* A choice out of 0..bound-1, simplest first. weights: `bound` relative frequencies that a random source follows (NULL, or all
 * zero: uniform). bound > 0. */
uint64_t sf_draw_choice(struct sf_draw *draw, int32_t field, uint64_t bound, const uint32_t *weights);
/* A number below bound for which only the random source is limited: 0 in `zero_percent` of the draws, else uniform below `likely`. */
uint64_t sf_draw_number(struct sf_draw *draw, int32_t field, uint64_t bound, uint64_t likely, uint32_t zero_percent);

#endif
