/* The store of the campaign that ran last. */
#include "harness/run/commands/command_common.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static int is_store(const struct dirent *entry) {
  int number = 0, length = 0;
  return sscanf(entry->d_name, "campaign-%d.sqlite%n", &number, &length) == 1 && length > 0 && entry->d_name[length] == '\0';
}

/* When a campaign last wrote to the store; SQLite's log beside it counts too. */
static struct timespec written_at(const char *store) {
  char log[SF_PATH_TEXT + 8];
  struct stat info, log_info;
  snprintf(log, sizeof log, "%s-wal", store);
  if (stat(store, &info) != 0) return (struct timespec){0};
  const bool has_log = stat(log, &log_info) == 0;
  return has_log && log_info.st_mtim.tv_sec >= info.st_mtim.tv_sec ? log_info.st_mtim : info.st_mtim;
}

static bool is_later(struct timespec a, struct timespec b) {
  return a.tv_sec > b.tv_sec || (a.tv_sec == b.tv_sec && a.tv_nsec >= b.tv_nsec);
}

bool sf_common_newest_store(char *out, size_t size, const char *folder) {
  struct dirent **names = NULL;
  struct timespec newest = {0};
  const int count = scandir(folder, &names, is_store, alphasort);
  *out = '\0';
  for (int i = 0; i < count; i++) {
    char path[SF_PATH_TEXT];
    snprintf(path, sizeof path, "%s/%s", folder, names[i]->d_name);
    const struct timespec written = written_at(path);
    if (!*out || is_later(written, newest)) snprintf(out, size, "%s", path), newest = written;
    free(names[i]);
  }
  free(names);
  return *out != '\0';
}
