#include "harness/worker/said.h"

#include "harness/base/sinks.h"
#include "harness/base/utf8.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

bool sf_said_open(struct sf_said *out) {
  *out = (struct sf_said){.memory = memfd_create("said", MFD_CLOEXEC), .own = {-1, -1}};
  if (out->memory < 0) return false;
  const char *first = ftruncate(out->memory, 1) == 0 ? mmap(NULL, 1, PROT_READ, MAP_SHARED, out->memory, 0) : MAP_FAILED;
  if (first == MAP_FAILED) sf_said_close(out);
  else out->first = first;
  return out->memory >= 0;
}

void sf_said_close(struct sf_said *said) {
  if (said->memory >= 0) close(said->memory);
  if (said->first) munmap((void *)(uintptr_t)said->first, 1);
  said->memory = -1;
  said->first = NULL;
}

static void empty(int memory) {
  if (ftruncate(memory, 0) != 0 || ftruncate(memory, 1) != 0) return;
  lseek(memory, 0, SEEK_SET);
}

void sf_said_begin(struct sf_said *said) {
  if (said->memory < 0 || said->own[0] >= 0) return;
  if (*said->first != 0) empty(said->memory); /* left by a process that was ended at work */
  fflush(stdout);
  setvbuf(stdout, NULL, _IONBF, 0); /* otherwise a process that dies loses its last lines */
  for (int i = 0; i < 2; i++) {
    said->own[i] = fcntl(STDOUT_FILENO + i, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    dup2(said->memory, STDOUT_FILENO + i);
  }
}

static bool write_all(int to, const char *text, size_t length) {
  for (ssize_t wrote; length > 0; text += wrote, length -= (size_t)wrote)
    if ((wrote = write(to, text, length)) <= 0) return false;
  return true;
}

/* Copies line by line, marked as not ours, and splits long lines. Allocates nothing, because the process may have spoilt its memory. */
static void copy(int to, int memory) {
  enum { PIECE = 1000 };
  char piece[PIECE + 1], line[sizeof SF_SAID_PREFIX + 4 * PIECE + 1] = SF_SAID_PREFIX;
  const size_t prefix = sizeof SF_SAID_PREFIX - 1;
  off_t at = 0;
  for (ssize_t count; (count = pread(memory, piece, PIECE, at)) > 0;) {
    piece[count] = '\0';
    for (char *nul; (nul = memchr(piece, '\0', (size_t)count)) != NULL;) *nul = '?';
    const size_t length = strcspn(piece, "\n"), cut = length < PIECE ? length : sf_utf8_cut(piece, PIECE - 4);
    at += (off_t)cut + (piece[cut] == '\n');
    piece[cut] = '\0';
    if (strspn(piece, " \t\r") == cut) continue;
    sf_line_copy(line + prefix, sizeof line - prefix - 1, piece);
    strcat(line, "\n");
    if (!write_all(to, line, strlen(line))) return;
  }
}

void sf_said_pass_on(struct sf_said *said) {
  if (said->own[1] < 0 || *said->first == 0) return;
  copy(said->own[1], said->memory);
  empty(said->memory);
}

void sf_said_end(struct sf_said *said) {
  if (said->own[0] < 0) return;
  fflush(stdout);
  for (int i = 0; i < 2; i++) dup2(said->own[i], STDOUT_FILENO + i);
  sf_said_pass_on(said);
  for (int i = 0; i < 2; i++) {
    close(said->own[i]);
    said->own[i] = -1;
  }
}

/* The last line of a text, without blanks at its ends. */
static const char *last_line(char *text) {
  char *end = text + strlen(text);
  while (end > text && isspace((unsigned char)end[-1])) *--end = '\0';
  const char *line = strrchr(text, '\n');
  line = line ? line + 1 : text;
  while (isspace((unsigned char)*line)) line++;
  return line;
}

void sf_said_last(struct sf_said *said, char *out, size_t size) {
  char text[2048];
  struct stat info;
  *out = '\0';
  if (said->memory < 0 || *said->first == 0 || fstat(said->memory, &info) != 0) return;
  const off_t from = info.st_size > (off_t)sizeof text - 1 ? info.st_size - (off_t)sizeof text + 1 : 0;
  const ssize_t count = pread(said->memory, text, sizeof text - 1, from);
  if (count > 0) {
    text[count] = '\0';
    snprintf(out, size, "%s", last_line(text));
  }
  copy(STDERR_FILENO, said->memory);
  empty(said->memory);
}
