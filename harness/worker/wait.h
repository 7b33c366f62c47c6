/* The one way to wait for other processes: moment by moment, so that a deadline counts only time in which we ran (base/system/clock.h), a
 * stop is seen soon, and the caller can look at what makes no descriptor readable. */
#ifndef SF_WORKER_WAIT_H
#define SF_WORKER_WAIT_H

#include "harness/base/system/clock.h"

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { SF_MOMENT_MS = 50 };

struct sf_wait {
  double seconds;                    /* the deadline, counted from the first wait on */
  const volatile sig_atomic_t *stop; /* NULL, or waiting ends once it is set */
  struct sf_watch watch;             /* zeroed at first */
};
enum sf_waited { SF_WAIT_READY, SF_WAIT_LATE, SF_WAIT_STOPPED };

/* One moment: like poll, but without a descriptor that is ready every revents is 0, also after a signal. Returns how many are ready; -1:
 * the system cannot wait for so many. */
int sf_wait_moment(struct pollfd *fds, int count, int timeout_ms);
/* Waits until the descriptor is ready for `events` (POLLIN, POLLOUT) or its other end is gone. A deadline that has passed comes first. */
enum sf_waited sf_wait_for(struct sf_wait *wait, int fd, short events);

/* Whole messages on a descriptor, which may be one that does not block; false on end of file or error. */
bool sf_fd_write(int fd, const void *data, size_t size_bytes);
bool sf_fd_read(int fd, void *data, size_t size_bytes);

#endif
