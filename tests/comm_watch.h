/* For tests of the simulator: shows each call of a rank before it is made. One set of calls at a time. */
#ifndef SF_TESTS_COMM_WATCH_H
#define SF_TESTS_COMM_WATCH_H

#include "harness/comm/comm.h"

typedef void comm_watcher(struct sf_comm *comm, const struct sf_comm_call *call);
static const struct sf_comm_ops *comm_watched;
static comm_watcher *comm_watcher_now;

static sf_request comm_watch_start(struct sf_comm *comm, const struct sf_comm_call *call, bool blocking) {
  comm_watcher_now(comm, call);
  return comm_watched->start(comm, call, blocking);
}
static void comm_watch_wait(struct sf_comm *comm, sf_request request) { comm_watched->wait(comm, request); }
__attribute__((noreturn)) static void comm_watch_fail(struct sf_comm *comm, enum sf_status status, enum sf_manner manner,
                                                      const char *text) {
  (comm_watched->fail)(comm, status, manner, text); /* cmocka has a macro of that name */
}

/* In the rank's program, before its first call. The watcher runs on the rank's stack: it notes, and the test asserts afterwards. */
static inline void comm_watch(struct sf_comm *comm, comm_watcher *watcher) {
  static const struct sf_comm_ops ops = {"watched", comm_watch_start, comm_watch_wait, comm_watch_fail};
  comm_watched = comm->ops;
  comm_watcher_now = watcher;
  comm->ops = &ops;
}

#endif
