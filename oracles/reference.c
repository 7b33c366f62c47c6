#include "oracles/reference_internal.h"

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
  return sf_hash_u64(sf_hash_u64(sf_mix64(draw + 1), sf_trace_key(id)), part);
}

struct sf_split sf_split_whole(int64_t size) {
  return (struct sf_split){.count = 1, .cut = {0, size}};
}

struct sf_split sf_split_plan(uint64_t draw, uint64_t number, int64_t size) {
  const uint64_t key = sf_hash_u64(sf_mix64(~draw), number);
  const int64_t parts = INT64_C(2) << (sf_mix64(key) % 3);
  struct sf_split split = {.count = 0, .cut = {0}};
  for (int64_t p = 1; p < parts; p++) {
    /* The p-th of `parts` equal cuts, moved by up to half a part in 1/256ths. */
    const int64_t jitter = (int64_t)(sf_mix64(key + (uint64_t)p) % 256) - 128;
    const int64_t cut = (size * (256 * p + jitter)) / (256 * parts);
    if (cut > split.cut[split.count] && cut < size) split.cut[++split.count] = cut;
  }
  split.cut[++split.count] = size;
  return split;
}
