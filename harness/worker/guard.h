/* A process that stands between us and a launched set of ranks and sees to its end: every process that the launcher brought into being,
 * however it detached itself, is killed by its pid when we ask for it, when we are gone (killed, too), or when the launcher ends by itself.
 */
#ifndef SF_WORKER_GUARD_H
#define SF_WORKER_GUARD_H

#include "harness/base/status.h"

#include <stdbool.h>
#include <sys/types.h>

struct sf_guard {
  pid_t pid;     /* 0: none */
  int hold_fd;   /* readable (end of file) once everything has ended */
  int output_fd; /* what the set prints, not blocking; end of file once everything has ended */
};

/* Forks the guard and, through it, /bin/sh -c command. held: -1, or a descriptor that the guard keeps open until all of the set has ended.
 * SF_EIO. */
enum sf_status sf_guard_start(struct sf_guard *out, const char *command, int held, struct sf_error *error) SF_MUST_USE;
/* Ends the set and waits for it: a second for the launcher to clean up, then all are gone. Takes a zeroed one. */
void sf_guard_end(struct sf_guard *guard);

#endif
