/* Faults of system calls and of memory, for LD_PRELOAD. tests/faults/run sets the environment:
 *   SHARDFUZZ_FAULTS          one fault a line: "call=pwrite path=*.sqlite* after=12 effect=ENOSPC times=1 who=any"
 *   SHARDFUZZ_FAULTS_STATE    a file of STATE_BYTES zeros, which all processes of a run share
 *   SHARDFUZZ_FAULTS_PROGRAM  the executable's name; other programs (mpirun, Python) are left alone
 * Calls are counted over all processes together, per fault: those after the first `after` that match fail, `times` of them (0: all).
 * A clock that has jumped stays where it is: all later readings are moved. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { FAULTS_MAX = 16, STATE_BYTES = 4096, SLOW_US = 20000, FIELD_TEXT = 64 };
enum call {
  CALL_WRITE,
  CALL_PWRITE,
  CALL_FSYNC,
  CALL_FTRUNCATE,
  CALL_MMAP,
  CALL_MALLOC,
  CALL_FORK,
  CALL_SEND,
  CALL_RECV,
  CALL_TIME,
  CALL_MONOTONIC,
  CALL_COUNT
};
enum effect { EFFECT_NONE, EFFECT_ERRNO, EFFECT_SHORT, EFFECT_TORN, EFFECT_SLOW, EFFECT_HANGUP, EFFECT_RAISE, EFFECT_JUMP };
static const char *const call_names[CALL_COUNT] = {"write", "pwrite", "fsync", "ftruncate", "mmap",     "malloc",
                                                   "fork",  "send",   "recv",  "time",      "monotonic"};
/* value: the errno, or the signal. */
static const struct {
  const char *name;
  enum effect effect;
  int value;
} effects[] = {
    {"EIO", EFFECT_ERRNO, EIO},       {"ENOSPC", EFFECT_ERRNO, ENOSPC}, {"ENOMEM", EFFECT_ERRNO, ENOMEM},
    {"EAGAIN", EFFECT_ERRNO, EAGAIN}, {"EINTR", EFFECT_ERRNO, EINTR},   {"ECONNRESET", EFFECT_ERRNO, ECONNRESET},
    {"short", EFFECT_SHORT, 0},       {"torn", EFFECT_TORN, 0},         {"slow", EFFECT_SLOW, 0},
    {"hangup", EFFECT_HANGUP, 0},     {"KILL", EFFECT_RAISE, SIGKILL},  {"TERM", EFFECT_RAISE, SIGTERM},
    {"INT", EFFECT_RAISE, SIGINT},
};

struct fault {
  enum call call;
  enum effect effect;
  int value; /* the errno or the signal; of a jump: seconds */
  int64_t after, times;
  bool parent, child; /* which processes it is for */
  char path[FIELD_TEXT];
};
struct state {
  atomic_int parent; /* the first process of the program */
  atomic_llong seen[FAULTS_MAX];
};
static struct fault faults[FAULTS_MAX];
static int fault_count;
static bool has[CALL_COUNT];
static struct state *state;

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);

/* --- reading the environment ------------------------------------------------------------------------------------ */

static _Noreturn void refuse(const char *what, const char *line) {
  fprintf(stderr, "interpose: SHARDFUZZ_FAULTS: %s in '%s'\n", what, line);
  _exit(99);
}

static void read_effect(struct fault *fault, const char *name, const char *line) {
  if (sscanf(name, "jump:%d", &fault->value) == 1) {
    fault->effect = EFFECT_JUMP;
    return;
  }
  for (size_t i = 0; i < sizeof effects / sizeof *effects; i++) {
    if (strcmp(effects[i].name, name) != 0) continue;
    fault->effect = effects[i].effect;
    fault->value = effects[i].value;
    return;
  }
  refuse("unknown effect", line);
}

static void read_field(struct fault *fault, const char *field, const char *line) {
  char name[FIELD_TEXT] = "", value[FIELD_TEXT] = "";
  if (sscanf(field, "%63[^=]=%63s", name, value) != 2) refuse("no field=value", line);
  if (strcmp(name, "call") == 0) {
    int call = 0;
    while (call < CALL_COUNT && strcmp(call_names[call], value) != 0) call++;
    if (call == CALL_COUNT) refuse("unknown call", line);
    fault->call = (enum call)call;
  } else if (strcmp(name, "path") == 0) {
    memcpy(fault->path, value, sizeof fault->path);
  } else if (strcmp(name, "after") == 0) {
    fault->after = atoll(value);
  } else if (strcmp(name, "times") == 0) {
    fault->times = atoll(value);
  } else if (strcmp(name, "who") == 0) {
    fault->parent = strcmp(value, "child") != 0;
    fault->child = strcmp(value, "parent") != 0;
  } else if (strcmp(name, "effect") == 0) {
    read_effect(fault, value, line);
  } else {
    refuse("unknown field", line);
  }
}

static void read_fault(const char *line) {
  char copy[512], *rest = NULL;
  struct fault fault = {.times = 1, .parent = true, .child = true, .path = "*"};
  if (fault_count == FAULTS_MAX) refuse("too many faults", line);
  snprintf(copy, sizeof copy, "%s", line);
  for (char *field = strtok_r(copy, " ", &rest); field; field = strtok_r(NULL, " ", &rest)) read_field(&fault, field, line);
  faults[fault_count++] = fault;
}

/* Before main begins there are no faults; after it every call of a kind that no fault has goes straight on. */
__attribute__((constructor)) static void begin(void) {
  const char *lines = getenv("SHARDFUZZ_FAULTS"), *path = getenv("SHARDFUZZ_FAULTS_STATE"), *program = getenv("SHARDFUZZ_FAULTS_PROGRAM");
  if (!lines || !path || !program || strcmp(program, program_invocation_short_name) != 0) return;
  const int file = open(path, O_RDWR | O_CLOEXEC);
  void *shared = file >= 0 ? mmap(NULL, STATE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  if (shared == MAP_FAILED) refuse("SHARDFUZZ_FAULTS_STATE cannot be mapped", path);
  close(file);
  state = shared;
  int nobody = 0;
  atomic_compare_exchange_strong(&state->parent, &nobody, getpid());
  char copy[4096], *rest = NULL;
  snprintf(copy, sizeof copy, "%s", lines);
  for (char *line = strtok_r(copy, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) read_fault(line);
  for (int i = 0; i < fault_count; i++) has[faults[i].call] = true;
}

/* --- which fault a call has ------------------------------------------------------------------------------------- */

static bool path_matches(const struct fault *fault, int fd) {
  char link[32], path[PATH_MAX];
  if (strcmp(fault->path, "*") == 0 || fd < 0) return true;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return false;
  path[length] = '\0';
  return fnmatch(fault->path, path, 0) == 0;
}

/* NULL: the call goes on as it is. fd -1: of no file. */
static const struct fault *find(enum call call, int fd) {
  const struct fault *found = NULL;
  if (!has[call]) return NULL;
  const int error = errno;
  const bool is_parent = getpid() == atomic_load(&state->parent);
  for (int i = 0; i < fault_count && !found; i++) {
    const struct fault *fault = &faults[i];
    if (fault->call != call || !(is_parent ? fault->parent : fault->child) || !path_matches(fault, fd)) continue;
    const int64_t seen = atomic_fetch_add(&state->seen[i], 1);
    const bool lasts = fault->times == 0 || fault->effect == EFFECT_JUMP;
    if (seen >= fault->after && (lasts || seen < fault->after + fault->times)) found = fault;
  }
  errno = error;
  return found;
}

/* What comes before a call: a wait, a signal, the end of a connection. True: the call fails, and errno says why. */
static bool fails(const struct fault *fault, int fd) {
  if (!fault) return false;
  if (fault->effect == EFFECT_SLOW) usleep(SLOW_US);
  if (fault->effect == EFFECT_RAISE) kill(getpid(), fault->value);
  if (fault->effect == EFFECT_HANGUP) shutdown(fd, SHUT_RDWR);
  if (fault->effect != EFFECT_ERRNO) return false;
  errno = fault->value;
  return true;
}

static size_t allowed(const struct fault *fault, size_t size) {
  const bool part = fault && (fault->effect == EFFECT_SHORT || fault->effect == EFFECT_TORN);
  return part && size > 1 ? size / 2 : size;
}

static void tear(const struct fault *fault) {
  if (fault && fault->effect == EFFECT_TORN) kill(getpid(), SIGKILL);
}

/* --- the calls -------------------------------------------------------------------------------------------------- */

#define NEXT(type, name) ((type)dlsym(RTLD_NEXT, name))

ssize_t write(int fd, const void *data, size_t size) {
  static ssize_t (*next)(int, const void *, size_t);
  if (!next) next = NEXT(ssize_t(*)(int, const void *, size_t), "write");
  const struct fault *fault = find(CALL_WRITE, fd);
  if (fails(fault, fd)) return -1;
  const ssize_t written = next(fd, data, allowed(fault, size));
  tear(fault);
  return written;
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
  static ssize_t (*next)(int, const void *, size_t, off64_t);
  if (!next) next = NEXT(ssize_t(*)(int, const void *, size_t, off64_t), "pwrite64");
  const struct fault *fault = find(CALL_PWRITE, fd);
  if (fails(fault, fd)) return -1;
  const ssize_t written = next(fd, data, allowed(fault, size), at);
  tear(fault);
  return written;
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { return pwrite64(fd, data, size, at); }

int fsync(int fd) {
  static int (*next)(int);
  if (!next) next = NEXT(int (*)(int), "fsync");
  return fails(find(CALL_FSYNC, fd), fd) ? -1 : next(fd);
}

int fdatasync(int fd) {
  static int (*next)(int);
  if (!next) next = NEXT(int (*)(int), "fdatasync");
  return fails(find(CALL_FSYNC, fd), fd) ? -1 : next(fd);
}

int ftruncate64(int fd, off64_t size) {
  static int (*next)(int, off64_t);
  if (!next) next = NEXT(int (*)(int, off64_t), "ftruncate64");
  return fails(find(CALL_FTRUNCATE, fd), fd) ? -1 : next(fd, size);
}
int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

void *mmap64(void *at, size_t size, int protection, int flags, int fd, off64_t offset) {
  static void *(*next)(void *, size_t, int, int, int, off64_t);
  if (!next) next = NEXT(void *(*)(void *, size_t, int, int, int, off64_t), "mmap64");
  return fails(find(CALL_MMAP, fd), fd) ? MAP_FAILED : next(at, size, protection, flags, fd, offset);
}
void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
  return mmap64(at, size, protection, flags, fd, offset);
}

void *malloc(size_t size) { return fails(find(CALL_MALLOC, -1), -1) ? NULL : __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return fails(find(CALL_MALLOC, -1), -1) ? NULL : __libc_calloc(count, size); }
void *realloc(void *old, size_t size) { return fails(find(CALL_MALLOC, -1), -1) ? NULL : __libc_realloc(old, size); }

pid_t fork(void) {
  static pid_t (*next)(void);
  if (!next) next = NEXT(pid_t(*)(void), "fork");
  return fails(find(CALL_FORK, -1), -1) ? -1 : next();
}

ssize_t send(int fd, const void *data, size_t size, int flags) {
  static ssize_t (*next)(int, const void *, size_t, int);
  if (!next) next = NEXT(ssize_t(*)(int, const void *, size_t, int), "send");
  const struct fault *fault = find(CALL_SEND, fd);
  return fails(fault, fd) ? -1 : next(fd, data, allowed(fault, size), flags);
}

ssize_t recv(int fd, void *data, size_t size, int flags) {
  static ssize_t (*next)(int, void *, size_t, int);
  if (!next) next = NEXT(ssize_t(*)(int, void *, size_t, int), "recv");
  const struct fault *fault = find(CALL_RECV, fd);
  return fails(fault, fd) ? -1 : next(fd, data, allowed(fault, size), flags);
}

static time_t jump(enum call call) {
  const struct fault *fault = find(call, -1);
  return fault && fault->effect == EFFECT_JUMP ? fault->value : 0;
}

int clock_gettime(clockid_t clock, struct timespec *out) {
  static int (*next)(clockid_t, struct timespec *);
  if (!next) next = NEXT(int (*)(clockid_t, struct timespec *), "clock_gettime");
  const int result = next(clock, out);
  if (result == 0 && clock == CLOCK_REALTIME) out->tv_sec += jump(CALL_TIME);
  if (result == 0 && clock == CLOCK_MONOTONIC) out->tv_sec += jump(CALL_MONOTONIC);
  return result;
}

time_t time(time_t *out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
  struct timespec now;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &now);
  *out = (struct timeval){.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
  return 0;
}
