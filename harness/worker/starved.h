/* Tells a rank that hangs from one that a busy machine does not let run. */
#ifndef SF_WORKER_STARVED_H
#define SF_WORKER_STARVED_H

#include <sys/types.h>

/* A deadline that does not count such time ends after so many times its seconds in any case. */
enum { SF_LIMIT_FACTOR = 10 };

/* The process at the other end of a Unix socket; 0 when it is not known. */
pid_t sf_peer_pid(int fd);
/* For how many seconds, since it began, the process's first thread could have run but had no processor. A thread that waits collects none;
 * one that spins beside others does. 0 when the kernel does not say, or there is no such process. For signal handlers too: it takes no
 * lock. */
double sf_starved_seconds(pid_t pid);

#endif
