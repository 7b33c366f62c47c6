/* Processes that share one processor have to wait for it; one that sleeps does not. */
#include "harness/worker/starved.h"

#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { SPINNERS = 3, TRIES = 600 };

static pid_t start(bool spins) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  cpu_set_t one;
  CPU_ZERO(&one);
  for (size_t cpu = 0; cpu < CPU_SETSIZE && sched_setaffinity(0, sizeof one, &one) != 0; cpu++) {
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
  }
  alarm(120);
  for (volatile int64_t i = 0; spins; i++) continue;
  for (;;) pause();
}

static void end(pid_t pid) {
  kill(pid, SIGKILL);
  waitpid(pid, NULL, 0);
}

/* Waits until each of them has been kept waiting that long; false when that takes a minute. */
static bool wait_until_starved(const pid_t *spinners, double seconds) {
  for (int k = 0; k < TRIES; k++) {
    int there = 0;
    for (int i = 0; i < SPINNERS; i++) there += sf_starved_seconds(spinners[i]) >= seconds;
    if (there == SPINNERS) return true;
    usleep(100000);
  }
  return false;
}

static void test_starved_seconds_grow_while_a_processor_is_shared(void **state) {
  (void)state;
  if (access("/proc/self/schedstat", R_OK) != 0) skip();
  pid_t spinners[SPINNERS];
  const pid_t sleeper = start(false);
  for (int i = 0; i < SPINNERS; i++) spinners[i] = start(true);
  const bool began = wait_until_starved(spinners, 0.3); /* by then the sleeper sleeps */
  const double before = sf_starved_seconds(sleeper);
  const bool went_on = wait_until_starved(spinners, 0.6);
  const double after = sf_starved_seconds(sleeper);
  for (int i = 0; i < SPINNERS; i++) end(spinners[i]);
  end(sleeper);
  assert_true(began && went_on);
  assert_true(after == before && after < 0.6);
  assert_true(sf_starved_seconds(sleeper) == 0);
  assert_true(sf_starved_seconds(0) == 0);
}

static void test_peer_pid_is_that_of_who_connected(void **state) {
  (void)state;
  int ends[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  assert_int_equal(sf_peer_pid(ends[0]), getpid());
  close(ends[0]);
  close(ends[1]);
  assert_int_equal(sf_peer_pid(-1), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_starved_seconds_grow_while_a_processor_is_shared),
      cmocka_unit_test(test_peer_pid_is_that_of_who_connected),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
