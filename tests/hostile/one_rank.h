/* A set of one rank without processes: what the rank says is written here. */
#ifndef TESTS_HOSTILE_ONE_RANK_H
#define TESTS_HOSTILE_ONE_RANK_H

#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/worker/worker_set.h"

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct one_rank {
  struct sf_rank_set set;
  int other; /* the rank's end of the connection */
};

static inline void one_rank_open(struct one_rank *out) {
  int ends[2], output[2];
  SF_ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  SF_ASSERT_EQ(pipe2(output, O_NONBLOCK | O_CLOEXEC), 0);
  close(output[1]);
  out->set = (struct sf_rank_set){
      .count = 1, .silent_seconds = 60, .leader_fd = -1, .listen_fd = -1, .output_fd = output[0], .watcher = {.told = -1}};
  out->set.ranks = sf_alloc(sizeof *out->set.ranks);
  out->set.fds = sf_alloc(16 * sizeof *out->set.fds);
  SF_ASSERT(out->set.ranks != NULL && out->set.fds != NULL);
  memset(out->set.ranks, 0, sizeof *out->set.ranks);
  out->set.ranks[0].fd = ends[0];
  out->set.ranks[0].greeted = true;
  out->other = ends[1];
}

/* Asks the rank, which has said these bytes already, as many as a socket takes at once. is_last: it says no more. */
static inline void one_rank_ask(struct one_rank *rank, struct sf_worker_report *report, const char *bytes, size_t size_bytes,
                                bool is_last) {
  json_t *request = json_pack("{s:s}", "request", "run");
  SF_ASSERT_EQ(send(rank->other, bytes, size_bytes, MSG_NOSIGNAL), (ssize_t)size_bytes);
  if (is_last) shutdown(rank->other, SHUT_WR);
  SF_ASSERT_EQ(sf_worker_set_ask(&rank->set, report, request), SF_OK);
  json_decref(request);
}

static inline void one_rank_close(struct one_rank *rank) {
  sf_rank_set_destroy(&rank->set);
  close(rank->other);
}

#endif
