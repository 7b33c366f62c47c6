/* Which ways a trial's judgement took, as numbers: feedback for fuzzers that look for what they have not seen. */
#ifndef SF_TESTS_TRIAL_PATHS_H
#define SF_TESTS_TRIAL_PATHS_H

#include "harness/base/hash.h"
#include "harness/run/trial/engine.h"

#include <math.h>

enum { SF_TRIAL_PATHS = 1 << 15 };

/* How near the alarm a tensor came, in classes: equal, then factors of 8 below it. */
static inline uint64_t sf_nearness(double share) {
  if (!(share > 0)) return isnan(share) ? 1 : 0;
  const int eighths = (int)floor(-log2(share) / 3);
  return 2 + (uint64_t)(eighths < 0 ? 0 : eighths > 3 ? 3 : eighths);
}

/* A tensor's way: which kind it is, whose, in which pass, how many perturbed runs it took, whether it was judged or why not, and how near
 * the alarm it came. */
static inline uint64_t sf_path_of(const struct sf_catalog *catalog, const struct sf_tensor_result *r) {
  const uint64_t cls = r->expected ? 1 + (uint64_t)catalog->modules[r->expected->spec.module].cls : 0;
  uint64_t hash = sf_hash_u64(sf_hash_u64(sf_hash_u64(1, r->id.kind), r->id.call), cls);
  hash = sf_hash_u64(sf_hash_u64(hash, r->level), r->judged ? sf_nearness(sf_tensor_share(r)) : 100);
  return r->why_not ? sf_hash_string(hash, r->why_not) : hash;
}

/* Calls `path` with the number of each way, below SF_TRIAL_PATHS; a number may come more than once. */
static inline void sf_trial_paths_each(const struct sf_engine *engine, const struct sf_outcome *outcome,
                                       void (*path)(void *ctx, int32_t number), void *ctx) {
  const struct sf_judgement *judgement = sf_engine_judgement(engine);
  const struct sf_catalog *catalog = sf_engine_catalog(engine);
  path(ctx, (int32_t)outcome->verdict);
  for (int32_t i = 0; i < judgement->result_count; i++) path(ctx, (int32_t)(sf_path_of(catalog, &judgement->results[i]) % SF_TRIAL_PATHS));
}

#endif
