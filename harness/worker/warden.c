#include "harness/worker/warden.h"

#include "harness/base/system/temporary.h"
#include "harness/worker/descendants.h"
#include "harness/worker/launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Kills the rest at most KILL_ROUNDS times: a process that the kernel does not let die must not block us for ever. */
enum { PAUSE_MS = 5, KILL_ROUNDS = 400 };

/* --- the warden's side ------------------------------------------------------------------------------------------ */

/* Waits for one of the signals for `ms` milliseconds, or for ever (-1); returns its number, or -1. */
static int wait_for(const sigset_t *signals, int ms) {
  const struct timespec moment = {ms / 1000, (ms % 1000) * 1000000L};
  return ms < 0 ? sigwaitinfo(signals, NULL) : sigtimedwait(signals, NULL, &moment);
}

/* Reaps ended processes. False when none is left. If the ward was among them, *ward becomes 0 and *how its status. */
static bool reap(pid_t *ward, int *how) {
  for (;;) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid == 0 || (pid < 0 && errno == EINTR)) return true;
    if (pid < 0) return false;
    if (pid != *ward) continue;
    *ward = 0;
    *how = status;
  }
}

/* Reaps orphans. Returns whether the ward has ended; it does not reap the ward, so that its group's number stays taken. */
static bool has_ended(pid_t ward) {
  siginfo_t info;
  for (;;) {
    info.si_pid = 0;
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0) return true;
    if (info.si_pid == 0) return false;
    if (info.si_pid == ward) return true;
    waitpid(info.si_pid, NULL, 0);
  }
}

/* Ends the ward's group at once, which no fork of its members escapes, then the processes that left the group. */
static int end_all(pid_t ward, const sigset_t *signals, int grace_ms) {
  int how = 0;
  kill(-ward, SIGKILL);
  for (int waited = 0; reap(&ward, &how) && waited < grace_ms; waited += PAUSE_MS) wait_for(signals, PAUSE_MS);
  for (int round = 0; round < KILL_ROUNDS && reap(&ward, &how); round++) {
    if (ward == 0) sf_descendants_kill_own();
    wait_for(signals, PAUSE_MS);
  }
  return how;
}

static _Noreturn void watch(pid_t ward, const sigset_t *signals, int told, int grace_ms) {
  sf_launcher_close_others(&told, 1);
  while (!has_ended(ward) && wait_for(signals, -1) != SIGTERM) continue;
  const int how = end_all(ward, signals, grace_ms);
  (void)!write(told, &how, sizeof how);
  _exit(0);
}

/* --- the owner's side ------------------------------------------------------------------------------------------- */

static bool hear(int told, void *out, size_t size) {
  ssize_t got;
  do got = read(told, out, size);
  while (got < 0 && errno == EINTR);
  return got == (ssize_t)size;
}

/* In the new process: becomes the warden, or returns in its ward. */
static void become_warden(struct sf_warden *out, pid_t owner, const int told[2], int grace_ms) {
  sigset_t signals, before;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGCHLD);
  sigprocmask(SIG_BLOCK, &signals, &before);
  signal(SIGCHLD, SIG_DFL);
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  prctl(PR_SET_CHILD_SUBREAPER, 1); /* we inherit orphans */
  if (getppid() != owner) _exit(0);
  const pid_t warden = getpid(), ward = fork();
  if (ward < 0) _exit(0);
  if (ward > 0) {
    setpgid(ward, ward);
    watch(ward, &signals, told[1], grace_ms);
  }
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != warden) _exit(0);
  out->ward = getpid();
  (void)!write(told[1], &out->ward, sizeof out->ward);
  close(told[0]);
  close(told[1]);
  sigprocmask(SIG_SETMASK, &before, NULL);
}

pid_t sf_warden_fork(struct sf_warden *out, int grace_ms) {
  int told[2];
  memset(out, 0, sizeof *out);
  if (pipe2(told, O_CLOEXEC) != 0) return -1;
  const pid_t owner = getpid();
  fflush(NULL);
  out->pid = fork();
  if (out->pid == 0) {
    become_warden(out, owner, told, grace_ms);
    return 0;
  }
  const int cause = errno;
  close(told[1]);
  out->told = told[0];
  if (out->pid > 0 && hear(out->told, &out->ward, sizeof out->ward)) return out->ward;
  if (out->pid > 0) waitpid(out->pid, NULL, 0);
  close(out->told);
  errno = out->pid > 0 ? EAGAIN : cause;
  out->pid = 0;
  return -1;
}

void sf_warden_ask(const struct sf_warden *warden) {
  if (warden->pid <= 0) return;
  kill(warden->pid, SIGTERM);
  kill(warden->pid, SIGCONT); /* it may be stopped */
}

int sf_warden_end(struct sf_warden *warden) {
  int how = SIGKILL;
  if (warden->pid <= 0) return 0;
  sf_warden_ask(warden);
  /* A warden that its ward has killed reports nothing; the ward died with it. */
  if (!hear(warden->told, &how, sizeof how)) kill(-warden->ward, SIGKILL);
  while (waitpid(warden->pid, NULL, 0) < 0 && errno == EINTR) continue;
  close(warden->told);
  memset(warden, 0, sizeof *warden);
  return how;
}

/* --- the ward's side -------------------------------------------------------------------------------------------- */

#if defined __x86_64__
#define THIS_ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined __aarch64__
#define THIS_ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

/* Refuses kill(-1, ..) with EPERM. A filter that is set without privileges would also forbid programs that gain some, as CUDA's
 * nvidia-modprobe does. So on a machine with such a driver, processes without privileges go without the filter. */
static void forbid_signals_to_all(void) {
#ifdef THIS_ARCHITECTURE
  static struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, THIS_ARCHITECTURE, 0, 5),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_kill, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)), /* its low half: both machines are little-endian */
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, UINT32_MAX, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
  /* SPEC_ALLOW: without it older kernels would slow the process's memory down. */
  if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program) == 0 ||
      access("/proc/driver/nvidia", F_OK) == 0)
    return;
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0)
    (void)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program);
#endif
}

/* The lock stays open until the process has ended. */
static void make_folder(void) {
  const char *base = getenv("TMPDIR");
  struct sf_temporary folder;
  if (sf_temporary_create(&folder, base && *base ? base : "/tmp", NULL) != SF_OK) return;
  sf_temporary_keep(&folder);
  setenv("TMPDIR", folder.path, 1);
}

void sf_warden_confine(bool with_folder) {
  if (with_folder) make_folder();
  forbid_signals_to_all();
}
