#include "harness/run/trial/chunk_log.h"

#include "harness/base/alloc.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct chunk_header {
  int64_t rows, cols;
  struct sf_trace_id id;
  int32_t rank;
  struct sf_shard_map map;
};

/* Room in the file is claimed before it is written to: running out of memory later would be a signal. */
static unsigned char *map_file(struct sf_chunk_log *log, size_t capacity, bool claim) {
  if (claim && posix_fallocate(log->file, 0, (off_t)capacity) != 0) return NULL;
  void *data = log->data ? mremap(log->data, log->capacity, capacity, MREMAP_MAYMOVE)
                         : mmap(NULL, capacity, PROT_READ | PROT_WRITE, MAP_SHARED, log->file, 0);
  return data == MAP_FAILED ? NULL : data;
}

static bool reserve(struct sf_chunk_log *log, size_t more) {
  if (log->size_bytes + more <= log->capacity) return true;
  const size_t capacity = 2 * (log->size_bytes + more);
  unsigned char *data = log->shared ? map_file(log, capacity, true) : sf_realloc(log->data, capacity);
  if (!data) return false;
  log->data = data;
  log->capacity = capacity;
  return true;
}

enum sf_status sf_chunk_log_create_shared(struct sf_chunk_log *log) {
  memset(log, 0, sizeof *log);
  void *shared = mmap(NULL, sizeof *log->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return SF_EIO;
  log->file = memfd_create("shardfuzz-trace", MFD_CLOEXEC);
  if (log->file < 0) {
    munmap(shared, sizeof *log->shared);
    return SF_EIO;
  }
  log->shared = shared;
  return SF_OK;
}

enum sf_status sf_chunk_log_refresh(struct sf_chunk_log *log) {
  if (log->shared->failed) return SF_ENOMEM;
  const size_t size_bytes = log->shared->size_bytes;
  if (size_bytes > log->capacity) {
    unsigned char *data = map_file(log, size_bytes, false);
    if (!data) return SF_EIO;
    log->data = data;
    log->capacity = size_bytes;
  }
  log->size_bytes = size_bytes;
  return SF_OK;
}

void sf_chunk_log_add(struct sf_chunk_log *log, int32_t rank, struct sf_trace_id id, const struct sf_shard_map *map, const float *data,
                      int64_t rows, int64_t cols) {
  const size_t data_bytes = (size_t)(rows * cols) * sizeof *data;
  if (log->failed || !reserve(log, sizeof(struct chunk_header) + data_bytes)) {
    log->failed = true;
    if (log->shared) log->shared->failed = true;
    return;
  }
  struct chunk_header header;
  memset(&header, 0, sizeof header);
  header.rows = rows;
  header.cols = cols;
  header.id = id;
  header.rank = rank;
  header.map = *map;
  memcpy(log->data + log->size_bytes, &header, sizeof header);
  memcpy(log->data + log->size_bytes + sizeof header, data, data_bytes);
  log->size_bytes += sizeof header + data_bytes;
  if (log->shared) log->shared->size_bytes = log->size_bytes;
}

bool sf_chunk_log_visit(const void *data, size_t size_bytes, sf_chunk_visit visit, void *ctx) {
  const unsigned char *at = data, *end = at + size_bytes;
  while (at < end) {
    struct chunk_header header;
    if ((size_t)(end - at) < sizeof header) return false;
    memcpy(&header, at, sizeof header);
    at += sizeof header;
    if (header.rows < 0 || header.cols < 0 || (header.cols && header.rows > (end - at) / (int64_t)sizeof(float) / header.cols))
      return false;
    visit(ctx, header.rank, header.id, &header.map, (const float *)(const void *)at, header.rows, header.cols);
    at += (size_t)(header.rows * header.cols) * sizeof(float);
  }
  return true;
}

void sf_chunk_log_destroy(struct sf_chunk_log *log) {
  if (log->shared) {
    if (log->data) munmap(log->data, log->capacity);
    munmap(log->shared, sizeof *log->shared);
    close(log->file);
  } else {
    sf_free(log->data);
  }
  memset(log, 0, sizeof *log);
}
