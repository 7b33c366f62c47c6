#include "harness/base/system/system_memory.h"

#include <inttypes.h>
#include <malloc.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GROUPS "/sys/fs/cgroup/"

double sf_number_in_file(const char *path, const char *name) {
  FILE *file = fopen(path, "re");
  const size_t length = strlen(name);
  char line[160], *end;
  double value = INFINITY;
  if (!file) return INFINITY;
  while (fgets(line, sizeof line, file)) {
    if (strncmp(line, name, length) != 0) continue;
    const double number = (double)strtoll(line + length, &end, 10);
    if (end > line + length) value = number;
    break;
  }
  fclose(file);
  return value;
}

/* Pages of files that nobody has asked for lately are given back when memory is needed. */
static double left_of_group(const char *limit, const char *used, const char *stat, const char *files) {
  const double left = sf_number_in_file(limit, "") - sf_number_in_file(used, ""), back = sf_number_in_file(stat, files);
  return !isfinite(left) ? INFINITY : left + (isfinite(back) ? back : 0);
}

double sf_memory_available(void) {
  const double system = 1024 * sf_number_in_file("/proc/meminfo", "MemAvailable:");
  const double v2 = left_of_group(GROUPS "memory.max", GROUPS "memory.current", GROUPS "memory.stat", "inactive_file ");
  const double v1 = left_of_group(GROUPS "memory/memory.limit_in_bytes", GROUPS "memory/memory.usage_in_bytes", GROUPS "memory/memory.stat",
                                  "total_inactive_file ");
  const double least = fmin(system, fmin(v1, v2));
  return least > 0 ? least : 0;
}

/* What a file of this process's control group says. mark: what stands before the group's path in its line of /proc/self/cgroup. */
static double number_of_group(const char *mark, const char *mount, const char *name_of_file, const char *name) {
  FILE *groups = fopen("/proc/self/cgroup", "re");
  char line[1024], path[1200];
  double value = INFINITY;
  while (groups && fgets(line, sizeof line, groups)) {
    const char *at = strstr(line, mark);
    if (!at) continue;
    line[strcspn(line, "\n")] = '\0';
    snprintf(path, sizeof path, "%s%s/%s", mount, at + strlen(mark), name_of_file);
    value = sf_number_in_file(path, name);
    break;
  }
  if (groups) fclose(groups);
  return value;
}

static int64_t memory_of(long pid, int depth) {
  enum { DEPTH_MAX = 16 };
  char path[96];
  int64_t pages = 0;
  snprintf(path, sizeof path, "/proc/%ld/statm", pid);
  FILE *file = fopen(path, "re");
  if (file && fscanf(file, "%*d %" SCNd64, &pages) != 1) pages = 0;
  if (file) fclose(file);
  int64_t bytes = pages * sysconf(_SC_PAGESIZE);
  snprintf(path, sizeof path, "/proc/%ld/task/%ld/children", pid, pid);
  FILE *children = depth < DEPTH_MAX ? fopen(path, "re") : NULL;
  for (long child; children && fscanf(children, "%ld", &child) == 1;) bytes += memory_of(child, depth + 1);
  if (children) fclose(children);
  return bytes;
}

int64_t sf_memory_of_processes(void) { return memory_of((long)getpid(), 0); }

double sf_memory_kills(void) {
  const double v2 = number_of_group("0::", GROUPS, "memory.events", "oom_kill ");
  const double v1 = isfinite(v2) ? v2 : number_of_group(":memory:", GROUPS "memory", "memory.oom_control", "oom_kill ");
  return isfinite(v1) ? v1 : sf_number_in_file("/proc/vmstat", "oom_kill ");
}

void sf_memory_return(void) {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}
