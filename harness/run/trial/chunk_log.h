/* A trace as a byte string: to be judged on another rank (control channel of the MPI backend), or read by the process that started this
 * one, whatever became of this one. */
#ifndef SF_RUN_CHUNK_LOG_H
#define SF_RUN_CHUNK_LOG_H

#include "harness/base/status.h"
#include "harness/tensor/trace.h"

/* What a process that shares a log's file knows about it: shared memory. */
struct sf_chunk_log_shared {
  volatile uint64_t size_bytes; /* of the whole chunks */
  volatile bool failed;
};

/* Zeroed: an empty log in memory of its own. */
struct sf_chunk_log {
  unsigned char *data;
  size_t size_bytes, capacity;
  bool failed; /* memory ran out: the log is not complete */
  /* A log in a file: every chunk added is there for other processes that hold the file, even if this one dies in the next moment. */
  int file;
  struct sf_chunk_log_shared *shared; /* NULL: not in a file */
};

/* Makes an empty log whose bytes lie in a new anonymous file (Linux memfd) and whose state is shared with child processes. SF_EIO. */
enum sf_status sf_chunk_log_create_shared(struct sf_chunk_log *log) SF_MUST_USE;
/* Looks at what other processes have added since the log was made or looked at: data and size_bytes are then up to date. SF_ENOMEM when an
 * adding process could not keep all, SF_EIO. Only for logs in a file. */
enum sf_status sf_chunk_log_refresh(struct sf_chunk_log *log) SF_MUST_USE;

/* Copies the rows x cols values. On no memory, or no room, the log is marked as failed and keeps nothing more. */
void sf_chunk_log_add(struct sf_chunk_log *log, int32_t rank, struct sf_trace_id id, const struct sf_shard_map *map, const float *data,
                      int64_t rows, int64_t cols);

typedef void (*sf_chunk_visit)(void *ctx, int32_t rank, struct sf_trace_id id, const struct sf_shard_map *map, const float *data,
                               int64_t rows, int64_t cols);
/* Calls visit for each chunk in order; false when the bytes are not a log. */
bool sf_chunk_log_visit(const void *data, size_t size_bytes, sf_chunk_visit visit, void *ctx);
void sf_chunk_log_destroy(struct sf_chunk_log *log); /* takes what is zeroed, and zeroes it */

#endif
