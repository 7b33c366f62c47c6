#include "harness/worker/wait.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static void test_wait_for_tells_what_comes_first(void **state) {
  int ends[2];
  volatile sig_atomic_t stop = 0;
  struct sf_wait wait = {.seconds = 0.12, .stop = &stop};
  (void)state;
  assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
  assert_int_equal(sf_wait_for(&wait, ends[0], POLLIN), SF_WAIT_LATE);
  assert_int_equal(write(ends[1], "x", 1), 1);
  assert_int_equal(sf_wait_for(&wait, ends[0], POLLIN), SF_WAIT_LATE); /* also where something is there: a talker has a deadline too */
  wait = (struct sf_wait){.seconds = 60, .stop = &stop};
  assert_int_equal(sf_wait_for(&wait, ends[0], POLLIN), SF_WAIT_READY);
  stop = 1;
  assert_int_equal(sf_wait_for(&wait, ends[0], POLLIN), SF_WAIT_STOPPED);
  close(ends[1]);
  stop = 0;
  assert_int_equal(sf_wait_for(&wait, ends[0], POLLIN), SF_WAIT_READY); /* the other end is gone */
  close(ends[0]);
}

static void on_alarm(int number) { (void)number; }

static void test_wait_moment_after_a_signal_nothing_is_ready(void **state) {
  int ends[2];
  const struct sigaction action = {.sa_handler = on_alarm};
  (void)state;
  assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
  struct pollfd fd = {ends[0], POLLIN, POLLIN};
  sigaction(SIGALRM, &action, NULL);
  alarm(1);
  assert_int_equal(sf_wait_moment(&fd, 1, 20000), 0);
  assert_int_equal(fd.revents, 0);
  close(ends[0]);
  close(ends[1]);
}

/* More than a socket holds, through one that does not block, and a pipe. */
static void test_fd_whole_messages_come_over(void **state) {
  static char out[1 << 20], in[1 << 20];
  int ends[2];
  (void)state;
  for (size_t i = 0; i < sizeof out; i++) out[i] = (char)(i * 7);
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  const pid_t reader = fork();
  if (reader == 0) {
    usleep(20000);
    _exit(sf_fd_read(ends[0], in, sizeof in) && sf_fd_write(ends[0], in, sizeof in) ? 0 : 1);
  }
  close(ends[0]);
  assert_true(sf_fd_write(ends[1], out, sizeof out));
  assert_true(sf_fd_read(ends[1], in, sizeof in));
  assert_memory_equal(in, out, sizeof in);
  assert_false(sf_fd_read(ends[1], in, 1));
  close(ends[1]);
  assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
  assert_true(sf_fd_write(ends[1], out, 100));
  assert_true(sf_fd_read(ends[0], in, 100));
  close(ends[0]);
  close(ends[1]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_wait_for_tells_what_comes_first),
      cmocka_unit_test(test_wait_moment_after_a_signal_nothing_is_ready),
      cmocka_unit_test(test_fd_whole_messages_come_over),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
