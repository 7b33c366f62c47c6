/* A zygote: a worker's process that has imported its framework, runs no case, and forks the ranks of sets (targets/worker.md). A set then
 * costs a fork in place of a start of the interpreter and the imports, and its ranks share the memory of what was imported.
 *
 * It listens on a Unix socket. Each connection is one set: the process that leads the set holds its other end, kills whatever the ranks
 * have started once we close ours, and closes its own when nothing of the set is left. */
#ifndef SF_WORKER_ZYGOTE_H
#define SF_WORKER_ZYGOTE_H

#include <stdbool.h>
#include <stdint.h>

/* Asks the zygote at `path` for ranks that connect to the socket `meeting`. output_fd: where they print. held: -1, or a descriptor that
 * stays open until the last of them has ended. Returns the set's connection, readable once nothing of the set is left; -1: nobody listens
 * there. */
int sf_zygote_fork(const char *path, int32_t ranks, const char *meeting, int output_fd, int held);
bool sf_zygote_lives(const char *path);
/* Ends the set and closes its connection. Returns the processor seconds that its ranks have used; -1: its leader did not say. */
double sf_zygote_end(int fd);

#endif
