#include "harness/run/chunk_log.h"

#include "harness/base/alloc.h"

#include <string.h>

struct chunk_header {
  int64_t rows, cols;
  struct sf_trace_id id;
  int32_t rank;
  struct sf_shard_map map;
};

static bool reserve(struct sf_chunk_log *log, size_t more) {
  if (log->size_bytes + more <= log->capacity) return true;
  const size_t capacity = 2 * (log->size_bytes + more);
  unsigned char *data = sf_realloc(log->data, capacity);
  if (!data) return false;
  log->data = data;
  log->capacity = capacity;
  return true;
}

void sf_chunk_log_add(struct sf_chunk_log *log, int32_t rank, struct sf_trace_id id, const struct sf_shard_map *map, const float *data, int64_t rows,
                      int64_t cols) {
  const size_t data_bytes = (size_t)(rows * cols) * sizeof *data;
  if (log->failed || !reserve(log, sizeof(struct chunk_header) + data_bytes)) {
    log->failed = true;
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
}

bool sf_chunk_log_visit(const void *data, size_t size_bytes,
                        void (*visit)(void *ctx, int32_t rank, struct sf_trace_id id, const struct sf_shard_map *map, const float *data, int64_t rows,
                                      int64_t cols),
                        void *ctx) {
  const unsigned char *at = data, *end = at + size_bytes;
  while (at < end) {
    struct chunk_header header;
    if ((size_t)(end - at) < sizeof header) return false;
    memcpy(&header, at, sizeof header);
    at += sizeof header;
    if (header.rows < 0 || header.cols < 0 || (header.cols && header.rows > (end - at) / (int64_t)sizeof(float) / header.cols)) return false;
    visit(ctx, header.rank, header.id, &header.map, (const float *)(const void *)at, header.rows, header.cols);
    at += (size_t)(header.rows * header.cols) * sizeof(float);
  }
  return true;
}

void sf_chunk_log_destroy(struct sf_chunk_log *log) {
  sf_free(log->data);
  memset(log, 0, sizeof *log);
}
