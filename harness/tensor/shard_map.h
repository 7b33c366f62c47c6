/* Which elements of a logical matrix a rank holds. */
#ifndef SF_TENSOR_SHARD_MAP_H
#define SF_TENSOR_SHARD_MAP_H

#include "harness/spec/catalog.h"
#include "harness/spec/mesh.h"

enum { SF_RUNS_MAX = 16 };

/* `len` logical indices from `start` on. partial: SF_AXES bits of the axes over which what is held there is a summand: the sum over the
 * ranks that hold these elements and differ on those axes only is the logical value, and the other axes hold replicas of the summands. 0:
 * the value itself. */
struct sf_run {
  int64_t start, len;
  uint32_t partial;
};

/* Local index i of a dimension is the i-th logical index of the runs, in their order. */
struct sf_dim_map {
  int32_t count;
  struct sf_run runs[SF_RUNS_MAX];
};

/* A box: local element (i, j) is logical element (rows[i], cols[j]); it is partial over the axes of its row's and its column's run.
 * Flat: of the box's elements, counted row by row, only [first, first + count) are held, as one row; count may be 0. */
struct sf_shard_map {
  struct sf_dim_map rows, cols;
  bool flat;
  int64_t first, count; /* flat only */
};

int64_t sf_dim_map_length(const struct sf_dim_map *dim); /* local indices of the dimension */
struct sf_dim_map sf_dim_map_whole(int64_t size);        /* one run, not partial */
/* Part `index` of `parts` equal contiguous parts; parts must divide size. */
struct sf_dim_map sf_dim_map_part(int64_t size, int64_t parts, int64_t index);
/* Merges with the last run where the new one adjoins it and is partial over the same axes. At most SF_RUNS_MAX, else it asserts. */
void sf_dim_map_append(struct sf_dim_map *dim, int64_t start, int64_t len, uint32_t partial);
void sf_dim_map_set_partial(struct sf_dim_map *dim, uint32_t partial); /* of every run, over these axes alone */
void sf_dim_map_add_partial(struct sf_dim_map *dim, uint32_t axes); /* partial over these axes too */
/* Inner map applied to the local indices of outer: which logical indices the inner's selection means. */
struct sf_dim_map sf_dim_map_compose(const struct sf_dim_map *outer, const struct sf_dim_map *inner);
struct sf_shard_map sf_shard_map_whole(struct sf_shape shape); /* all of the tensor, not partial */
/* Elements [first, first + count) of what the box holds. */
struct sf_shard_map sf_shard_map_flat(const struct sf_shard_map *box, int64_t first, int64_t count);
int64_t sf_shard_map_box_count(const struct sf_shard_map *map); /* elements of the box, flat or not */
struct sf_shape sf_shard_map_local_shape(const struct sf_shard_map *map); /* flat: 1 x count */
/* True when every run lies inside the shape, no logical index of a dimension occurs twice, and a flat range lies inside the box. */
bool sf_shard_map_valid(const struct sf_shard_map *map, struct sf_shape shape);

/* The canonical table: what the ranks at one place of tp and cp hold of one dimension, from the catalogue's cut. Written apart from the
 * layers, which declare their own maps. Nothing is partial in it. For the cuts of experts tp_index is ep index * etp + etp index, and
 * cp_index is not looked at. For SF_CUT_QKV with fewer key/value heads than tp, see harness/docs/model.md, Parameters. */
struct sf_dim_map sf_canonical_dim(const struct sf_case *c, enum sf_cut cut, int64_t size, int64_t tp_index, int64_t cp_index);
/* The same of both dimensions. */
struct sf_shard_map sf_canonical_map(const struct sf_case *c, struct sf_shape shape, enum sf_cut row_cut, enum sf_cut col_cut,
                                     int64_t tp_index, int64_t cp_index);
/* What a rank of the layout holds: the above at its tp and cp index, dimensions of experts at its place on the expert mesh. */
struct sf_shard_map sf_canonical_map_of_rank(const struct sf_case *c, struct sf_shape shape, enum sf_cut row_cut, enum sf_cut col_cut,
                                             int32_t rank);

#endif
