/* What a set says of ranks that are gone: all that happened is there before the set looks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "harness/worker/worker_set.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RANKS = 3 };

static void open_pair(int ends[2]) { assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0); }

static void put(int fd, const char *text) { assert_int_equal(write(fd, text, strlen(text)), strlen(text)); }

/* Asks a set of ranks that do as told, one letter each: w(aits), e(rror), g(one), x (error, then gone), y (an error of its own, then
 * gone). */
static struct sf_worker_report ask(const char *deeds) {
  struct sf_worker_report report;
  struct sf_rank ranks[RANKS] = {{0}};
  struct pollfd fds[RANKS + 8];
  int others[RANKS], leader[2];
  open_pair(leader); /* the ranks are a zygote's: no process has to be ended */
  put(leader[1], "0.5\n");
  shutdown(leader[1], SHUT_WR);
  struct sf_rank_set set = {
      .count = RANKS, .ranks = ranks, .fds = fds, .silent_seconds = 30, .leader_fd = leader[0], .listen_fd = -1, .output_fd = -1};
  for (int32_t i = 0; i < RANKS; i++) {
    int ends[2];
    open_pair(ends);
    ranks[i] = (struct sf_rank){.fd = ends[0], .greeted = true};
    others[i] = ends[1];
    if (strchr("ex", deeds[i])) put(ends[1], "{\"id\": 1, \"error\": \"EOFError: the peer is gone\"}\n");
    if (deeds[i] == 'y') put(ends[1], "{\"id\": 1, \"error\": \"ValueError: wrong\"}\n");
    if (strchr("gxy", deeds[i])) close(ends[1]), others[i] = -1;
  }
  json_t *request = json_object();
  assert_int_equal(sf_worker_set_ask(&set, &report, request), SF_OK);
  json_decref(request);
  for (int32_t i = 0; i < RANKS; i++) {
    if (others[i] >= 0) close(others[i]);
    sf_line_buffer_destroy(&ranks[i].lines);
  }
  close(leader[1]);
  return report;
}

/* A rank that is gone without an answer is the cause of errors that come with its end and tell of it, and of others' ends. */
static void test_ask_a_rank_that_died_comes_before_what_followed(void **state) {
  (void)state;
  static const char failed[] = "rank 0 failed and the set ended: EOFError: the peer is gone", said[] = "EOFError: the peer is gone";
  static const struct {
    const char *deeds;
    enum sf_worker_end end;
    int32_t rank;
    const char *text, *said;
  } rows[] = {{"wgw", SF_WORKER_DIED, 1, "rank 1 died", "rank 1 died"},
              {"egw", SF_WORKER_DIED, 1, "rank 1 died", "rank 1 died"},
              {"gee", SF_WORKER_DIED, 0, "rank 0 died", "rank 0 died"},
              {"ggw", SF_WORKER_DIED, -1, "2 ranks were gone at once: at least one rank died", "rank died"},
              {"ggg", SF_WORKER_DIED, -1, "3 ranks were gone at once: at least one rank died", "rank died"},
              {"xgw", SF_WORKER_DIED, 1, "rank 1 died", "rank 1 died"},
              {"ygw", SF_WORKER_ONE_SIDED, 0, "rank 0 failed and the set ended: ValueError: wrong", "ValueError: wrong"},
              {"ygg", SF_WORKER_ONE_SIDED, 0, "rank 0 failed and the set ended: ValueError: wrong", "ValueError: wrong"},
              {"xww", SF_WORKER_ONE_SIDED, 0, failed, said},
              {"xxx", SF_WORKER_ONE_SIDED, 0, failed, said}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    const struct sf_worker_report report = ask(rows[i].deeds);
    print_message("%s: %s\n", rows[i].deeds, report.text);
    assert_int_equal(report.end, rows[i].end);
    assert_int_equal(report.rank, rows[i].rank);
    assert_string_equal(report.text, rows[i].text);
    assert_string_equal(report.text + report.said, rows[i].said);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_ask_a_rank_that_died_comes_before_what_followed)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
