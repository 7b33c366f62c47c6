#include "harness/worker/wait.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

int sf_wait_moment(struct pollfd *fds, int count, int timeout_ms) {
  const int ready = poll(fds, (nfds_t)count, timeout_ms);
  if (ready > 0) return ready;
  const bool failed = ready < 0 && errno != EINTR;
  for (int i = 0; i < count; i++) fds[i].revents = 0;
  return failed ? -1 : 0;
}

enum sf_waited sf_wait_for(struct sf_wait *wait, int fd, short events) {
  struct pollfd waits = {fd, events, 0};
  for (;;) {
    if (wait->stop && *wait->stop) return SF_WAIT_STOPPED;
    if (sf_watch_seconds(&wait->watch) > wait->seconds) return SF_WAIT_LATE;
    if (sf_wait_moment(&waits, 1, SF_MOMENT_MS) > 0) return SF_WAIT_READY;
  }
}

/* Whether to try again: after a signal, or once a descriptor that does not block is ready. */
static bool try_again(int fd, short events) {
  if (errno == EINTR) return true;
  return errno == EAGAIN && (poll(&(struct pollfd){fd, events, 0}, 1, -1) > 0 || errno == EINTR);
}

bool sf_fd_write(int fd, const void *data, size_t size_bytes) {
  const char *at = data;
  while (size_bytes) {
    ssize_t done = send(fd, at, size_bytes, MSG_NOSIGNAL);
    if (done < 0 && errno == ENOTSOCK) done = write(fd, at, size_bytes);
    if (done < 0 && try_again(fd, POLLOUT)) continue;
    if (done <= 0) return false;
    at += done;
    size_bytes -= (size_t)done;
  }
  return true;
}

bool sf_fd_read(int fd, void *data, size_t size_bytes) {
  char *at = data;
  while (size_bytes) {
    const ssize_t done = read(fd, at, size_bytes);
    if (done < 0 && try_again(fd, POLLIN)) continue;
    if (done <= 0) return false;
    at += done;
    size_bytes -= (size_t)done;
  }
  return true;
}
