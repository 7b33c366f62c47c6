#include "harness/worker/line_buffer.h"

#include "harness/base/alloc.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { STEP_BYTES = 4096 };

static bool make_room(struct sf_line_buffer *buffer) {
  if (buffer->taken) {
    memmove(buffer->data, buffer->data + buffer->taken, buffer->length - buffer->taken);
    buffer->length -= buffer->taken;
    buffer->taken = 0;
  }
  if (buffer->capacity - buffer->length > STEP_BYTES) return true;
  const size_t capacity = 2 * buffer->capacity + 2 * STEP_BYTES;
  char *grown = sf_realloc(buffer->data, capacity);
  if (!grown) return false;
  buffer->data = grown;
  buffer->capacity = capacity;
  return true;
}

bool sf_line_buffer_fill(struct sf_line_buffer *buffer, int fd) {
  while (!buffer->overflowed) {
    if (!make_room(buffer)) return false;
    const ssize_t length = read(fd, buffer->data + buffer->length, buffer->capacity - buffer->length);
    if (length < 0) return errno == EAGAIN || errno == EINTR;
    if (length == 0) return false;
    const bool ended = memchr(buffer->data + buffer->length, '\n', (size_t)length) != NULL;
    buffer->length += (size_t)length;
    buffer->overflowed = !ended && buffer->length > SF_WORKER_LINE_BYTES;
    if (ended && buffer->length > SF_WORKER_LINE_BYTES) return true; /* read lines first: they make room */
  }
  return true;
}

const char *sf_line_buffer_next(struct sf_line_buffer *buffer, size_t *length) {
  char *line = buffer->data ? buffer->data + buffer->taken : NULL;
  char *end = line ? memchr(line, '\n', buffer->length - buffer->taken) : NULL;
  if (!end) return NULL;
  *end = '\0';
  *length = (size_t)(end - line);
  buffer->taken += *length + 1;
  return line;
}

bool sf_line_buffer_overflowed(const struct sf_line_buffer *buffer) { return buffer->overflowed; }

void sf_line_buffer_destroy(struct sf_line_buffer *buffer) { sf_free(buffer->data); }
