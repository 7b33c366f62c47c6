#include "harness/tensor/rounding_bits.h"

#include "harness/base/assert.h"
#include "harness/base/hash.h"
#include "harness/tensor/consistent.h"

#define INDEX_STRIDE UINT64_C(0x9e3779b97f4a7c15)

uint64_t sf_rounding_key(const struct sf_catalog *catalog, int32_t param, int64_t step) {
  SF_ASSERT_LE(0, param);
  SF_ASSERT_LT(param, catalog->param_count);
  const uint64_t tensor = sf_hash_string((uint64_t)step, catalog->params[param].name);
  return sf_fill_key(catalog->logical.seed, tensor, sf_hash_string(0, "stochastic rounding"));
}

void sf_rounding_bits_range(uint16_t *out, uint64_t key, int64_t first, int64_t count) {
  for (int64_t i = 0; i < count; i++) out[i] = (uint16_t)(sf_mix64(key + (uint64_t)(first + i) * INDEX_STRIDE) >> 48);
}

void sf_rounding_bits_shard(uint16_t *out, uint64_t key, struct sf_shape shape, const struct sf_shard_map *map) {
  SF_ASSERT(sf_shard_map_valid(map, shape));
  for (int32_t r = 0; r < map->rows.count; r++)
    for (int64_t i = 0; i < map->rows.runs[r].len; i++)
      for (int32_t k = 0; k < map->cols.count; k++) {
        const struct sf_run cols = map->cols.runs[k];
        sf_rounding_bits_range(out, key, (map->rows.runs[r].start + i) * shape.cols + cols.start, cols.len);
        out += cols.len;
      }
}
