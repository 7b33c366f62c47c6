#include "harness/tensor/shard_map.h"

#include "harness/base/assert.h"

int64_t sf_dim_map_length(const struct sf_dim_map *dim) {
  int64_t length = 0;
  for (int32_t i = 0; i < dim->count; i++) length += dim->runs[i].len;
  return length;
}

void sf_dim_map_append(struct sf_dim_map *dim, int64_t start, int64_t len, uint32_t partial) {
  SF_ASSERT_LE(0, len);
  if (len == 0) return;
  if (dim->count > 0) {
    struct sf_run *last = &dim->runs[dim->count - 1];
    if (last->partial == partial && last->start + last->len == start) {
      last->len += len;
      return;
    }
  }
  SF_ASSERT_LT(dim->count, SF_RUNS_MAX);
  dim->runs[dim->count++] = (struct sf_run){.start = start, .len = len, .partial = partial};
}

struct sf_dim_map sf_dim_map_whole(int64_t size) {
  return sf_dim_map_part(size, 1, 0);
}

struct sf_dim_map sf_dim_map_part(int64_t size, int64_t parts, int64_t index) {
  SF_ASSERT_LT(0, parts);
  SF_ASSERT_LE(0, index);
  SF_ASSERT_LT(index, parts);
  SF_ASSERT_EQ(size % parts, 0);
  struct sf_dim_map dim = {0};
  sf_dim_map_append(&dim, index * (size / parts), size / parts, false);
  return dim;
}

static void mark_partial(struct sf_dim_map *dim, uint32_t kept, uint32_t axes) {
  struct sf_dim_map merged = {0};
  for (int32_t i = 0; i < dim->count; i++)
    sf_dim_map_append(&merged, dim->runs[i].start, dim->runs[i].len, (dim->runs[i].partial & kept) | axes);
  *dim = merged;
}

void sf_dim_map_set_partial(struct sf_dim_map *dim, uint32_t partial) { mark_partial(dim, 0, partial); }
void sf_dim_map_add_partial(struct sf_dim_map *dim, uint32_t axes) { mark_partial(dim, UINT32_MAX, axes); }

/* Appends to out the logical indices that local indices [at, at + len) of outer mean. */
static void append_slice(struct sf_dim_map *out, const struct sf_dim_map *outer, int64_t at, int64_t len, uint32_t partial) {
  int64_t begin = 0;
  for (int32_t i = 0; i < outer->count && len > 0; i++) {
    const struct sf_run run = outer->runs[i];
    if (at < begin + run.len) {
      const int64_t skip = at - begin, take = len < run.len - skip ? len : run.len - skip;
      sf_dim_map_append(out, run.start + skip, take, partial | run.partial);
      at += take;
      len -= take;
    }
    begin += run.len;
  }
  SF_ASSERT_EQ(len, 0);
}

struct sf_dim_map sf_dim_map_compose(const struct sf_dim_map *outer, const struct sf_dim_map *inner) {
  struct sf_dim_map out = {0};
  for (int32_t i = 0; i < inner->count; i++) append_slice(&out, outer, inner->runs[i].start, inner->runs[i].len, inner->runs[i].partial);
  return out;
}

struct sf_shard_map sf_shard_map_whole(struct sf_shape shape) {
  return (struct sf_shard_map){.rows = sf_dim_map_whole(shape.rows), .cols = sf_dim_map_whole(shape.cols)};
}

int64_t sf_shard_map_box_count(const struct sf_shard_map *map) { return sf_dim_map_length(&map->rows) * sf_dim_map_length(&map->cols); }

struct sf_shard_map sf_shard_map_flat(const struct sf_shard_map *box, int64_t first, int64_t count) {
  SF_ASSERT(!box->flat);
  SF_ASSERT(first >= 0 && count >= 0);
  SF_ASSERT_LE(first + count, sf_shard_map_box_count(box));
  struct sf_shard_map map = *box;
  map.flat = true;
  map.first = first;
  map.count = count;
  return map;
}

struct sf_shape sf_shard_map_local_shape(const struct sf_shard_map *map) {
  if (map->flat) return (struct sf_shape){1, map->count};
  return (struct sf_shape){sf_dim_map_length(&map->rows), sf_dim_map_length(&map->cols)};
}

static bool dim_valid(const struct sf_dim_map *dim, int64_t size) {
  if (dim->count < 0 || dim->count > SF_RUNS_MAX) return false;
  for (int32_t i = 0; i < dim->count; i++) {
    const struct sf_run run = dim->runs[i];
    if (run.start < 0 || run.len <= 0 || run.len > size || run.start > size - run.len) return false;
    for (int32_t k = 0; k < i; k++) {
      const struct sf_run other = dim->runs[k];
      if (run.start < other.start + other.len && other.start < run.start + run.len) return false;
    }
  }
  return true;
}

bool sf_shard_map_valid(const struct sf_shard_map *map, struct sf_shape shape) {
  if (!dim_valid(&map->rows, shape.rows) || !dim_valid(&map->cols, shape.cols)) return false;
  if (!map->flat) return true;
  const int64_t box = sf_shard_map_box_count(map);
  return map->first >= 0 && map->count >= 0 && map->first <= box && map->count <= box - map->first;
}
