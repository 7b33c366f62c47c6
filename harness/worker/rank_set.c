#include "harness/worker/rank_set.h"

#include "harness/base/alloc.h"
#include "harness/base/json.h"
#include "harness/base/sinks.h"
#include "harness/base/system/local_socket.h"
#include "harness/worker/shell.h"
#include "harness/worker/starved.h"
#include "harness/worker/zygote.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* A set that died has LAST_WORDS_MS to print why; a launcher whose ranks are gone has CLEAN_MS to remove its session's files. */
enum { LAST_WORDS_MS = 300, CLEAN_MS = 1000 };

#define X(NAME, text) [SF_WORKER_##NAME] = text,
static const char *const end_names[] = {X(ANSWERED, "answered") X(REFUSED, "refused") X(FULL, "full") X(RAISED, "raised")
                                            X(ONE_SIDED, "one-sided") X(DIED, "died") X(SILENT, "silent") X(GARBLED, "garbled")
                                                X(UNSTARTED, "unstarted") X(UNABLE, "unable") X(UNUSABLE, "unusable")
                                                    X(STOPPED, "stopped")};
#undef X

const char *sf_worker_end_name(enum sf_worker_end end) { return end_names[end]; }

double sf_rank_set_now(struct sf_rank_set *set) { return sf_watch_seconds(&set->watch); }

/* --- what is printed -------------------------------------------------------------------------------------------- */

static void keep_output(struct sf_rank_set *set, const char *text, size_t length) {
  const size_t room = sizeof set->output - 1;
  if (length > room) text += length - room, length = room;
  if (set->output_length + length > room) {
    const size_t drop = set->output_length + length - room;
    memmove(set->output, set->output + drop, set->output_length - drop);
    set->output_length -= drop;
  }
  memcpy(set->output + set->output_length, text, length);
  set->output_length += length;
  set->output[set->output_length] = '\0';
}

/* Takes the output that is there. False at its end, when no process is left that could print. */
static bool drain_output(struct sf_rank_set *set) {
  char block[4096];
  for (;;) {
    const ssize_t length = read(set->output_fd, block, sizeof block);
    if (length == 0) return false;
    if (length < 0) return errno == EAGAIN || errno == EINTR;
    for (ssize_t i = 0; i < length; i++) block[i] = block[i] ? block[i] : ' ';
    keep_output(set, block, (size_t)length);
  }
}

void sf_rank_set_hear_last_words(struct sf_rank_set *set) {
  struct sf_wait wait = {.seconds = LAST_WORDS_MS / 1e3};
  while (drain_output(set) && sf_wait_for(&wait, set->output_fd, POLLIN) == SF_WAIT_READY) continue;
}

void sf_rank_set_hear_of(struct sf_rank_set *set, const char *error) {
  struct sf_wait wait = {.seconds = LAST_WORDS_MS / 1e3};
  char name[80];
  snprintf(name, sizeof name, "%.*s", (int)strcspn(error, ":\n"), error);
  while (drain_output(set) && strstr(set->output, name) == NULL && sf_wait_for(&wait, set->output_fd, POLLIN) == SF_WAIT_READY) continue;
}

/* --- ends ------------------------------------------------------------------------------------------------------- */

/* Processor seconds of children that have been waited for, and of their children. */
static double seconds_of_children(void) {
  struct rusage used;
  if (getrusage(RUSAGE_CHILDREN, &used) != 0) return 0;
  return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

/* Returns the processor seconds that the ranks have used; infinity when nobody knows. A leader that does not end its ranks is dead or
 * stopped. */
static double end_forked(struct sf_rank_set *set) {
  const double seconds = sf_zygote_end(set->leader_fd);
  set->leader_fd = -1;
  for (int32_t i = 0; seconds < 0 && i < set->count; i++) {
    if (set->ranks[i].pid > 0) kill(set->ranks[i].pid, SIGKILL);
  }
  return seconds < 0 ? INFINITY : seconds;
}

/* A rank that reaches its limit on processor time is not our child: only its launcher sees the signal. We see what the whole set has used,
 * since the watcher waits for it: if that is clearly less than the limit, the limit was not the cause. The kernel counts the limit in ticks
 * of its clock, and may find it reached a little early. */
static void end_processes(struct sf_rank_set *set) {
  struct rlimit limit;
  double seconds = -seconds_of_children();
  if (set->leader_fd >= 0) {
    seconds = end_forked(set);
  } else {
    sf_watcher_end(&set->watcher);
    seconds += seconds_of_children();
  }
  const bool limited = getrlimit(RLIMIT_CPU, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  set->may_be_spent = limited && !(seconds < 0.75 * (double)limit.rlim_cur);
}

static void close_fd(int *fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

static void stop_listening(struct sf_rank_set *set) {
  close_fd(&set->listen_fd);
  unlink(set->socket_path);
}

static void end_set(struct sf_rank_set *set) {
  if (set->over) return;
  set->over = true;
  for (int32_t i = 0; i < set->count; i++) close_fd(&set->ranks[i].fd);
  stop_listening(set);
  end_processes(set);
  close_fd(&set->output_fd);
}

void sf_rank_set_fail(struct sf_rank_set *set, struct sf_worker_report *report, enum sf_worker_end end, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(report->text, sizeof report->text, format, arguments);
  va_end(arguments);
  for (char *at = report->text; *at; at++) *at = *at == '\n' || *at == '\r' ? ' ' : *at;
  report->end = end;
  if (end == SF_WORKER_DIED || end == SF_WORKER_UNSTARTED) sf_rank_set_hear_last_words(set);
  drain_output(set);
  if (!sf_worker_goes_on(end)) {
    end_set(set);
    report->may_be_spent = set->may_be_spent;
  }
  snprintf(report->output, sizeof report->output, "%s", set->output);
}

void sf_rank_set_destroy(struct sf_rank_set *set) {
  if (set->ranks) end_set(set);
  for (int32_t i = 0; i < set->count; i++) sf_line_buffer_destroy(&set->ranks[i].lines);
  sf_free(set->ranks);
  sf_free(set->fds);
  *set = (struct sf_rank_set){0};
}

/* --- waiting ---------------------------------------------------------------------------------------------------- */

/* The descriptors of a set behind those of its ranks. */
enum { FD_OWNER, FD_WATCHER, FD_OUTPUT, FD_LISTEN, FD_COUNT };

bool sf_rank_set_wait(struct sf_rank_set *set, int fd, int timeout_ms) {
  struct pollfd *own = set->fds + set->count;
  for (int32_t i = 0; i < set->count; i++) set->fds[i] = (struct pollfd){set->ranks[i].fd, POLLIN, 0};
  own[FD_OWNER] = (struct pollfd){fd, POLLIN, 0};
  own[FD_WATCHER] = (struct pollfd){set->leader_fd >= 0 ? set->leader_fd : set->watcher.told, POLLIN, 0};
  own[FD_OUTPUT] = (struct pollfd){set->output_fd, POLLIN, 0};
  own[FD_LISTEN] = (struct pollfd){set->listen_fd, POLLIN, 0};
  sf_wait_moment(set->fds, set->count + FD_COUNT, timeout_ms);
  if (own[FD_OUTPUT].revents) drain_output(set);
  return own[FD_WATCHER].revents == 0;
}

void sf_rank_set_note_heard(struct sf_rank_set *set, struct sf_rank *rank) {
  rank->heard = sf_rank_set_now(set);
  rank->starved = sf_starved_seconds(rank->pid);
}

bool sf_rank_set_is_silent(struct sf_rank_set *set, int32_t waited_for, double seconds) {
  const double now = sf_rank_set_now(set);
  double longest = 0, starved = 0;
  for (int32_t i = 0; i < set->count; i++)
    if (set->ranks[i].state == waited_for && now - set->ranks[i].heard > longest) longest = now - set->ranks[i].heard;
  if (longest <= seconds) return false;
  for (int32_t i = 0; i < set->count; i++) {
    const double waited = sf_starved_seconds(set->ranks[i].pid) - set->ranks[i].starved;
    if (set->ranks[i].state == waited_for && waited > starved) starved = waited;
  }
  return longest - starved > seconds;
}

/* --- hellos ----------------------------------------------------------------------------------------------------- */

json_t *sf_rank_line_parse(const char *line, size_t length, const char **wrong) {
  json_t *value = sf_json_of_bytes(line, length, JSON_REJECT_DUPLICATES);
  *wrong = !value ? "is no JSON" : !json_is_object(value) ? "is no JSON object" : NULL;
  if (!*wrong) return value;
  json_decref(value);
  return NULL;
}

/* False: the object has no such integer. json_unpack would fail without memory too. */
static bool get_integer(json_int_t *out, const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  *out = json_integer_value(value);
  return json_is_integer(value);
}

/* Moves the connection to its rank's place: connections before that place have said hello or wait for it. */
static bool welcome(struct sf_rank_set *set, int32_t *at, struct sf_worker_report *report, const char *line, size_t length) {
  const char *wrong = NULL;
  json_int_t version = 0, rank = -1, world = 0;
  json_t *hello = sf_rank_line_parse(line, length, &wrong);
  const bool has_all = get_integer(&version, hello, "hello") && get_integer(&rank, hello, "rank") && get_integer(&world, hello, "ranks");
  const json_t *can_fork = json_object_get(hello, "forks");
  const bool forks = json_is_true(can_fork);
  if (hello && (!has_all || (can_fork && !json_is_boolean(can_fork)))) wrong = "is no hello";
  json_decref(hello);
  if (wrong) {
    sf_rank_set_fail(set, report, SF_WORKER_GARBLED, "the first line of a rank %s: %.120s", wrong, line);
  } else if (version != 1) {
    sf_rank_set_fail(set, report, SF_WORKER_GARBLED, "a rank speaks version %lld of the protocol, not 1", (long long)version);
  } else if (world != set->count || rank < 0 || rank >= world) {
    sf_rank_set_fail(set, report, SF_WORKER_GARBLED, "rank %lld of %lld said hello where %d ranks were started", (long long)rank,
                     (long long)world, set->count);
  } else if (set->ranks[rank].greeted) {
    sf_rank_set_fail(set, report, SF_WORKER_GARBLED, "rank %lld said hello twice", (long long)rank);
  } else {
    const struct sf_rank other = set->ranks[rank];
    set->ranks[rank] = set->ranks[*at];
    set->ranks[rank].greeted = true;
    set->is_zygote = forks && *set->zygote_path;
    if (rank != *at) set->ranks[*at] = other;
    *at = (int32_t)rank;
    return true;
  }
  return false;
}

/* Reads the hellos that have arrived. A swap moves connections to places that are looked at again. */
static bool read_hellos(struct sf_rank_set *set, struct sf_worker_report *report, int32_t *greeted) {
  for (int32_t i = 0; i < set->count; i++) {
    struct sf_rank *rank = &set->ranks[i];
    if (rank->fd < 0 || rank->greeted) continue;
    const bool there = sf_line_buffer_fill(&rank->lines, rank->fd);
    size_t length = 0;
    const char *line = sf_line_buffer_next(&rank->lines, &length);
    if (!line && !there) {
      sf_rank_set_fail(set, report, SF_WORKER_UNSTARTED, "a rank connected and was gone before its hello");
      return false;
    }
    if (!line) continue;
    int32_t at = i;
    if (!welcome(set, &at, report, line, length)) return false;
    (*greeted)++;
    if (at != i) i--;
  }
  return true;
}

/* Puts a new connection into the first free place. */
static void accept_rank(struct sf_rank_set *set) {
  const int fd = accept4(set->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) return;
  for (int32_t i = 0; i < set->count; i++) {
    if (set->ranks[i].fd >= 0) continue;
    set->ranks[i].fd = fd;
    set->ranks[i].pid = sf_peer_pid(fd);
    return;
  }
  close(fd);
}

static bool wait_for_hellos(struct sf_rank_set *set, struct sf_worker_report *report, double seconds) {
  const double until = sf_rank_set_now(set) + seconds;
  int32_t greeted = 0;
  while (greeted < set->count) {
    const bool alive = sf_rank_set_wait(set, -1, SF_MOMENT_MS);
    if (set->fds[set->count + FD_LISTEN].revents) accept_rank(set);
    if (!read_hellos(set, report, &greeted)) return false;
    if (greeted == set->count) break;
    if (set->stop && *set->stop)
      sf_rank_set_fail(set, report, SF_WORKER_STOPPED, "interrupted");
    else if (!alive)
      sf_rank_set_fail(set, report, SF_WORKER_UNSTARTED, "the launcher ended before %d of %d ranks had said hello", set->count - greeted,
                       set->count);
    else if (sf_rank_set_now(set) > until)
      sf_rank_set_fail(set, report, SF_WORKER_UNSTARTED, "%d of %d ranks did not say hello within %g s", set->count - greeted, set->count,
                       seconds);
    else
      continue;
    return false;
  }
  stop_listening(set);
  return true;
}

int sf_rank_connect(const char *socket_path, int32_t rank, int32_t ranks) {
  char hello[80];
  int fd = sf_socket_connect(socket_path);
  snprintf(hello, sizeof hello, "{\"hello\": 1, \"rank\": %d, \"ranks\": %d}\n", rank, ranks);
  if (fd >= 0 && !sf_fd_write(fd, hello, strlen(hello))) close_fd(&fd);
  return fd;
}

/* --- start ------------------------------------------------------------------------------------------------------ */

static enum sf_status listen_in(struct sf_rank_set *set, const char *folder, struct sf_error *error) {
  /* Sets use the same folder one after the other; no two start in the same nanosecond. */
  const int length =
      snprintf(set->socket_path, sizeof set->socket_path, "%s/socket-%llx", folder, (unsigned long long)(sf_clock_seconds() * 1e9));
  if (length >= (int)sizeof set->socket_path) return sf_error_set(error, SF_EUSAGE, "%s: the path is too long for a socket", folder);
  set->listen_fd = sf_socket_listen(set->socket_path, set->count);
  if (set->listen_fd >= 0) return SF_OK;
  return sf_error_set(error, SF_EIO, "%s: %s", set->socket_path, sf_errno_text(errno).text);
}

/* Appends the library of consistent tensors beside this program, unless the user named one. */
static void append_library(struct sf_text *command) {
  static const char name[] = "libshardfuzz.so";
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - sizeof name);
  if (length <= 0) return;
  path[length] = '\0';
  memcpy(strrchr(path, '/') + 1, name, sizeof name);
  if (access(path, R_OK) != 0) return;
  sf_text_append(command, "test -n \"$SHARDFUZZ_LIBRARY\" || SHARDFUZZ_LIBRARY=");
  sf_shell_append(command, path);
  sf_text_append(command, "; export SHARDFUZZ_LIBRARY; ");
}

/* Becomes the launcher, with what Open MPI needs so that several sets share few cores (no binding, yielding waits, root allowed, ranks
 * killed at once) unless the environment says otherwise. output_fd: where it prints; -1 = as before. */
static _Noreturn void launcher_main(const char *command, int output_fd) {
  static const char *const defaults[][2] = {
      {"OMPI_ALLOW_RUN_AS_ROOT", "1"},       {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},     {"OMPI_MCA_hwloc_base_binding_policy", "none"},
      {"OMPI_MCA_mpi_yield_when_idle", "1"}, {"OMPI_MCA_odls_base_sigkill_timeout", "0"}, {"OMP_NUM_THREADS", "1"}};
  signal(SIGTERM, SIG_DFL);
  signal(SIGINT, SIG_DFL);
  for (size_t i = 0; i < sizeof defaults / sizeof defaults[0]; i++) setenv(defaults[i][0], defaults[i][1], 0);
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing < 0) _exit(127);
  dup2(nothing, STDIN_FILENO);
  if (output_fd >= 0) {
    dup2(output_fd, STDOUT_FILENO);
    dup2(output_fd, STDERR_FILENO);
  }
  sf_close_others(-1, -1);
  execl("/bin/sh", "sh", "-c", command, (char *)NULL);
  _exit(127);
}

static enum sf_status fork_launcher(struct sf_rank_set *set, const char *command, const struct sf_rank_set_options *options,
                                    struct sf_error *error) {
  int output[2] = {-1, -1};
  const bool piped = options->shows_output || pipe2(output, O_CLOEXEC) == 0;
  const pid_t pid = piped ? sf_watcher_fork(&set->watcher, SF_WARD_LAUNCHER, CLEAN_MS, options->held) : -1;
  if (pid == 0) launcher_main(command, output[1]);
  const int cause = errno;
  close_fd(&output[1]);
  set->output_fd = output[0];
  if (pid < 0) return sf_error_set(error, SF_EIO, "a set of ranks could not be started: %s", sf_errno_text(cause).text);
  if (set->output_fd >= 0) fcntl(set->output_fd, F_SETFL, O_NONBLOCK);
  return SF_OK;
}

static enum sf_status fork_ranks(struct sf_rank_set *set, const struct sf_rank_set_options *options, struct sf_error *error) {
  int output[2];
  if (pipe2(output, O_CLOEXEC) != 0)
    return sf_error_set(error, SF_EIO, "a set of ranks could not be started: %s", sf_errno_text(errno).text);
  set->leader_fd = sf_zygote_fork(options->zygote, options->ranks, set->socket_path, output[1], options->held);
  const int cause = errno;
  close(output[1]);
  set->output_fd = output[0];
  fcntl(set->output_fd, F_SETFL, O_NONBLOCK);
  if (set->leader_fd >= 0) return SF_OK;
  return sf_error_set(error, SF_EIO, "the process that forks ranks is gone: %s", sf_errno_text(cause).text);
}

/* Runs exec LAUNCHER COMMAND, with the socket's path in the environment. */
static enum sf_status start_launcher(struct sf_rank_set *set, const struct sf_rank_set_options *options, struct sf_error *error) {
  struct sf_text command = {0};
  enum sf_status status = listen_in(set, options->folder, error);
  if (status != SF_OK) return status;
  if (options->zygote) return fork_ranks(set, options, error);
  append_library(&command);
  sf_text_append(&command, "SHARDFUZZ_SOCKET=");
  sf_shell_append(&command, set->socket_path);
  sf_text_append(&command, "; export SHARDFUZZ_SOCKET; ");
  if (options->may_fork) {
    snprintf(set->zygote_path, sizeof set->zygote_path, "%s.z", set->socket_path);
    sf_text_append(&command, "SHARDFUZZ_ZYGOTE=");
    sf_shell_append(&command, set->zygote_path);
    sf_text_append(&command, "; export SHARDFUZZ_ZYGOTE; ");
  }
  sf_text_append(&command, "exec ");
  sf_shell_launcher(&command, options->launcher, options->ranks);
  sf_text_append(&command, " %s", options->command);
  status = command.failed ? SF_ENOMEM : fork_launcher(set, command.data, options, error);
  sf_text_destroy(&command);
  return status;
}

enum sf_status sf_rank_set_start(struct sf_rank_set *out, struct sf_worker_report *report, const struct sf_rank_set_options *options) {
  struct sf_error error = {SF_OK, ""};
  memset(report, 0, sizeof *report);
  report->rank = -1;
  *out = (struct sf_rank_set){.stop = options->stop,
                              .silent_seconds = options->silent_seconds,
                              .leader_fd = -1,
                              .listen_fd = -1,
                              .output_fd = -1,
                              .watcher.told = -1};
  out->ranks = sf_alloc((size_t)options->ranks * sizeof *out->ranks);
  out->fds = sf_alloc(((size_t)options->ranks + FD_COUNT) * sizeof *out->fds);
  if (out->ranks) out->count = options->ranks;
  for (int32_t i = 0; i < out->count; i++) out->ranks[i].fd = -1;
  const enum sf_status status = out->ranks && out->fds ? start_launcher(out, options, &error) : SF_ENOMEM;
  if (status == SF_OK) return wait_for_hellos(out, report, options->start_seconds) ? SF_OK : SF_EIO;
  report->end = SF_WORKER_UNABLE;
  snprintf(report->text, sizeof report->text, "%s", *error.text ? error.text : sf_status_text(status));
  return status;
}
