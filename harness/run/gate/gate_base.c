#include "harness/run/gate/gate_base.h"

#include "harness/base/bytes.h"
#include "harness/run/campaign/campaign.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

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
  return sf_error_set(error, SF_EUSAGE, "--framework-base: %s is no folder", base->framework_path);
}

/* No shell is between: paths may hold any character. */
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

static bool read_to_end(struct sf_text *out, int file) {
  char piece[4096];
  for (;;) {
    const ssize_t got = read(file, piece, sizeof piece);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got == 0 && !out->failed;
    sf_text_append(out, "%.*s", (int)got, piece);
  }
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

enum sf_status sf_gate_base_has(bool *has, char note[SF_GATE_NOTE_TEXT], const struct sf_gate_base *base, const char *case_path, const char *signature) {
  struct sf_text output = {0};
  int ends[2], ended = 0;
  if (pipe2(ends, O_CLOEXEC) != 0) return SF_EIO;
  fflush(NULL);
  const pid_t pid = fork();
  if (pid < 0) {
    close(ends[0]);
    close(ends[1]);
    return SF_EIO;
  }
  if (pid == 0) run_base(base, case_path, ends[1]);
  close(ends[1]);
  const bool complete = read_to_end(&output, ends[0]);
  close(ends[0]);
  while (waitpid(pid, &ended, 0) < 0 && errno == EINTR) continue;
  *note = '\0';
  *has = complete && last_line_has(&output, signature);
  if (WIFSIGNALED(ended)) snprintf(note, SF_GATE_NOTE_TEXT, "the base could not judge the case: it ended by signal %d", WTERMSIG(ended));
  else if (WEXITSTATUS(ended) > 1) snprintf(note, SF_GATE_NOTE_TEXT, "the base could not judge the case: it ended with exit code %d", WEXITSTATUS(ended));
  sf_text_destroy(&output);
  return SF_OK;
}
