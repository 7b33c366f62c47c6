#include "harness/worker/guard.h"

#include "harness/worker/descendants.h"
#include "harness/worker/launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* After its ranks are gone, the launcher has CLEAN_MS to remove its session's files; then the rest is killed, at most KILL_ROUNDS times. */
enum { CLEAN_MS = 1000, PAUSE_MS = 5, KILL_ROUNDS = 400 };

/* --- the guard's side ------------------------------------------------------------------------------------------- */

/* Reaps ended processes. False when none is left; *launcher becomes 0 when it was among them. */
static bool reap(pid_t *launcher) {
  for (;;) {
    const pid_t pid = waitpid(-1, NULL, WNOHANG);
    if (pid == 0 || (pid < 0 && errno == EINTR)) return true;
    if (pid < 0) return false;
    if (pid == *launcher) *launcher = 0;
  }
}

/* Ends the ranks first: a launcher whose ranks are gone cleans up and ends, while a launcher that is told to end may leave ranks
 * spinning. */
static void end_all(pid_t launcher) {
  if (launcher && sf_descendants_kill(launcher) == 0) kill(launcher, SIGTERM);
  for (int32_t waited = 0; launcher && waited < CLEAN_MS && reap(&launcher); waited += PAUSE_MS) usleep(PAUSE_MS * 1000);
  for (int32_t round = 0; round < KILL_ROUNDS && reap(&launcher); round++) {
    sf_descendants_kill_own();
    usleep(PAUSE_MS * 1000);
  }
}

/* Waits until we are asked to end, our owner is gone, or the launcher has ended. */
static void watch(int hold_fd, int signal_fd, pid_t *launcher) {
  struct signalfd_siginfo info;
  struct pollfd fds[2] = {{hold_fd, POLLIN, 0}, {signal_fd, POLLIN, 0}};
  for (;;) {
    if ((poll(fds, 2, -1) < 0 && errno != EINTR) || fds[0].revents) return;
    if (!fds[1].revents || read(signal_fd, &info, sizeof info) != (ssize_t)sizeof info) continue;
    if (info.ssi_signo == SIGTERM || !reap(launcher) || *launcher == 0) return;
  }
}

static int by_number(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

static _Noreturn void guard_main(int hold_fd, int output_fd, int held, pid_t owner, const char *command) {
  sigset_t watched;
  sigemptyset(&watched);
  sigaddset(&watched, SIGTERM);
  sigaddset(&watched, SIGCHLD);
  sigprocmask(SIG_BLOCK, &watched, NULL);
  signal(SIGINT, SIG_IGN);
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  prctl(PR_SET_CHILD_SUBREAPER, 1); /* we inherit ranks whose launcher is gone */
  int keep[3] = {hold_fd, output_fd, held};
  qsort(keep, 3, sizeof keep[0], by_number);
  sf_launcher_close_others(keep + (held < 0), held < 0 ? 2 : 3);
  const int signal_fd = signalfd(-1, &watched, SFD_CLOEXEC), nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (signal_fd < 0 || nothing < 0 || getppid() != owner) _exit(0);
  dup2(nothing, STDIN_FILENO);
  pid_t launcher = fork();
  if (launcher == 0) {
    sigprocmask(SIG_UNBLOCK, &watched, NULL);
    sf_launcher_become(command, output_fd);
  }
  const int cause = launcher < 0 ? errno : 0;
  close(output_fd);
  (void)!send(hold_fd, &cause, sizeof cause, MSG_NOSIGNAL);
  if (launcher > 0) watch(hold_fd, signal_fd, &launcher);
  end_all(launcher > 0 ? launcher : 0);
  _exit(0);
}

/* --- the owner's side ------------------------------------------------------------------------------------------- */

/* Reads whether the launcher's process has started, or why not. */
static enum sf_status hear_start(struct sf_guard *guard, struct sf_error *error) {
  int cause = 0;
  ssize_t got;
  do got = recv(guard->hold_fd, &cause, sizeof cause, 0);
  while (got < 0 && errno == EINTR);
  if (got == (ssize_t)sizeof cause && cause == 0) return SF_OK;
  sf_guard_end(guard);
  return sf_error_set(error, SF_EIO, "a set of ranks could not be started: %s", sf_errno_text(cause ? cause : EMFILE).text);
}

enum sf_status sf_guard_start(struct sf_guard *out, const char *command, int held, struct sf_error *error) {
  int hold[2] = {-1, -1}, output[2] = {-1, -1};
  const pid_t owner = getpid();
  fflush(NULL);
  const bool open_ = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, hold) == 0 && pipe2(output, O_CLOEXEC) == 0;
  const pid_t pid = open_ ? fork() : -1;
  if (pid == 0) {
    close(hold[0]);
    guard_main(hold[1], output[1], held, owner, command);
  }
  const int cause = errno;
  for (int32_t i = 0; i < 2; i++) {
    const bool kept = pid > 0 && i == 0;
    if (!kept && hold[i] >= 0) close(hold[i]);
    if (!kept && output[i] >= 0) close(output[i]);
  }
  if (pid < 0) return sf_error_set(error, SF_EIO, "a set of ranks could not be started: %s", sf_errno_text(cause).text);
  fcntl(output[0], F_SETFL, O_NONBLOCK);
  *out = (struct sf_guard){pid, hold[0], output[0]};
  return hear_start(out, error);
}

void sf_guard_end(struct sf_guard *guard) {
  const char ask = 'e';
  if (guard->pid <= 0) return;
  (void)!send(guard->hold_fd, &ask, 1, MSG_NOSIGNAL);
  while (waitpid(guard->pid, NULL, 0) < 0 && errno == EINTR) continue;
  close(guard->hold_fd);
  close(guard->output_fd);
  memset(guard, 0, sizeof *guard);
}
