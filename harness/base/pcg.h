/* PCG64-DXSM (O'Neill 2014; DXSM output and 64-bit "cheap" multiplier as in NumPy's PCG64DXSM), seeded like
 * NumPy's raw state: the caller gives state and increment. Checked against numbers printed by NumPy. */
#ifndef SF_BASE_PCG_H
#define SF_BASE_PCG_H

#include <stdint.h>

struct sf_pcg {
  unsigned __int128 state;
  unsigned __int128 increment; /* odd */
};

/* Two 64-bit seeds spread over state and increment by splitmix64; different pairs give different streams. */
struct sf_pcg sf_pcg_create(uint64_t seed, uint64_t stream);
uint64_t sf_pcg_next(struct sf_pcg *pcg); /* uniform in 64 bits */
/* Uniform in 0..bound-1 without bias (rejection); bound > 0. */
uint64_t sf_pcg_below(struct sf_pcg *pcg, uint64_t bound);

#endif
