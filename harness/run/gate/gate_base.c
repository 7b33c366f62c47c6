#include "harness/run/gate/gate_base.h"

#include "harness/base/bytes.h"
#include "harness/base/system/directories.h"
#include "harness/run/trial/signature.h"
#include "harness/worker/wait.h"
#include "harness/worker/watcher.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* After the base has ended, the watchers of its ranks and workers have GRACE_MS to clean up. */
enum { GRACE_MS = 1000 };
static const double ASKED_SECONDS = 0.5;

static void program_of(char *out, size_t size, const char *base) {
  struct stat info;
  const bool folder = stat(base, &info) == 0 && S_ISDIR(info.st_mode);
  snprintf(out, size, "%s%s", base, folder ? "/shardfuzz" : "");
}

static enum sf_status check_program(const char *base, struct sf_error *error) {
  char program[SF_PATH_TEXT + 16];
  struct stat info;
  if (strlen(base) >= SF_PATH_TEXT) return sf_error_set(error, SF_EUSAGE, "--base: the path is too long");
  program_of(program, sizeof program, base);
  if (stat(program, &info) != 0 || access(program, X_OK) != 0) return sf_error_set(error, SF_EINPUT, "%s: %s", program, strerror(errno));
  if (!S_ISREG(info.st_mode)) return sf_error_set(error, SF_EINPUT, "%s: not a program", program);
  return SF_OK;
}

enum sf_status sf_gate_base_check(const struct sf_gate_base *base, struct sf_error *error) {
  struct stat info;
  if (base->program) return check_program(base->program, error);
  if (!base->framework_path || (stat(base->framework_path, &info) == 0 && S_ISDIR(info.st_mode))) return SF_OK;
  return sf_error_set(error, SF_EUSAGE, "--framework-base: %s is not a folder", base->framework_path);
}

/* No shell runs in between, so paths may hold any character. */
static _Noreturn void run_base(const struct sf_gate_base *base, const char *case_path, int output) {
  char program[SF_PATH_TEXT + 16] = "/proc/self/exe";
  const char *arguments[12] = {program, "replay", case_path, "--json"};
  int count = 4;
  if (base->program) program_of(program, sizeof program, base->program);
  if (base->target) arguments[count++] = "--target", arguments[count++] = base->target;
  if (base->framework_path) arguments[count++] = "--framework-path", arguments[count++] = base->framework_path;
  if (base->launcher) arguments[count++] = "--launcher", arguments[count++] = base->launcher;
  const int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
  dup2(nowhere, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(nowhere, STDERR_FILENO);
  execv(program, (char *const *)(uintptr_t)arguments);
  _exit(127);
}

/* Reads until the base ends (READY), a stop is asked for, or the seconds are over. */
static enum sf_waited read_answer(struct sf_text *out, int file, double seconds, const volatile sig_atomic_t *stop) {
  char piece[4096];
  struct sf_wait wait = {.seconds = seconds, .stop = stop};
  for (;;) {
    const enum sf_waited waited = sf_wait_for(&wait, file, POLLIN);
    if (waited != SF_WAIT_READY) return waited;
    const ssize_t got = read(file, piece, sizeof piece);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return SF_WAIT_READY;
    sf_text_append(out, "%.*s", (int)got, piece);
  }
}

/* Asks the base to end, which removes its temporary folders, and then kills what is left of it. Returns how it ended. */
static int end_base(struct sf_watcher *watcher, struct sf_text *output, int file, enum sf_waited answer) {
  if (answer != SF_WAIT_READY) {
    kill(-watcher->ward, SIGTERM);
    read_answer(output, file, ASKED_SECONDS, NULL);
  }
  return sf_watcher_end(watcher);
}

static void note_end(char note[SF_GATE_NOTE_TEXT], enum sf_waited answer, int how, double seconds) {
  static const char nothing[] = "the base could not judge the case";
  *note = '\0';
  if (answer == SF_WAIT_LATE)
    snprintf(note, SF_GATE_NOTE_TEXT, "%s: it did not answer within %.0f s and was ended", nothing, seconds);
  else if (WIFSIGNALED(how))
    snprintf(note, SF_GATE_NOTE_TEXT, "%s: it ended by signal %d", nothing, WTERMSIG(how));
  else if (WEXITSTATUS(how) > 1)
    snprintf(note, SF_GATE_NOTE_TEXT, "%s: it ended with exit code %d", nothing, WEXITSTATUS(how));
}

static bool last_line_has(const struct sf_text *output, const char *signature) {
  if (!output->data) return false;
  size_t end = output->length;
  while (end > 0 && output->data[end - 1] == '\n') end--;
  size_t start = end;
  while (start > 0 && output->data[start - 1] != '\n') start--;
  json_t *line = json_loadb(output->data + start, end - start, 0, NULL);
  const char *seen = json_string_value(json_object_get(line, "signature"));
  const bool has = seen && sf_signature_covers(seen, signature);
  json_decref(line);
  return has;
}

enum sf_status sf_gate_base_has(bool *has, char note[SF_GATE_NOTE_TEXT], const struct sf_gate_base *base, const char *case_path,
                                const char *signature) {
  struct sf_text output = {0};
  struct sf_watcher watcher;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return SF_EIO;
  const pid_t pid = sf_watcher_fork(&watcher, SF_WARD_CODE, GRACE_MS, -1);
  if (pid == 0) run_base(base, case_path, ends[1]);
  close(ends[1]);
  const enum sf_waited answer = pid > 0 ? read_answer(&output, ends[0], base->seconds, base->stop) : SF_WAIT_READY;
  const int how = end_base(&watcher, &output, ends[0], answer);
  close(ends[0]);
  note_end(note, answer, how, base->seconds);
  *has = answer == SF_WAIT_READY && !output.failed && last_line_has(&output, signature);
  sf_text_destroy(&output);
  return pid < 0 ? SF_EIO : answer == SF_WAIT_STOPPED ? SF_ECANCELLED : SF_OK;
}
