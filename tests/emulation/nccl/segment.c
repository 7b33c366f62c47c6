#include "tests/emulation/nccl/segment.h"

#include "tests/emulation/nccl/emulated.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void segment_name(char *path, size_t room) {
  static int count;
  const char *folder = getenv("TMPDIR");
  snprintf(path, room, "%s/sf-emulated-nccl-%d-%d", folder != NULL ? folder : "/tmp", (int)getpid(), count++);
}

static size_t bytes_of(int size) { return sizeof(struct segment) + (size_t)size * (size_t)size * sizeof(struct pipe_of); }

struct segment *segment_join(const char *path, int size, int rank, int device) {
  if (size > SEGMENT_MEMBERS_MAX) sf_emulated_end("a communicator of more ranks than the emulation has");
  const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, (off_t)bytes_of(size)) != 0) sf_emulated_end("a communicator's file cannot be made");
  struct segment *segment = mmap(NULL, bytes_of(size), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (segment == MAP_FAILED) sf_emulated_end("a communicator's file cannot be mapped");
  segment->device[rank] = device;
  if (atomic_fetch_add(&segment->joined, 1) == size - 1) unlink(path);
  return segment;
}

void segment_say_left(struct segment *segment) { atomic_fetch_add(&segment->left, 1); }

bool segment_all_left(const struct segment *segment) { return atomic_load(&segment->left) >= atomic_load(&segment->joined); }

void segment_unmap(struct segment *segment, const char *path, int size) {
  if (atomic_load(&segment->joined) < size) unlink(path);
  munmap(segment, bytes_of(size));
}

static void copy_part(char *ring, char *flat, uint64_t place, size_t size_bytes, bool out) {
  for (size_t i = 0; i < size_bytes;) {
    const size_t at = (size_t)((place + i) % PIPE_BYTES), here = PIPE_BYTES - at < size_bytes - i ? PIPE_BYTES - at : size_bytes - i;
    if (out) memcpy(ring + at, flat + i, here);
    else memcpy(flat + i, ring + at, here);
    i += here;
  }
}

size_t pipe_write(struct pipe_of *pipe, const void *from, size_t size_bytes) {
  const uint64_t written = atomic_load(&pipe->written), room = PIPE_BYTES - (written - atomic_load(&pipe->read));
  const size_t part = size_bytes < room ? size_bytes : (size_t)room;
  copy_part(pipe->bytes, (char *)(uintptr_t)from, written, part, true);
  atomic_store(&pipe->written, written + part);
  return part;
}

size_t pipe_read(struct pipe_of *pipe, void *to, size_t size_bytes) {
  const uint64_t done = atomic_load(&pipe->read), there = atomic_load(&pipe->written) - done;
  const size_t part = size_bytes < there ? size_bytes : (size_t)there;
  copy_part(pipe->bytes, to, done, part, false);
  atomic_store(&pipe->read, done + part);
  return part;
}
