#include "harness/base/system_memory.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
#define GROUP "/sys/fs/cgroup/"
  const double system = 1024 * sf_number_in_file("/proc/meminfo", "MemAvailable:");
  const double v2 = left_of_group(GROUP "memory.max", GROUP "memory.current", GROUP "memory.stat", "inactive_file ");
  const double v1 = left_of_group(GROUP "memory/memory.limit_in_bytes", GROUP "memory/memory.usage_in_bytes", GROUP "memory/memory.stat", "total_inactive_file ");
  const double least = fmin(system, fmin(v1, v2));
#undef GROUP
  return least > 0 ? least : 0;
}

double sf_memory_kills(void) { return sf_number_in_file("/proc/vmstat", "oom_kill "); }
