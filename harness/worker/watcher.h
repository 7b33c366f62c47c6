/* A process that stands between us and one that we do not trust further than a crash, the ward: one that loads a plugin, another program,
 * the launcher of a set of ranks. When the ward has ended, or we ask for its end, or we are gone (killed, too), the watcher kills every
 * process that the ward brought into being, by its id, however it detached itself. So no child of a plugin keeps a dead ward's descriptors
 * open, and none outlives us. */
#ifndef SF_WORKER_WATCHER_H
#define SF_WORKER_WATCHER_H

#include <stdbool.h>
#include <sys/types.h>

/* How a ward that has not ended is ended. A launcher whose ranks are gone cleans up and ends, while one that is killed leaves files, and
 * one that is told to end may leave ranks spinning. Any other ward dies at once. */
enum sf_ward {
  SF_WARD_CODE,     /* its process group is killed at once, which no fork of its members escapes */
  SF_WARD_LAUNCHER, /* its descendants first; it is asked to end when it has none */
};

struct sf_watcher {
  pid_t pid;  /* of the watcher; 0: none */
  pid_t ward; /* of the process that it watches, the leader of a process group of its own */
  int told;   /* readable, or at its end, once everything has ended; where the watcher says how the ward ended */
  enum sf_ward kind;
};

/* Forks, as fork() does: returns 0 in the ward, the ward's id in the caller once it runs, -1 (errno) on failure. The ward has the signal
 * mask and the descriptors of the caller, and dies with its watcher. grace_ms: how long what the ward leaves behind (0 for plugins;
 * watchers of our own need a moment to clean up), or a launcher whose ranks are gone, may take to end before it is killed. held: -1, or a
 * descriptor that the watcher keeps open until everything has ended. */
pid_t sf_watcher_fork(struct sf_watcher *out, enum sf_ward kind, int grace_ms, int held);
/* Asks for the end and does not wait: for many of them at once. */
void sf_watcher_ask(const struct sf_watcher *watcher);
/* Ends the ward, if it has not ended, and all that it left; returns how the ward ended, as waitpid tells it. Takes a zeroed one. */
int sf_watcher_end(struct sf_watcher *watcher);

/* Closes every descriptor of this process from 3 on but these two (-1: none): a process that watches over others must not hold their locks
 * and sockets open. */
void sf_close_others(int keep, int keep_too);

#endif
