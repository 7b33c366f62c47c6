#include "harness/run/support/replay_way.h"

#include "harness/base/alloc.h"
#include "harness/base/sinks.h"
#include "harness/base/system/directories.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void sf_replay_way_clear(struct sf_replay_way *way) {
  sf_free(way->options);
  sf_free(way->folder);
  sf_free(way->target);
  *way = (struct sf_replay_way){0};
}

/* Whether the shell starts this program when it is told "shardfuzz". */
static bool is_on_path(void) {
  const char *at = getenv("PATH");
  char file[SF_PATH_TEXT];
  struct stat own, found;
  if (at == NULL || stat("/proc/self/exe", &own) != 0) return false;
  while (*at != '\0') {
    const size_t length = strcspn(at, ":");
    const int written = snprintf(file, sizeof file, "%.*s/shardfuzz", (int)length, at);
    if (length > 0 && written < (int)sizeof file && access(file, X_OK) == 0)
      return stat(file, &found) == 0 && found.st_dev == own.st_dev && found.st_ino == own.st_ino;
    at += length + (at[length] == ':');
  }
  return false;
}

static void append_program(struct sf_text *out) {
  char path[SF_PATH_TEXT];
  const ssize_t length = is_on_path() ? -1 : readlink("/proc/self/exe", path, sizeof path - 1);
  if (length <= 0) {
    sf_text_append(out, "shardfuzz");
    return;
  }
  path[length] = '\0';
  sf_shell_append(out, path);
}

static void append_path(struct sf_text *out, const char *path) {
  char folder[SF_PATH_TEXT];
  struct sf_text full = {0};
  if (path[0] != '/' && getcwd(folder, sizeof folder) != NULL) sf_text_append(&full, "%s/", folder);
  sf_text_append(&full, "%s", strncmp(path, "./", 2) == 0 ? path + 2 : path);
  out->failed |= full.failed;
  if (!full.failed) sf_shell_append(out, full.data);
  sf_text_destroy(&full);
}

void sf_replay_append(struct sf_text *out, const char *path, const struct sf_replay_way *way, int64_t job_ranks) {
  if (way != NULL && way->folder != NULL) {
    sf_text_append(out, "cd ");
    sf_shell_append(out, way->folder);
    sf_text_append(out, " && ");
  }
  if (job_ranks > 0) sf_text_append(out, "mpirun --oversubscribe -n %" PRId64 " ", job_ranks);
  append_program(out);
  sf_text_append(out, " replay ");
  append_path(out, path);
  sf_text_append(out, "%s", way != NULL && way->options != NULL ? way->options : "");
}
