#include "harness/worker/worker_set.h"

#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/base/sinks.h"
#include "harness/base/system/clock.h"
#include "harness/worker/guard.h"
#include "harness/worker/launcher.h"
#include "harness/worker/line_buffer.h"
#include "harness/worker/shell.h"
#include "harness/worker/starved.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* After a rank fails, the others have GRACE_SECONDS to fail too; a set that died has LAST_WORDS_MS to print why. */
enum { TICK_MS = 50, LAST_WORDS_MS = 300, PAUSE_US = 2000, LIMIT_FACTOR = 10, SEND_SECONDS = 5, QUIT_SECONDS = 2, PATH_TEXT = 100 };
static const double GRACE_SECONDS = 2;

enum rank_state { RANK_WAITED_FOR, RANK_DONE, RANK_REFUSED, RANK_FULL, RANK_FAILED };

struct rank {
  int fd; /* -1: not connected */
  enum rank_state state;
  pid_t pid;      /* 0: not known */
  double heard;   /* time of its last message, by the set's watch */
  double starved; /* sf_starved_seconds at that time */
  struct sf_line_buffer lines;
};

struct sf_worker_set {
  struct sf_worker_set_options options;
  struct sf_guard guard;
  int listen_fd;
  char socket_path[PATH_TEXT];
  int32_t connected;
  struct sf_watch watch; /* for all deadlines of the set */
  struct rank *ranks;    /* in the order of ranks after all have said hello; before, in the order of their connections */
  struct pollfd *fds;
  int64_t id; /* id of the current or last request */
  bool over, may_be_spent;
  char output[SF_WORKER_OUTPUT_TEXT]; /* end of the printed output */
  size_t output_length;
};

#define X(NAME, text) [SF_WORKER_##NAME] = text,
static const char *const end_names[] = {X(ANSWERED, "answered") X(REFUSED, "refused") X(FULL, "full") X(RAISED, "raised")
                                            X(ONE_SIDED, "one-sided") X(DIED, "died") X(SILENT, "silent") X(GARBLED, "garbled")
                                                X(UNSTARTED, "unstarted") X(UNABLE, "unable") X(STOPPED, "stopped")};
#undef X

const char *sf_worker_end_name(enum sf_worker_end end) { return end_names[end]; }

void sf_worker_report_clear(struct sf_worker_report *report) {
  json_decref(report->value);
  memset(report, 0, sizeof *report);
}

static double now(struct sf_worker_set *set) { return sf_watch_seconds(&set->watch); }

/* --- what is printed -------------------------------------------------------------------------------------------- */

static void keep_output(struct sf_worker_set *set, const char *text, size_t length) {
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
static bool drain_output(struct sf_worker_set *set) {
  char block[4096];
  for (;;) {
    const ssize_t length = read(set->guard.output_fd, block, sizeof block);
    if (length == 0) return false;
    if (length < 0) return errno == EAGAIN || errno == EINTR;
    for (ssize_t i = 0; i < length; i++) block[i] = block[i] ? block[i] : ' ';
    keep_output(set, block, (size_t)length);
  }
}

static void drain_last_words(struct sf_worker_set *set) {
  const double until = now(set) + LAST_WORDS_MS / 1e3;
  struct pollfd fd = {set->guard.output_fd, POLLIN, 0};
  while (now(set) < until && drain_output(set)) poll(&fd, 1, TICK_MS);
}

/* --- ends ------------------------------------------------------------------------------------------------------- */

/* Processor seconds of children that have been waited for, and of their children. */
static double seconds_of_children(void) {
  struct rusage used;
  if (getrusage(RUSAGE_CHILDREN, &used) != 0) return 0;
  return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

/* A rank that reaches its limit on processor time is not our child: only its launcher sees the signal. We see what the whole set has used,
 * since the guard waits for it: if that is clearly less than the limit, the limit was not the cause. The kernel counts the limit in ticks
 * of its clock, and may find it reached a little early. */
static void end_guard(struct sf_worker_set *set) {
  struct rlimit limit;
  const double before = seconds_of_children();
  sf_guard_end(&set->guard);
  const bool limited = getrlimit(RLIMIT_CPU, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  set->may_be_spent = limited && !(seconds_of_children() - before < 0.75 * (double)limit.rlim_cur);
}

static void end_set(struct sf_worker_set *set) {
  if (set->over) return;
  set->over = true;
  for (int32_t i = 0; i < set->connected; i++) {
    if (set->ranks[i].fd >= 0) close(set->ranks[i].fd);
    set->ranks[i].fd = -1;
  }
  if (set->listen_fd >= 0) close(set->listen_fd);
  set->listen_fd = -1;
  unlink(set->socket_path);
  end_guard(set);
}

static void SF_PRINTF(4, 5)
    fail(struct sf_worker_set *set, struct sf_worker_report *report, enum sf_worker_end end, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(report->text, sizeof report->text, format, arguments);
  va_end(arguments);
  for (char *at = report->text; *at; at++) *at = *at == '\n' || *at == '\r' ? ' ' : *at;
  report->end = end;
  if (sf_worker_goes_on(end)) {
    drain_output(set);
  } else {
    if (end == SF_WORKER_DIED || end == SF_WORKER_UNSTARTED) drain_last_words(set);
    drain_output(set);
    end_set(set);
    report->may_be_spent = set->may_be_spent;
  }
  snprintf(report->output, sizeof report->output, "%s", set->output);
}

/* Reports that one rank failed, and its reason. */
static void fail_of(struct sf_worker_set *set, struct sf_worker_report *report, enum sf_worker_end end, int32_t rank, const char *what) {
  const struct sf_worker_report before = *report;
  fail(set, report, end, "rank %d %s: %.400s", rank, what, before.text);
  report->said = (int32_t)(strstr(report->text, what) - report->text + (ptrdiff_t)strlen(what)) + 2;
}

/* --- waiting ---------------------------------------------------------------------------------------------------- */

/* Waits a moment for the ranks, the listening socket and the guard; keeps printed output. False: the guard says that all have ended. */
static bool wait_moment(struct sf_worker_set *set, int timeout_ms) {
  const int32_t n = set->connected;
  for (int32_t i = 0; i < n; i++) set->fds[i] = (struct pollfd){set->ranks[i].fd, POLLIN, 0};
  set->fds[n] = (struct pollfd){set->guard.hold_fd, POLLIN, 0};
  set->fds[n + 1] = (struct pollfd){set->guard.output_fd, POLLIN, 0};
  set->fds[n + 2] = (struct pollfd){set->listen_fd, POLLIN, 0};
  const int ready = poll(set->fds, (nfds_t)n + 3, timeout_ms);
  if (ready <= 0) {
    for (int32_t i = 0; i < n + 3; i++) set->fds[i].revents = 0;
  }
  if (set->fds[n + 1].revents) drain_output(set);
  return set->fds[n].revents == 0;
}

static bool is_stopped(const struct sf_worker_set *set) { return set->options.stop && *set->options.stop; }

/* Parses a rank's line as an object (a new reference); NULL, with the reason, when it is not one. */
static json_t *parse_line(const char *line, size_t length, const char **wrong) {
  json_error_t error;
  json_t *value = json_loadb(line, length, JSON_REJECT_DUPLICATES, &error);
  *wrong = !value ? "is no JSON" : !json_is_object(value) ? "is no JSON object" : NULL;
  if (!*wrong) return value;
  json_decref(value);
  return NULL;
}

/* --- end of a set ---------------------------------------------------------------------------------------------- */

/* Sends a line, which a socket takes at once unless its rank does not read. */
static bool send_line(struct sf_worker_set *set, int fd, const char *line, size_t length) {
  const double until = now(set) + SEND_SECONDS;
  while (length && now(set) < until) {
    const ssize_t sent = send(fd, line, length, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) return false;
    if (sent < 0) poll(&(struct pollfd){fd, POLLOUT, 0}, 1, TICK_MS);
    else line += sent, length -= (size_t)sent;
  }
  return length == 0;
}

/* Asks ranks to end, so that they leave MPI in an orderly way; the rest are ended with the set. */
static void ask_to_quit(struct sf_worker_set *set) {
  static const char quit[] = "{\"request\":\"quit\"}\n";
  const double until = now(set) + QUIT_SECONDS;
  for (int32_t i = 0; i < set->connected; i++) {
    if (!send_line(set, set->ranks[i].fd, quit, sizeof quit - 1)) return;
  }
  while (now(set) < until && wait_moment(set, TICK_MS)) {
    for (int32_t i = 0; i < set->connected; i++) {
      if (!(set->fds[i].revents & POLLHUP)) continue;
      close(set->ranks[i].fd);
      set->ranks[i].fd = -1;
    }
    usleep(PAUSE_US);
  }
}

void sf_worker_set_end(struct sf_worker_set *set) {
  if (!set) return;
  if (!set->over && set->listen_fd < 0 && set->guard.pid > 0) ask_to_quit(set);
  end_set(set);
  for (int32_t i = 0; set->ranks && i < set->options.ranks; i++) sf_line_buffer_destroy(&set->ranks[i].lines);
  sf_free(set->ranks);
  sf_free(set->fds);
  sf_free(set);
}

/* --- start ------------------------------------------------------------------------------------------------------ */

/* Moves the connection to its rank's place: connections before that place have said hello or wait for it. */
static bool welcome(struct sf_worker_set *set, int32_t *at, struct sf_worker_report *report, const char *line, size_t length) {
  const char *wrong = NULL;
  json_int_t version = 0, rank = -1, world = 0;
  json_t *hello = parse_line(line, length, &wrong);
  if (hello && json_unpack(hello, "{s:I, s:I, s:I}", "hello", &version, "rank", &rank, "ranks", &world) != 0) wrong = "is no hello";
  json_decref(hello);
  if (wrong) {
    fail(set, report, SF_WORKER_GARBLED, "the first line of a rank %s: %.120s", wrong, line);
  } else if (version != 1) {
    fail(set, report, SF_WORKER_GARBLED, "a rank speaks version %lld of the protocol, not 1", (long long)version);
  } else if (world != set->options.ranks || rank < 0 || rank >= world) {
    fail(set, report, SF_WORKER_GARBLED, "rank %lld of %lld said hello where %d ranks were started", (long long)rank, (long long)world,
         set->options.ranks);
  } else if (set->ranks[rank].state == RANK_DONE) {
    fail(set, report, SF_WORKER_GARBLED, "rank %lld said hello twice", (long long)rank);
  } else {
    const struct rank other = set->ranks[rank];
    set->ranks[rank] = set->ranks[*at];
    set->ranks[rank].state = RANK_DONE;
    if (rank != *at) set->ranks[*at] = other;
    *at = (int32_t)rank;
    return true;
  }
  return false;
}

/* Reads the hellos that have arrived. A swap moves connections to places that are looked at again. */
static bool read_hellos(struct sf_worker_set *set, struct sf_worker_report *report, int32_t *greeted) {
  for (int32_t i = 0; i < set->options.ranks; i++) {
    struct rank *rank = &set->ranks[i];
    if (rank->fd < 0 || rank->state == RANK_DONE) continue;
    const bool there = sf_line_buffer_fill(&rank->lines, rank->fd);
    size_t length = 0;
    const char *line = sf_line_buffer_next(&rank->lines, &length);
    if (!line && !there) {
      fail(set, report, SF_WORKER_UNSTARTED, "a rank connected and was gone before its hello");
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
static void accept_rank(struct sf_worker_set *set) {
  const int fd = accept4(set->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) return;
  for (int32_t i = 0; i < set->options.ranks; i++) {
    if (set->ranks[i].fd >= 0) continue;
    set->ranks[i].fd = fd;
    set->ranks[i].pid = sf_peer_pid(fd);
    return;
  }
  close(fd);
}

static bool wait_for_hellos(struct sf_worker_set *set, struct sf_worker_report *report) {
  const double until = now(set) + set->options.start_seconds;
  int32_t greeted = 0;
  set->connected = set->options.ranks; /* poll ignores places without a connection */
  while (greeted < set->options.ranks) {
    const bool alive = wait_moment(set, TICK_MS);
    if (set->fds[set->connected + 2].revents) accept_rank(set);
    if (!read_hellos(set, report, &greeted)) return false;
    if (greeted == set->options.ranks) break;
    if (is_stopped(set)) fail(set, report, SF_WORKER_STOPPED, "interrupted");
    else if (!alive)
      fail(set, report, SF_WORKER_UNSTARTED, "the launcher ended before %d of %d ranks had said hello", set->options.ranks - greeted,
           set->options.ranks);
    else if (now(set) > until) fail(set, report, SF_WORKER_UNSTARTED, "%d of %d ranks did not say hello within %g s",
                                    set->options.ranks - greeted, set->options.ranks, set->options.start_seconds);
    else continue;
    return false;
  }
  close(set->listen_fd);
  set->listen_fd = -1;
  unlink(set->socket_path);
  return true;
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

/* Runs exec LAUNCHER COMMAND, with the socket's path in the environment. The command is one word for the launcher: each rank has a shell of
 * its own. */
static enum sf_status start_guard(struct sf_worker_set *set, struct sf_error *error) {
  struct sf_text command = {0};
  /* Sets use the same folder one after the other; no two start in the same nanosecond. */
  const int length = snprintf(set->socket_path, sizeof set->socket_path, "%s/socket-%llx", set->options.folder,
                              (unsigned long long)(sf_clock_seconds() * 1e9));
  if (length >= (int)sizeof set->socket_path)
    return sf_error_set(error, SF_EUSAGE, "%s: the path is too long for a socket", set->options.folder);
  set->listen_fd = sf_launcher_listen(set->socket_path, set->options.ranks);
  if (set->listen_fd < 0) return sf_error_set(error, SF_EIO, "%s: %s", set->socket_path, sf_errno_text(errno).text);
  append_library(&command);
  sf_text_append(&command, "SHARDFUZZ_SOCKET=");
  sf_shell_append(&command, set->socket_path);
  sf_text_append(&command, "; export SHARDFUZZ_SOCKET; exec ");
  sf_shell_launcher(&command, set->options.launcher, set->options.ranks);
  sf_text_append(&command, " /bin/sh -c ");
  sf_shell_append(&command, set->options.command);
  const enum sf_status status = command.failed ? SF_ENOMEM : sf_guard_start(&set->guard, command.data, set->options.held, error);
  sf_text_destroy(&command);
  return status;
}

enum sf_status sf_worker_set_start(struct sf_worker_set **out, struct sf_worker_report *report,
                                   const struct sf_worker_set_options *options) {
  SF_ASSERT_LE(options->ranks, SF_WORKER_RANKS_MAX);
  memset(report, 0, sizeof *report);
  report->rank = -1;
  struct sf_worker_set *set = sf_alloc(sizeof *set);
  if (!set) return SF_ENOMEM;
  struct sf_error error = {SF_OK, ""};
  set->options = *options;
  set->listen_fd = -1;
  set->ranks = sf_alloc((size_t)options->ranks * sizeof *set->ranks);
  set->fds = sf_alloc(((size_t)options->ranks + 3) * sizeof *set->fds);
  for (int32_t i = 0; set->ranks && i < options->ranks; i++) set->ranks[i].fd = -1;
  enum sf_status status = set->ranks && set->fds ? start_guard(set, &error) : SF_ENOMEM;
  if (status != SF_OK) {
    report->end = SF_WORKER_UNABLE;
    snprintf(report->text, sizeof report->text, "%s", *error.text ? error.text : sf_status_text(status));
  } else if (wait_for_hellos(set, report)) {
    *out = set;
    return SF_OK;
  } else {
    status = SF_EIO;
  }
  sf_worker_set_end(set);
  return status;
}

/* --- requests --------------------------------------------------------------------------------------------------- */

static int32_t count_state(const struct sf_worker_set *set, enum rank_state state, int32_t *first) {
  int32_t count = 0;
  for (int32_t i = set->options.ranks - 1; i >= 0; i--) {
    if (set->ranks[i].state != state) continue;
    count++;
    if (first) *first = i;
  }
  return count;
}

static void note_heard(struct sf_worker_set *set, struct rank *rank) {
  rank->heard = now(set);
  rank->starved = sf_starved_seconds(rank->pid);
}

/* Handles one line of a rank. False: the set has failed. */
static bool take_line(struct sf_worker_set *set, int32_t r, struct sf_worker_report *report, const char *line, size_t length) {
  struct rank *rank = &set->ranks[r];
  const char *wrong = NULL, *text = NULL;
  json_int_t id = -1;
  json_t *answer = parse_line(line, length, &wrong);
  report->rank = r;
  note_heard(set, rank);
  if (answer && json_unpack(answer, "{s:I}", "id", &id) != 0) wrong = "has no id";
  const json_t *ok = json_object_get(answer, "ok");
  if (wrong) {
    fail(set, report, SF_WORKER_GARBLED, "what rank %d said %s: %.160s", r, wrong, line);
  } else if (json_object_get(answer, "heartbeat")) {
    json_decref(answer);
    return true; /* an answer to an earlier request may come late */
  } else if (id != set->id) {
    fail(set, report, SF_WORKER_GARBLED, "rank %d answered request %lld while %lld was asked", r, (long long)id, (long long)set->id);
  } else if (rank->state != RANK_WAITED_FOR) {
    fail(set, report, SF_WORKER_GARBLED, "rank %d answered twice", r);
  } else if (ok) {
    rank->state = RANK_DONE;
    if (r == 0) report->value = json_incref((json_t *)(uintptr_t)ok);
  } else if (json_unpack(answer, "{s:s}", "refused", &text) == 0 || json_unpack(answer, "{s:s}", "full", &text) == 0) {
    rank->state = json_object_get(answer, "refused") ? RANK_REFUSED : RANK_FULL;
    if (!*report->text) snprintf(report->text, sizeof report->text, "%s", text);
  } else if (json_unpack(answer, "{s:s}", "error", &text) == 0) {
    rank->state = RANK_FAILED;
    if (count_state(set, RANK_FAILED, NULL) == 1) snprintf(report->text, sizeof report->text, "%s", text);
  } else {
    fail(set, report, SF_WORKER_GARBLED, "the answer of rank %d has none of ok, refused, full and error: %.160s", r, line);
  }
  json_decref(answer);
  return !set->over;
}

/* Reports closed connections. If the launcher ends all ranks because of one, several may be closed at once. */
static void fail_gone(struct sf_worker_set *set, struct sf_worker_report *report) {
  int32_t gone = 0, failed = -1;
  for (int32_t i = 0; i < set->options.ranks; i++) gone += (set->fds[i].revents & POLLHUP) != 0;
  const int32_t rank = report->rank;
  if (gone > 1) report->rank = -1;
  if (count_state(set, RANK_FAILED, &failed)) {
    report->rank = failed;
    drain_last_words(set); /* a rank that died may have said why: the one that failed may only have seen its end */
    fail_of(set, report, SF_WORKER_ONE_SIDED, failed, "failed and the set ended");
  } else if (gone > 1) {
    fail(set, report, SF_WORKER_DIED, "%d ranks died at once", gone);
  } else {
    fail(set, report, SF_WORKER_DIED, "rank %d died", rank);
  }
}

/* Reads rank r's lines. False: the set has failed. */
static bool hear_rank(struct sf_worker_set *set, int32_t r, struct sf_worker_report *report) {
  struct rank *rank = &set->ranks[r];
  const bool there = sf_line_buffer_fill(&rank->lines, rank->fd);
  size_t length = 0;
  for (const char *line; (line = sf_line_buffer_next(&rank->lines, &length)) != NULL;) {
    if (!take_line(set, r, report, line, length)) return false;
  }
  report->rank = r;
  if (sf_line_buffer_overflowed(&rank->lines)) {
    fail(set, report, SF_WORKER_GARBLED, "rank %d said a line of more than %d bytes", r, SF_WORKER_LINE_BYTES);
    return false;
  }
  if (there) return true;
  fail_gone(set, report);
  return false;
}

/* Draws the conclusion after all ranks have answered. */
static void conclude(struct sf_worker_set *set, struct sf_worker_report *report) {
  const int32_t ranks = set->options.ranks, failed = count_state(set, RANK_FAILED, &report->rank);
  char text[sizeof report->text];
  snprintf(text, sizeof text, "%s", report->text);
  if (failed == ranks) {
    fail(set, report, SF_WORKER_RAISED, "%s", text);
  } else if (failed) {
    fail_of(set, report, SF_WORKER_ONE_SIDED, report->rank, "failed while others went on");
  } else if (count_state(set, RANK_REFUSED, NULL) == ranks) {
    fail(set, report, SF_WORKER_REFUSED, "%s", text);
  } else if (count_state(set, RANK_REFUSED, &report->rank)) {
    fail_of(set, report, SF_WORKER_GARBLED, report->rank, "refused what others ran");
  } else if (count_state(set, RANK_FULL, &report->rank)) {
    fail(set, report, SF_WORKER_FULL, "%s", text);
  } else {
    fail(set, report, SF_WORKER_ANSWERED, "%s", "");
    report->rank = -1;
  }
  if (!report->value || report->end == SF_WORKER_ANSWERED) return;
  json_decref(report->value);
  report->value = NULL;
}

/* The lowest rank whose answer shows that it left the request early; -1 = none. Others may wait for it. */
static int32_t broken_off(const struct sf_worker_set *set) {
  for (int32_t i = 0; i < set->options.ranks; i++) {
    if (set->ranks[i].state != RANK_WAITED_FOR && set->ranks[i].state != RANK_DONE) return i;
  }
  return -1;
}

/* Whether some rank has said nothing for too long. Time in which one of them had no processor does not count: the others may wait for that
 * rank. */
static bool is_silent(const struct sf_worker_set *set, double t) {
  double longest = 0, starved = 0;
  for (int32_t i = 0; i < set->options.ranks; i++)
    if (set->ranks[i].state == RANK_WAITED_FOR && t - set->ranks[i].heard > longest) longest = t - set->ranks[i].heard;
  if (longest <= set->options.silent_seconds) return false;
  for (int32_t i = 0; i < set->options.ranks; i++) {
    const double waited = sf_starved_seconds(set->ranks[i].pid) - set->ranks[i].starved;
    if (set->ranks[i].state == RANK_WAITED_FOR && waited > starved) starved = waited;
  }
  return longest - starved > set->options.silent_seconds;
}

/* Fails the set, and returns false, if some rank was silent for too long. */
static bool check_clock(struct sf_worker_set *set, struct sf_worker_report *report, double began, double *broken_since) {
  const double t = now(set), silent_seconds = set->options.silent_seconds;
  const int32_t broken = broken_off(set);
  int32_t waited = -1;
  const int32_t waiting = count_state(set, RANK_WAITED_FOR, &waited);
  char what[64];
  if (broken >= 0 && *broken_since < 0) *broken_since = t;
  const bool silent = is_silent(set, t), late = t - began > LIMIT_FACTOR * silent_seconds;
  if (silent || late) report->rank = waiting == 1 ? waited : -1;
  if (broken >= 0 && (silent || late || t - *broken_since > GRACE_SECONDS)) {
    report->rank = broken;
    snprintf(what, sizeof what, "failed and %d others did not answer", waiting);
    fail_of(set, report, SF_WORKER_ONE_SIDED, broken, what);
  } else if (silent) {
    fail(set, report, SF_WORKER_SILENT, "%d of %d ranks did not answer and one of them said nothing for %g s", waiting, set->options.ranks,
         silent_seconds);
  } else if (late) {
    fail(set, report, SF_WORKER_SILENT, "%d of %d ranks did not answer within %g s, though they gave signs of life or had no processor",
         waiting, set->options.ranks, LIMIT_FACTOR * silent_seconds);
  } else {
    return true;
  }
  return false;
}

static void wait_for_answers(struct sf_worker_set *set, struct sf_worker_report *report) {
  const double began = now(set);
  double broken_since = -1;
  while (count_state(set, RANK_WAITED_FOR, NULL)) {
    const bool alive = wait_moment(set, TICK_MS);
    for (int32_t i = 0; i < set->connected; i++) {
      if (set->fds[i].revents && !hear_rank(set, i, report)) return;
    }
    if (count_state(set, RANK_WAITED_FOR, NULL) == 0) break;
    report->rank = -1;
    if (is_stopped(set)) fail(set, report, SF_WORKER_STOPPED, "interrupted");
    else if (!alive) fail(set, report, SF_WORKER_DIED, "the launcher ended");
    if (set->over || !check_clock(set, report, began, &broken_since)) return;
  }
  conclude(set, report);
}

bool sf_worker_set_is_sound(struct sf_worker_set *set) {
  if (set->over || !wait_moment(set, 0)) return false;
  for (int32_t i = 0; i < set->connected; i++) {
    size_t length = 0;
    if (set->fds[i].revents && !sf_line_buffer_fill(&set->ranks[i].lines, set->ranks[i].fd)) return false;
    for (const char *line; (line = sf_line_buffer_next(&set->ranks[i].lines, &length)) != NULL;) {
      if (!strstr(line, "\"heartbeat\"")) return false;
    }
  }
  return true;
}

static bool is_gone(int fd) {
  struct pollfd end = {fd, 0, 0};
  return poll(&end, 1, 0) == 1 && (end.revents & POLLHUP) != 0;
}

enum sf_status sf_worker_set_ask(struct sf_worker_set *set, struct sf_worker_report *report, json_t *request) {
  memset(report, 0, sizeof *report);
  report->rank = -1;
  SF_ASSERT(!set->over);
  set->id++;
  set->output_length = 0;
  set->output[0] = '\0';
  char *line = json_object_set_new(request, "id", json_integer(set->id)) == 0 ? json_dumps(request, JSON_COMPACT) : NULL;
  if (!line) return SF_ENOMEM;
  const size_t length = strlen(line);
  line[length] = '\n'; /* replaces the NUL: length + 1 bytes are sent */
  for (int32_t i = 0; i < set->connected && !set->over; i++) {
    set->ranks[i].state = RANK_WAITED_FOR;
    note_heard(set, &set->ranks[i]);
    /* A missing rank is noticed when answers are read, after the messages of the others: one of them may know the reason. */
    if (send_line(set, set->ranks[i].fd, line, length + 1) || is_gone(set->ranks[i].fd)) continue;
    report->rank = i;
    fail(set, report, SF_WORKER_DIED, "rank %d took no request", i);
  }
  free(line);
  if (!set->over) wait_for_answers(set, report);
  if (set->over && report->value) {
    json_decref(report->value);
    report->value = NULL;
  }
  return SF_OK;
}
