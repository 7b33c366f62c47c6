#include "harness/worker/watcher.h"

#include "harness/base/system/temporary.h"
#include "harness/worker/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* A process that stays until it is killed, out of its parent's group and session, its parent gone at once. */
static void leave_behind(void) {
  if (fork() != 0) return;
  setsid();
  if (fork() != 0) _exit(0);
  for (;;) pause();
}

static void nobody_else(void) {}
static void end_own_group(void) { kill(0, SIGKILL); }
static void end_quietly(void) { _exit(7); }
static void stay(void) {
  for (;;) pause();
}
static int known[2]; /* written once the owner knows its ward */
static void end_watcher(void) {
  char byte;
  (void)!read(known[0], &byte, 1);
  kill(getppid(), SIGKILL);
  stay();
}

/* How a ward ended that ran both; returns once every process that it started is gone, which the pipe's end tells. */
static int run_ward(void (*before)(void), void (*last)(void), bool ended_by_itself) {
  struct sf_watcher watcher;
  int held[2];
  char byte;
  assert_int_equal(pipe2(held, O_CLOEXEC), 0);
  assert_int_equal(pipe2(known, O_CLOEXEC), 0);
  const pid_t pid = sf_watcher_fork(&watcher, SF_WARD_CODE, 0, -1);
  if (pid == 0) {
    before();
    last();
    _exit(0);
  }
  assert_true(pid > 0);
  assert_int_equal(watcher.ward, pid);
  assert_int_equal(write(known[1], "k", 1), 1);
  close(held[1]);
  if (ended_by_itself) assert_int_equal(read(held[0], &byte, 1), 0);
  const int how = sf_watcher_end(&watcher);
  if (!ended_by_itself) assert_int_equal(read(held[0], &byte, 1), 0);
  close(held[0]);
  close(known[0]);
  close(known[1]);
  assert_int_equal(watcher.pid, 0);
  return how;
}

static void test_watcher_end_tells_how_the_ward_ended(void **state) {
  (void)state;
  const int quietly = run_ward(nobody_else, end_quietly, true), killed = run_ward(nobody_else, end_own_group, true),
            asked = run_ward(nobody_else, stay, false);
  assert_true(WIFEXITED(quietly));
  assert_int_equal(WEXITSTATUS(quietly), 7);
  assert_int_equal(WTERMSIG(killed), SIGKILL);
  assert_int_equal(WTERMSIG(asked), SIGKILL);
}

static void test_watcher_ward_with_orphans_leaves_none(void **state) {
  (void)state;
  run_ward(leave_behind, end_quietly, true);
  run_ward(leave_behind, end_own_group, true);
  run_ward(leave_behind, stay, false);
}

static void test_watcher_killed_by_its_ward_ends_it(void **state) {
  (void)state;
  assert_int_equal(WTERMSIG(run_ward(nobody_else, end_watcher, false)), SIGKILL);
}

static void test_watcher_owner_killed_leaves_none(void **state) {
  int held[2];
  char byte = 0;
  (void)state;
  assert_int_equal(pipe(held), 0);
  const pid_t owner = fork();
  if (owner == 0) {
    struct sf_watcher watcher;
    if (sf_watcher_fork(&watcher, SF_WARD_CODE, 0, -1) == 0) {
      leave_behind();
      (void)!write(held[1], &byte, 1);
    }
    stay();
  }
  close(held[1]);
  assert_int_equal(read(held[0], &byte, 1), 1); /* all of them are there */
  kill(owner, SIGKILL);
  waitpid(owner, NULL, 0);
  assert_int_equal(read(held[0], &byte, 1), 0);
  close(held[0]);
}

/* --- launchers -------------------------------------------------------------------------------------------------- */

/* A launcher that cleans up once its rank, in a session of its own, is gone. */
static void launch(int told) {
  const pid_t rank = fork();
  if (rank == 0) {
    setsid();
    (void)!write(told, "r", 1);
    stay();
  }
  waitpid(rank, NULL, 0);
  (void)!write(told, "c", 1);
  _exit(3);
}

static void launch_nothing(int told) {
  (void)!write(told, "r", 1);
  stay();
}

static void launch_deaf(int told) {
  signal(SIGTERM, SIG_IGN);
  launch_nothing(told);
}

/* How a launcher that is ended by us ends; said: what it and its ranks wrote after the first byte. kills_watcher: not we end it, but
 * whoever kills its watcher. */
static int run_launcher(void (*launcher)(int told), char *said, size_t size, bool kills_watcher) {
  struct sf_watcher watcher;
  int told[2];
  assert_int_equal(pipe2(told, O_CLOEXEC), 0);
  if (sf_watcher_fork(&watcher, SF_WARD_LAUNCHER, 300, told[1]) == 0) launcher(told[1]);
  close(told[1]);
  assert_int_equal(read(told[0], said, 1), 1);
  if (kills_watcher) kill(watcher.pid, SIGKILL);
  const int how = sf_watcher_end(&watcher);
  size_t length = 0;
  for (ssize_t got; length < size - 1 && (got = read(told[0], said + length, size - 1 - length)) > 0;) length += (size_t)got;
  said[length] = '\0';
  close(told[0]); /* its end was read: nobody holds it any more */
  return how;
}

static void test_watcher_launcher_sees_its_ranks_end_and_cleans_up(void **state) {
  char said[8];
  (void)state;
  const int how = run_launcher(launch, said, sizeof said, false);
  assert_true(WIFEXITED(how));
  assert_int_equal(WEXITSTATUS(how), 3);
  assert_string_equal(said, "c");
}

static void test_watcher_launcher_without_ranks_is_asked_and_then_killed(void **state) {
  char said[8];
  (void)state;
  assert_int_equal(WTERMSIG(run_launcher(launch_nothing, said, sizeof said, false)), SIGTERM);
  assert_int_equal(WTERMSIG(run_launcher(launch_deaf, said, sizeof said, false)), SIGKILL);
}

static void test_watcher_of_a_launcher_killed_the_launcher_is_asked(void **state) {
  char said[8];
  (void)state;
  run_launcher(launch_nothing, said, sizeof said, true);
  assert_string_equal(said, "");
}

struct confined {
  int wrong; /* 0: all is as it should be */
  char folder[200];
};

/* In the ward. Signal 0 reaches nobody. */
static struct confined confine(void) {
  struct confined seen = {.wrong = 0};
  struct stat info;
  char path[220];
  const bool has_filters = prctl(PR_GET_SECCOMP, 0, 0, 0, 0) >= 0;
  sf_confine(true);
  const char *folder = getenv("TMPDIR");
  snprintf(seen.folder, sizeof seen.folder, "%s", folder ? folder : "");
  snprintf(path, sizeof path, "%s/file", seen.folder);
  if (!folder || stat(folder, &info) != 0 || (info.st_mode & 0777) != 0700)
    seen.wrong = 1;
  else if (open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600) < 0)
    seen.wrong = 2;
  else if (has_filters && access("/proc/driver/nvidia", F_OK) != 0 && (kill(-1, 0) == 0 || errno != EPERM))
    seen.wrong = 3;
  else if (kill(0, 0) != 0 || kill(getpid(), 0) != 0)
    seen.wrong = 4;
  return seen;
}

static bool is_gone_soon(const char *path) {
  struct stat info;
  for (int i = 0; i < 500 && stat(path, &info) == 0; i++) usleep(10000);
  return stat(path, &info) != 0;
}

/* A confined ward that says what it saw and stays. */
static struct confined confined_ward(struct sf_watcher *watcher) {
  struct confined seen;
  int told[2];
  assert_int_equal(pipe2(told, O_CLOEXEC), 0);
  if (sf_watcher_fork(watcher, SF_WARD_CODE, 0, -1) == 0) {
    seen = confine();
    (void)!write(told[1], &seen, sizeof seen);
    stay();
  }
  close(told[1]);
  assert_int_equal(read(told[0], &seen, sizeof seen), (ssize_t)sizeof seen);
  close(told[0]);
  return seen;
}

static void test_watcher_confine_makes_a_folder_that_the_end_removes(void **state) {
  struct sf_watcher watcher;
  struct stat info;
  (void)state;
  const struct confined seen = confined_ward(&watcher);
  assert_int_equal(seen.wrong, 0);
  assert_int_equal(stat(seen.folder, &info), 0);
  sf_watcher_end(&watcher);
  assert_true(is_gone_soon(seen.folder));
}

static void test_watcher_killed_its_folder_is_removed(void **state) {
  struct sf_watcher watcher;
  (void)state;
  const struct confined seen = confined_ward(&watcher);
  assert_int_equal(kill(watcher.pid, SIGKILL), 0);
  assert_true(is_gone_soon(seen.folder));
  sf_watcher_end(&watcher);
}

int main(void) {
  alarm(60); /* a process that stays would be waited for without end */
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_watcher_end_tells_how_the_ward_ended),
      cmocka_unit_test(test_watcher_ward_with_orphans_leaves_none),
      cmocka_unit_test(test_watcher_killed_by_its_ward_ends_it),
      cmocka_unit_test(test_watcher_owner_killed_leaves_none),
      cmocka_unit_test(test_watcher_launcher_sees_its_ranks_end_and_cleans_up),
      cmocka_unit_test(test_watcher_launcher_without_ranks_is_asked_and_then_killed),
      cmocka_unit_test(test_watcher_of_a_launcher_killed_the_launcher_is_asked),
      cmocka_unit_test(test_watcher_confine_makes_a_folder_that_the_end_removes),
      cmocka_unit_test(test_watcher_killed_its_folder_is_removed),
  };
  /* A base of its own: what others make beside a folder of the dead removes it. */
  char base[] = "/tmp/sf_watcher_XXXXXX";
  if (!mkdtemp(base) || setenv("TMPDIR", base, 1) != 0) return 1;
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  sf_remove_tree(base);
  return failed;
}
