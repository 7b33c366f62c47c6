#include "harness/run/plugins/plugin_probe.h"

#include "harness/base/alloc.h"
#include "harness/worker/confine.h"
#include "harness/worker/wait.h"
#include "harness/worker/watcher.h"
#include "targets/plugin/plugin_target.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LOAD_SECONDS = 10 };

/* Reads what arrives before the deadline; true when all of it has. */
static bool read_all(int descriptor, void *data, size_t size) {
  struct sf_wait wait = {.seconds = LOAD_SECONDS};
  for (char *at = data; size > 0;) {
    if (sf_wait_for(&wait, descriptor, POLLIN) != SF_WAIT_READY) return false;
    const ssize_t count = read(descriptor, at, size);
    if (count <= 0) return false;
    at += count, size -= (size_t)count;
  }
  return true;
}

enum sf_status sf_plugin_full_path(char *out, size_t size, const char *path, struct sf_error *error) {
  char *whole = realpath(path, NULL);
  if (!whole) return sf_error_set(error, SF_EINPUT, "%s: %s", path, sf_errno_text(errno).text);
  const int length = snprintf(out, size, "%s", whole);
  free(whole); /* libc's own memory */
  return length < (int)size ? SF_OK : sf_error_set(error, SF_EINPUT, "%s: the path is too long", path);
}

enum sf_status sf_plugin_full_name(char *out, size_t size, const char *target, struct sf_error *error) {
  const char *path = sf_plugin_target_path(target);
  const size_t before = (size_t)(path - target);
  char whole[1024];
  const enum sf_status status = sf_plugin_full_path(whole, size - before < sizeof whole ? size - before : sizeof whole, path, error);
  if (status == SF_OK) snprintf(out, size, "%.*s%s", (int)before, target, whole);
  return status;
}

enum sf_status sf_plugin_probe(void *answer, size_t size, void (*ask)(void *answer), const char *path, struct sf_error *error) {
  int ends[2];
  struct sf_watcher watcher;
  if (pipe2(ends, O_CLOEXEC) != 0) return sf_error_set(error, SF_EIO, "a pipe: %s", sf_errno_text(errno).text);
  const pid_t child = sf_watcher_fork(&watcher, SF_WARD_CODE, 0, -1);
  if (child == 0) {
    close(ends[0]);
    sf_confine(true);
    ask(answer);
    if (getpid() != watcher.ward) _exit(0); /* forked while the library was loaded */
    _exit(sf_fd_write(ends[1], answer, size) ? 0 : 1);
  }
  close(ends[1]);
  const bool whole_answer = child > 0 && read_all(ends[0], answer, size);
  close(ends[0]);
  sf_watcher_end(&watcher);
  if (whole_answer) return SF_OK;
  return sf_error_set(error, SF_EINPUT, "%s: the library ended its process, or did not come back, while it was loaded", path);
}

/* --- layers and models ------------------------------------------------------------------------------------------------------- */

struct target_answer {
  char path[SF_TARGET_TEXT];
  enum sf_status status;
  struct sf_error error;
  uint32_t kind;
  int32_t range_count;
  struct sf_plugin_range ranges[SF_PLUGIN_RANGES_MAX];
};

static void ask_kind(void *answer) {
  struct target_answer *out = answer;
  const struct shardfuzz_plugin *plugin = NULL;
  out->status = sf_plugin_load(&plugin, out->path, &out->error);
  if (out->status == SF_OK) out->kind = plugin->kind;
}

static void ask_target(void *answer) {
  struct target_answer *out = answer;
  struct sf_plugin_target *target = NULL;
  out->status = sf_plugin_target_create(&target, out->path, &out->error);
  if (out->status == SF_OK) out->range_count = sf_plugin_target_ranges(out->ranges, target);
  sf_plugin_target_destroy(target);
}

bool sf_plugin_is_target(const char *target) {
  static struct target_answer answer;
  const char *path = sf_plugin_target_path(target);
  memset(&answer, 0, sizeof answer);
  if (!path || sf_plugin_full_path(answer.path, sizeof answer.path, path, NULL) != SF_OK) return false;
  return sf_plugin_probe(&answer, sizeof answer, ask_kind, path, NULL) == SF_OK && answer.status == SF_OK &&
         answer.kind != SHARDFUZZ_KIND_OPERATIONS;
}

static enum sf_status ask(struct target_answer *answer, const char *target, struct sf_error *error) {
  const char *path = sf_plugin_target_path(target);
  memset(answer, 0, sizeof *answer);
  /* The target's name must fit together with its prefix. */
  enum sf_status status = sf_plugin_full_path(answer->path, sizeof answer->path - (size_t)(path - target), path, error);
  if (status == SF_OK) status = sf_plugin_probe(answer, sizeof *answer, ask_target, path, error);
  if (status == SF_OK && answer->status != SF_OK) status = sf_error_set(error, answer->status, "%s", answer->error.text);
  return status;
}

enum sf_status sf_plugin_probe_target(const char *target, struct sf_error *error) {
  static struct target_answer answer;
  return ask(&answer, target, error);
}

enum sf_status sf_plugin_probe_space(struct sf_space *space, const char *target, struct sf_error *error) {
  static struct target_answer answer;
  enum sf_status status = ask(&answer, target, error);
  for (int32_t i = 0; i < answer.range_count && status == SF_OK; i++)
    status = sf_space_limit(space, answer.ranges[i].path, answer.ranges[i].lo, answer.ranges[i].hi, error);
  for (int32_t i = 0; i < answer.range_count && status == SF_OK; i++)
    if (answer.ranges[i].left_out) status = sf_space_leave_out(space, answer.ranges[i].left_out, error);
  if (status == SF_OK) snprintf(space->target, sizeof space->target, "plugin:%.*s", (int)sizeof answer.path - 8, answer.path);
  return status;
}

enum sf_status sf_plugin_probe_ranges(struct sf_plugin_range *out, int32_t *count, const char *target, struct sf_error *error) {
  static struct target_answer answer;
  const enum sf_status status = ask(&answer, target, error);
  if (status != SF_OK) return status;
  memcpy(out, answer.ranges, (size_t)answer.range_count * sizeof *out);
  *count = answer.range_count;
  return SF_OK;
}
