/* Commands that start sets of ranks: how they are put together and what their processes inherit. */
#ifndef SF_WORKER_LAUNCHER_H
#define SF_WORKER_LAUNCHER_H

#include <stdint.h>

/* A listening Unix socket at path, closed on exec; -1 when it cannot be made (errno says why). */
int sf_launcher_listen(const char *path, int32_t connections);
/* Closes every descriptor of this process from 3 on but those of keep, which is in ascending order: a process forked to watch over others
 * must not hold their locks and sockets open. */
void sf_launcher_close_others(const int *keep, int32_t count);
/* Becomes the launcher: /bin/sh -c command, which ends with its parent, with what Open MPI needs so that several sets share few cores (no
 * binding, yielding waits, root allowed, ranks killed at once) unless the environment says otherwise. output_fd: where stdout and stderr
 * go; -1 = they stay. */
_Noreturn void sf_launcher_become(const char *command, int output_fd);

#endif
