/* Random bits of stochastic rounding: a function of (seed, step, parameter, logical index) by integer arithmetic, so that every layout,
 * every shard and the reference round an element alike. */
#ifndef SF_TENSOR_ROUNDING_BITS_H
#define SF_TENSOR_ROUNDING_BITS_H

#include "harness/spec/catalog.h"
#include "harness/tensor/shard_map.h"

/* Stream of one parameter in one step. */
uint64_t sf_rounding_key(const struct sf_catalog *catalog, int32_t param, int64_t step);

/* Elements first .. first + count - 1 of the row-major logical tensor: the high 16 bits of mix64(key + index * odd constant). */
void sf_rounding_bits_range(uint16_t *out, uint64_t key, int64_t first, int64_t count);

/* out: rows x cols of the shard as the map says, which must fit the logical shape. */
void sf_rounding_bits_shard(uint16_t *out, uint64_t key, struct sf_shape shape, const struct sf_shard_map *map);

#endif
