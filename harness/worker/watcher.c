#include "harness/worker/watcher.h"

#include "harness/base/system/temporary.h"
#include "harness/worker/wait.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Kills the rest at most KILL_ROUNDS times: a process that the kernel does not let die must not block us for ever. */
enum { PAUSE_MS = 5, KILL_ROUNDS = 400, PROCESSES_MAX = 65536, DEPTH_MAX = 64 };

void sf_close_others(int keep, int keep_too) {
  const int low = keep < keep_too ? keep : keep_too, high = keep < keep_too ? keep_too : keep;
  unsigned from = 3;
  for (int i = 0; i < 2; i++) {
    const int kept = i == 0 ? low : high;
    if (kept < (int)from) continue;
    if (kept > (int)from) close_range(from, (unsigned)kept - 1, 0);
    from = (unsigned)kept + 1;
  }
  close_range(from, ~0u, 0);
}

/* --- descendants ------------------------------------------------------------------------------------------------ */

/* Every process of the machine with its parent; static, since a watcher is a process of its own. */
static struct { pid_t pid, parent; } processes[PROCESSES_MAX];

static pid_t parent_of(const char *pid_text) {
  char path[64], line[512];
  snprintf(path, sizeof path, "/proc/%.20s/stat", pid_text);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const ssize_t length = read(fd, line, sizeof line - 1);
  close(fd);
  line[length > 0 ? length : 0] = '\0';
  const char *after = strrchr(line, ')'); /* the name may contain any character */
  char state;
  int parent = 0;
  if (!after || sscanf(after + 1, " %c %d", &state, &parent) != 2 || state == 'Z') return 0;
  return parent;
}

static int32_t list_processes(void) {
  int32_t count = 0;
  DIR *proc = opendir("/proc");
  if (!proc) return 0;
  for (const struct dirent *entry; count < PROCESSES_MAX && (entry = readdir(proc)) != NULL;) {
    if (entry->d_name[0] < '1' || entry->d_name[0] > '9') continue;
    const pid_t parent = parent_of(entry->d_name);
    if (parent > 0) {
      processes[count].pid = (pid_t)strtol(entry->d_name, NULL, 10);
      processes[count++].parent = parent;
    }
  }
  closedir(proc);
  return count;
}

static bool is_below(pid_t pid, pid_t root, int32_t count) {
  for (int32_t depth = 0; depth < DEPTH_MAX && pid > 1; depth++) {
    int32_t i = 0;
    while (i < count && processes[i].pid != pid) i++;
    if (i == count) return false;
    pid = processes[i].parent;
    if (pid == root) return true;
  }
  return false;
}

/* Spares keepers of temporary folders, which end by themselves when no process is left that could write there. */
static bool kill_one(pid_t pid) { return !sf_temporary_is_keeper(pid) && kill(pid, SIGKILL) == 0; }

/* Kills what descends from root, but not root itself; returns how many. It may miss processes that are started meanwhile. */
static int32_t kill_below(pid_t root) {
  const int32_t count = list_processes();
  int32_t killed = 0;
  for (int32_t i = 0; i < count; i++) {
    if (is_below(processes[i].pid, root, count)) killed += kill_one(processes[i].pid);
  }
  return killed;
}

/* Kills the children of this process, where the system lists them, which is quicker: grandchildren become its children once these are gone.
 * Else all that descends from it. */
static void kill_own(void) {
  FILE *children = fopen("/proc/thread-self/children", "re");
  int pid;
  if (!children) {
    kill_below(getpid());
    return;
  }
  while (fscanf(children, "%d", &pid) == 1) kill_one(pid);
  fclose(children);
}

/* --- the watcher's side ----------------------------------------------------------------------------------------- */

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

/* Ends the ward and then what it left. Once a launcher has ended nothing needs a moment any more. */
static int end_all(pid_t ward, enum sf_ward kind, const sigset_t *signals, int grace_ms) {
  int how = 0;
  if (kind == SF_WARD_CODE)
    kill(-ward, SIGKILL);
  else if (kill_below(ward) == 0)
    kill(ward, SIGTERM);
  for (int waited = 0; reap(&ward, &how) && waited < grace_ms && (ward || kind == SF_WARD_CODE); waited += PAUSE_MS)
    wait_for(signals, PAUSE_MS);
  for (int round = 0; round < KILL_ROUNDS && reap(&ward, &how); round++) {
    if (ward == 0 || kind == SF_WARD_LAUNCHER) kill_own();
    wait_for(signals, PAUSE_MS);
  }
  return how;
}

static _Noreturn void watch(pid_t ward, enum sf_ward kind, const sigset_t *signals, int told, int grace_ms, int held) {
  signal(SIGINT, SIG_IGN);
  sf_close_others(told, held);
  while (!has_ended(ward) && wait_for(signals, -1) != SIGTERM) continue;
  const int how = end_all(ward, kind, signals, grace_ms);
  (void)!write(told, &how, sizeof how);
  _exit(0);
}

/* --- the owner's side ------------------------------------------------------------------------------------------- */

/* In the new process: becomes the watcher, or returns in its ward. Tells the ward's id, or minus why there is none. */
static void become_watcher(struct sf_watcher *out, pid_t owner, const int told[2], int grace_ms, int held) {
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
  const pid_t watcher = getpid(), ward = fork();
  if (ward < 0) {
    out->ward = -errno;
    (void)!write(told[1], &out->ward, sizeof out->ward);
    _exit(0);
  }
  if (ward > 0) {
    setpgid(ward, ward);
    if (!sf_fd_write(told[1], &ward, sizeof ward)) { /* whoever is not told would wait for ever */
      kill(ward, SIGKILL);
      _exit(0);
    }
    watch(ward, out->kind, &signals, told[1], grace_ms, held);
  }
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, out->kind == SF_WARD_LAUNCHER ? SIGTERM : SIGKILL);
  if (getppid() != watcher) _exit(0);
  out->ward = getpid();
  close(told[0]);
  close(told[1]);
  sigprocmask(SIG_SETMASK, &before, NULL);
}

pid_t sf_watcher_fork(struct sf_watcher *out, enum sf_ward kind, int grace_ms, int held) {
  int told[2];
  *out = (struct sf_watcher){.kind = kind};
  if (pipe2(told, O_CLOEXEC) != 0) return -1;
  const pid_t owner = getpid();
  fflush(NULL);
  out->pid = fork();
  if (out->pid == 0) {
    become_watcher(out, owner, told, grace_ms, held);
    return 0;
  }
  int cause = errno;
  close(told[1]);
  out->told = told[0];
  if (out->pid > 0) {
    if (!sf_fd_read(out->told, &out->ward, sizeof out->ward)) out->ward = -EAGAIN;
    if (out->ward > 0) return out->ward;
    cause = -out->ward;
    waitpid(out->pid, NULL, 0);
  }
  close(out->told);
  *out = (struct sf_watcher){.kind = kind};
  errno = cause;
  return -1;
}

void sf_watcher_ask(const struct sf_watcher *watcher) {
  if (watcher->pid <= 0) return;
  kill(watcher->pid, SIGTERM);
  kill(watcher->pid, SIGCONT); /* it may be stopped */
}

int sf_watcher_end(struct sf_watcher *watcher) {
  int how = SIGKILL;
  if (watcher->pid <= 0) return 0;
  sf_watcher_ask(watcher);
  /* A watcher that its ward has killed reports nothing; the ward died with it, and a launcher ends its ranks. */
  if (!sf_fd_read(watcher->told, &how, sizeof how) && watcher->kind == SF_WARD_CODE) kill(-watcher->ward, SIGKILL);
  while (waitpid(watcher->pid, NULL, 0) < 0 && errno == EINTR) continue;
  close(watcher->told);
  *watcher = (struct sf_watcher){0};
  return how;
}
