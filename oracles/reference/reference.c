#include "oracles/reference/reference_internal.h"

#include "harness/base/assert.h"
#include "harness/base/hash.h"

enum sf_status sf_reference_run_nudged(const struct sf_catalog *catalog, const struct sf_reference_options *options,
                                       const struct sf_reference_sink *sink, const struct sf_reference_nudge *nudge) {
  SF_ASSERT(options->gemm != NULL && sink->emit != NULL);
  return options->fp64 ? sf_reference_run_f64(catalog, options, sink, nudge) : sf_reference_run_f32(catalog, options, sink, nudge);
}

enum sf_status sf_reference_run(const struct sf_catalog *catalog, const struct sf_reference_options *options,
                                const struct sf_reference_sink *sink) {
  return sf_reference_run_nudged(catalog, options, sink, NULL);
}

uint64_t sf_noise_key(uint64_t draw, struct sf_trace_id id, uint64_t part) {
  return (sf_hash_u64(sf_hash_u64(sf_mix64(draw + 1), sf_trace_key(id)), part) & ~UINT64_C(1)) | (draw & 1);
}

struct sf_split sf_split_whole(int64_t size) {
  return (struct sf_split){.count = 1, .cut = {0, size}};
}

static void shuffle(int32_t *order, uint64_t key, int64_t size) {
  for (int64_t i = 0; i < size; i++) order[i] = (int32_t)i;
  for (int64_t i = size - 1; i > 0; i--) {
    const uint64_t bits = sf_mix64(key + (uint64_t)i * UINT64_C(0x9e3779b97f4a7c15)) >> 32;
    const int64_t j = (int64_t)((bits * (uint64_t)(i + 1)) >> 32);
    const int32_t held = order[i];
    order[i] = order[j];
    order[j] = held;
  }
}

/* Of eight sums of SF_SUMS_MIXED two are taken in parts. */
struct sf_split sf_split_shuffled(int32_t *order, enum sf_summing sums, uint64_t draw, uint64_t number, int64_t size) {
  const uint64_t key = sf_hash_u64(sf_mix64(~draw), number), toss = sf_mix64(key ^ 1) % 8;
  const bool in_parts = sums == SF_SUMS_IN_PARTS || (sums == SF_SUMS_MIXED && toss >= 6);
  const int64_t wanted = in_parts ? INT64_C(2) << (sf_mix64(~key) % 3) : 1, parts = wanted < size ? wanted : size;
  struct sf_split split = {.count = (int32_t)parts, .order = order, .key = sf_mix64(key ^ 2)};
  split.large = toss < 3 ? SF_LARGE_FRONT : toss < 4 ? SF_LARGE_BACK : SF_LARGE_EITHER;
  split.in_order = parts == 1 && (sums == SF_SUMS_TERM_BY_TERM || (split.large == SF_LARGE_FRONT && sf_mix64(key ^ 3) % 2 == 0));
  shuffle(order, key, size);
  for (int64_t p = 0; p <= parts; p++) split.cut[p] = size * p / parts;
  return split;
}
