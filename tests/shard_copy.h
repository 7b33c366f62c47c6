/* For tests: shards cut out of a logical matrix and put back, element by element, and maps compared. */
#ifndef SF_TESTS_SHARD_COPY_H
#define SF_TESTS_SHARD_COPY_H

#include "harness/base/assert.h"
#include "harness/tensor/shard_map.h"

/* Logical index of local index i of a dimension. */
static inline int64_t shard_index(const struct sf_dim_map *dim, int64_t i) {
  int32_t run = 0;
  for (; i >= dim->runs[run].len; run++) i -= dim->runs[run].len;
  return dim->runs[run].start + i;
}

static inline void shard_copy(float *local, float *logical, struct sf_shape shape, const struct sf_shard_map *map, bool is_gather) {
  const int64_t width = sf_dim_map_length(&map->cols), first = map->flat ? map->first : 0;
  const int64_t count = map->flat ? map->count : sf_shard_map_box_count(map);
  for (int64_t i = 0; i < count; i++) {
    const int64_t row = shard_index(&map->rows, (first + i) / width);
    SF_ASSERT_LT(row, shape.rows);
    float *at = &logical[row * shape.cols + shard_index(&map->cols, (first + i) % width)];
    if (is_gather)
      local[i] = *at;
    else
      *at = local[i];
  }
}

/* Whole logical matrix (row-major, shape.cols wide) to local values (contiguous, as the map says), and back. The second leaves elements
 * that the map does not name as they are. */
static inline void shard_gather(float *local, const float *logical, struct sf_shape shape, const struct sf_shard_map *map) {
  shard_copy(local, (float *)(uintptr_t)logical, shape, map, true);
}
static inline void shard_scatter(float *logical, const float *local, struct sf_shape shape, const struct sf_shard_map *map) {
  shard_copy((float *)(uintptr_t)local, logical, shape, map, false);
}

static inline bool shard_dim_equal(const struct sf_dim_map *a, const struct sf_dim_map *b) {
  if (a->count != b->count) return false;
  for (int32_t i = 0; i < a->count; i++) {
    const struct sf_run x = a->runs[i], y = b->runs[i];
    if (x.start != y.start || x.len != y.len || x.partial != y.partial) return false;
  }
  return true;
}

/* Equal runs in the same order, partial over the same axes, and the same flat range. */
static inline bool shard_map_equal(const struct sf_shard_map *a, const struct sf_shard_map *b) {
  if (a->flat != b->flat || (a->flat && (a->first != b->first || a->count != b->count))) return false;
  return shard_dim_equal(&a->rows, &b->rows) && shard_dim_equal(&a->cols, &b->cols);
}

#endif
