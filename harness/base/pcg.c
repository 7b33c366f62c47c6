#include "harness/base/pcg.h"

#include "harness/base/assert.h"
#include "harness/base/hash.h"

static const uint64_t PCG_CHEAP_MULTIPLIER = UINT64_C(0xda942042e4dd58b5);
static const uint64_t GOLDEN_GAMMA = UINT64_C(0x9e3779b97f4a7c15);

static unsigned __int128 join(uint64_t high, uint64_t low) { return ((unsigned __int128)high << 64) | low; }

struct sf_pcg sf_pcg_create(uint64_t seed, uint64_t stream) {
  /* state alone is a bijection of (seed, stream); the increment also depends on both, so that streams of neighbouring
   * seeds do not run along one cycle. */
  const uint64_t both = sf_hash_u64(sf_mix64(seed + GOLDEN_GAMMA), stream);
  struct sf_pcg pcg;
  pcg.state = join(sf_mix64(seed + GOLDEN_GAMMA), sf_mix64(stream + 2 * GOLDEN_GAMMA));
  pcg.increment = join(both, sf_mix64(both + GOLDEN_GAMMA) | 1u);
  return pcg;
}

uint64_t sf_pcg_next(struct sf_pcg *pcg) {
  uint64_t high = (uint64_t)(pcg->state >> 64);
  const uint64_t low = (uint64_t)pcg->state | 1u;
  high ^= high >> 32;
  high *= PCG_CHEAP_MULTIPLIER;
  high ^= high >> 48;
  high *= low;
  pcg->state = pcg->state * PCG_CHEAP_MULTIPLIER + pcg->increment;
  return high;
}

uint64_t sf_pcg_below(struct sf_pcg *pcg, uint64_t bound) {
  SF_ASSERT(bound > 0);
  /* Lemire 2019: the high half of a 128-bit product is uniform once low halves below 2^64 mod bound are rejected. */
  unsigned __int128 product = (unsigned __int128)sf_pcg_next(pcg) * bound;
  if ((uint64_t)product < bound) {
    const uint64_t threshold = (0 - bound) % bound;
    while ((uint64_t)product < threshold) product = (unsigned __int128)sf_pcg_next(pcg) * bound;
  }
  return (uint64_t)(product >> 64);
}
