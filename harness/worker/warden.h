/* A process that stands between us and one that runs code we do not trust further than a crash (a plugin, another program). When that
 * process, the ward, has ended, or we ask for its end, or we are gone, the warden kills every process that the ward brought into being,
 * however it detached itself. So no child of a plugin keeps a dead ward's descriptors open, and none outlives us. */
#ifndef SF_WORKER_WARDEN_H
#define SF_WORKER_WARDEN_H

#include <stdbool.h>
#include <sys/types.h>

struct sf_warden {
  pid_t pid;  /* of the warden; 0: none */
  pid_t ward; /* of the process that it watches, the leader of a process group of its own */
  int told;   /* where the warden says how the ward ended */
};

/* Forks, as fork() does: returns 0 in the ward, the ward's id in the caller once it runs, -1 (errno) on failure. The ward has the signal
 * mask and the descriptors of the caller, and dies with its warden. grace_ms: how long processes that the ward leaves behind may take to
 * end by themselves before they are killed (0 for plugins; watchers of our own need a moment to clean up). */
pid_t sf_warden_fork(struct sf_warden *out, int grace_ms);
/* Asks for the end and does not wait: for many of them at once. */
void sf_warden_ask(const struct sf_warden *warden);
/* Ends the ward, if it has not ended, and all that it left; returns how the ward ended, as waitpid tells it. Takes a zeroed one. */
int sf_warden_end(struct sf_warden *warden);

/* For the ward, before it runs code of a plugin. with_folder: makes a temporary folder (harness/base/temporary) that TMPDIR names, and its
 * keeper, which removes it when the ward and all its processes are gone; not in an MPI job, whose libraries may not survive a fork.
 * Forbids signals to every process at once: a plugin that passes the result of a failed fork to kill calls kill(-1, ..). Goes on without
 * protections that this system lacks. */
void sf_warden_confine(bool with_folder);

#endif
