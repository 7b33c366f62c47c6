/* Trace points: where a run hands a tensor to whoever watches it. */
#ifndef SF_TENSOR_TRACE_H
#define SF_TENSOR_TRACE_H

#include "harness/tensor/shard_map.h"

/* What a run is watched by. `point` is called on the rank that holds the tensor, when the tensor is complete and before anything
 * uses it; it may overwrite the values (isolated mode does), never the shape. data: local values, contiguous, as the map says;
 * the callee copies what it keeps. In a simulation ranks are fibers of one thread, so calls never overlap. */
struct sf_trace_sink {
  void *ctx;
  void (*point)(void *ctx, int32_t rank, struct sf_trace_id id, const struct sf_shard_map *map, float *data, int64_t rows, int64_t cols);
};

#endif
