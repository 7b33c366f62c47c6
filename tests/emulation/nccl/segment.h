/* What the processes of one emulated communicator share: a mapped file with a pipe from each member to each, itself too. */
#ifndef SF_TESTS_EMULATION_NCCL_SEGMENT_H
#define SF_TESTS_EMULATION_NCCL_SEGMENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SEGMENT_MEMBERS_MAX = 16, PIPE_BYTES = 8192 };

struct pipe_of {
  _Atomic uint64_t written, read;
  char bytes[PIPE_BYTES];
};

struct segment {
  _Atomic int joined, finalized, left, aborted;
  int device[SEGMENT_MEMBERS_MAX];
  struct pipe_of pipes[]; /* from a to b: a * size + b */
};

/* A new path for a segment. */
void segment_name(char *path, size_t room);
/* Maps it, making it if it is not there yet. Ends the program when that fails. */
struct segment *segment_join(const char *path, int size, int rank, int device);
/* Says that this member leaves. */
void segment_say_left(struct segment *segment);
/* Whether all who came have said so. */
bool segment_all_left(const struct segment *segment);
void segment_unmap(struct segment *segment, const char *path, int size);
/* As many bytes as there is room for, or as have come. */
size_t pipe_write(struct pipe_of *pipe, const void *from, size_t size_bytes);
size_t pipe_read(struct pipe_of *pipe, void *to, size_t size_bytes);

#endif
