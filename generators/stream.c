#include "generators/stream.h"

#include "harness/base/assert.h"

#include <string.h>

bool sf_stream_equal(const struct sf_stream *a, const struct sf_stream *b) {
  const int32_t count = a->count > b->count ? a->count : b->count;
  for (int32_t i = 0; i < count; i++)
    if ((i < a->count ? a->values[i] : 0) != (i < b->count ? b->values[i] : 0)) return false;
  return true;
}

/* Bytes that a choice of this bound takes. */
static size_t choice_bytes(uint64_t bound) { return bound <= 256 ? 1 : bound <= 65536 ? 2 : 8; }

size_t sf_stream_to_bytes(unsigned char *out, const struct sf_stream *stream) {
  size_t at = 0;
  for (int32_t i = 0; i < stream->count; i++)
    for (size_t k = 0; k < choice_bytes(stream->bounds[i]); k++) out[at++] = (unsigned char)(stream->values[i] >> (8 * k));
  return at;
}

void sf_draw_from_pcg(struct sf_draw *draw, uint64_t seed, uint64_t index) {
  memset(draw, 0, sizeof *draw);
  draw->source = SF_DRAW_PCG;
  draw->pcg = sf_pcg_create(seed, index);
}

void sf_draw_from_bytes(struct sf_draw *draw, const void *bytes, size_t byte_count) {
  memset(draw, 0, sizeof *draw);
  draw->source = SF_DRAW_BYTES;
  draw->bytes = bytes;
  draw->byte_count = byte_count;
}

void sf_draw_from_stream(struct sf_draw *draw, const struct sf_stream *saved) {
  memset(draw, 0, sizeof *draw);
  draw->source = SF_DRAW_SAVED;
  draw->saved = saved;
}

static uint64_t from_bytes(struct sf_draw *draw, uint64_t bound) {
  uint64_t value = 0;
  for (size_t k = 0; k < choice_bytes(bound); k++)
    if (draw->byte_at < draw->byte_count) value |= (uint64_t)draw->bytes[draw->byte_at++] << (8 * k);
  return value % bound;
}

static uint64_t from_saved(const struct sf_draw *draw, uint64_t bound) {
  const int32_t at = draw->record.count;
  const uint64_t value = at < draw->saved->count ? draw->saved->values[at] : 0;
  return value < bound ? value : bound - 1;
}

static uint64_t from_weights(struct sf_pcg *pcg, uint64_t bound, const uint32_t *weights) {
  uint64_t total = 0, at = 0;
  for (uint64_t i = 0; weights != NULL && i < bound; i++) total += weights[i];
  if (total == 0) return sf_pcg_below(pcg, bound);
  uint64_t left = sf_pcg_below(pcg, total);
  while (left >= weights[at]) left -= weights[at++];
  return at;
}

static uint64_t record(struct sf_draw *draw, int32_t field, uint64_t bound, uint64_t value) {
  struct sf_stream *stream = &draw->record;
  SF_ASSERT_LT(stream->count, SF_STREAM_MAX);
  stream->values[stream->count] = value;
  stream->bounds[stream->count] = bound;
  stream->fields[stream->count++] = field;
  return value;
}

uint64_t sf_draw_choice(struct sf_draw *draw, int32_t field, uint64_t bound, const uint32_t *weights) {
  uint64_t value = 0;
  SF_ASSERT(bound > 0);
  switch (draw->source) {
  case SF_DRAW_PCG:
    value = from_weights(&draw->pcg, bound, weights);
    break;
  case SF_DRAW_BYTES:
    value = from_bytes(draw, bound);
    break;
  case SF_DRAW_SAVED:
    value = from_saved(draw, bound);
    break;
  }
  return record(draw, field, bound, value);
}

uint64_t sf_draw_number(struct sf_draw *draw, int32_t field, uint64_t bound, uint64_t likely, uint32_t zero_percent) {
  uint64_t value;
  if (draw->source != SF_DRAW_PCG) return sf_draw_choice(draw, field, bound, NULL);
  const bool zero = sf_pcg_below(&draw->pcg, 100) < zero_percent;
  value = sf_pcg_below(&draw->pcg, likely < bound ? likely : bound);
  return record(draw, field, bound, zero ? 0 : value);
}
