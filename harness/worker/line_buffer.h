/* Lines out of a descriptor that does not block. */
#ifndef SF_WORKER_LINE_BUFFER_H
#define SF_WORKER_LINE_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

enum { SF_WORKER_LINE_BYTES = 1 << 20 };

struct sf_line_buffer {
  char *data;
  size_t length, taken, capacity; /* bytes held, of which the first `taken` were given out */
  bool overflowed;
};

/* Reads what is there. False at the end of the stream, on an error, and without memory. */
bool sf_line_buffer_fill(struct sf_line_buffer *buffer, int fd);
/* The next whole line without its newline, NUL-terminated, valid until the next fill; NULL when there is none yet. */
const char *sf_line_buffer_next(struct sf_line_buffer *buffer, size_t *length);
/* Whether an unfinished line is longer than SF_WORKER_LINE_BYTES. */
bool sf_line_buffer_overflowed(const struct sf_line_buffer *buffer);
void sf_line_buffer_destroy(struct sf_line_buffer *buffer); /* takes what is zeroed */

#endif
