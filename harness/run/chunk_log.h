/* The trace of one rank as a byte string, to be judged elsewhere (control channel of the MPI backend). */
#ifndef SF_RUN_CHUNK_LOG_H
#define SF_RUN_CHUNK_LOG_H

#include "harness/base/status.h"
#include "harness/tensor/trace.h"

struct sf_chunk_log {
  unsigned char *data;
  size_t size_bytes, capacity;
  bool failed; /* memory ran out: the log is not complete */
};

void sf_chunk_log_add(struct sf_chunk_log *log, int32_t rank, struct sf_trace_id id, const struct sf_shard_map *map, const float *data, int64_t rows, int64_t cols);
/* Calls visit for each chunk in order; false when the bytes are not a log. */
bool sf_chunk_log_visit(const void *data, size_t size_bytes, void (*visit)(void *ctx, int32_t rank, struct sf_trace_id id, const struct sf_shard_map *map, const float *data, int64_t rows, int64_t cols), void *ctx);
void sf_chunk_log_destroy(struct sf_chunk_log *log);

#endif
