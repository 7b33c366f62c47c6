#include "harness/worker/descendants.h"

#include "harness/base/system/temporary.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PROCESSES_MAX = 65536 };

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
  for (int32_t depth = 0; depth < 64 && pid > 1; depth++) {
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

int32_t sf_descendants_kill(pid_t root) {
  const int32_t count = list_processes();
  int32_t killed = 0;
  for (int32_t i = 0; i < count; i++) {
    if (is_below(processes[i].pid, root, count)) killed += kill_one(processes[i].pid);
  }
  return killed;
}

void sf_descendants_kill_own(void) {
  FILE *children = fopen("/proc/thread-self/children", "re");
  int pid;
  if (!children) {
    sf_descendants_kill(getpid());
    return;
  }
  while (fscanf(children, "%d", &pid) == 1) kill_one(pid);
  fclose(children);
}
