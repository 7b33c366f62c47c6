#include "tests/hostile/program.h"

#include "tests/hostile/texts.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ARGUMENTS_MAX = 14 };

static int64_t files_seen, bytes_seen;

static int see(const char *path, const struct stat *info, int type, struct FTW *ftw) {
  (void)path;
  (void)ftw;
  files_seen++;
  if (type == FTW_F) bytes_seen += info->st_size;
  return 0;
}

static void look(const char *folder) {
  files_seen = bytes_seen = 0;
  assert_int_equal(nftw(folder, see, 16, FTW_PHYS), 0);
}

static void text_of(char *out, size_t size, int file) {
  const ssize_t count = pread(file, out, size - 1, 0);
  assert_true(count >= 0);
  out[count] = '\0';
  close(file);
}

void program_refuses(const char *folder, const char *where, const char *const *arguments) {
  static char out[8192], err[8192];
  const char *words[ARGUMENTS_MAX + 2] = {getenv("SHARDFUZZ")};
  const int stdout_file = memfd_create("stdout", MFD_CLOEXEC), stderr_file = memfd_create("stderr", MFD_CLOEXEC);
  int status = 0, count = 1;
  if (words[0] == NULL) fail_msg("SHARDFUZZ does not name the program");
  for (; *arguments != NULL; arguments++) words[count++] = *arguments;
  assert_true(count <= ARGUMENTS_MAX + 1);
  look(folder);
  const int64_t files = files_seen, bytes = bytes_seen;
  fflush(NULL);
  const pid_t child = fork();
  if (child == 0) {
    dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
    dup2(stdout_file, STDOUT_FILENO);
    dup2(stderr_file, STDERR_FILENO);
    execv(words[0], (char *const *)(uintptr_t)words);
    _exit(127);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  text_of(out, sizeof out, stdout_file);
  text_of(err, sizeof err, stderr_file);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 2) fail_msg("%s %s: status %x: %s", words[1], words[2], (unsigned)status, err);
  assert_string_equal(out, "");
  assert_lines(err);
  if (line_count(err) != 1 || strstr(err, where) == NULL) fail_msg("one line with '%s' was expected: %s", where, err);
  look(folder);
  assert_int_equal(files_seen, files);
  assert_int_equal(bytes_seen, bytes);
}
