#include "harness/worker/worker_set.h"

#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/base/sinks.h"
#include "harness/worker/starved.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* After a rank fails, the others have GRACE_SECONDS to fail too. */
enum { PAUSE_US = 2000, SEND_SECONDS = 5, QUIT_SECONDS = 2 };
static const double GRACE_SECONDS = 2;

/* States of ranks. */
enum { RANK_WAITED_FOR, RANK_DONE, RANK_REFUSED, RANK_FULL, RANK_FAILED };

void sf_worker_report_clear(struct sf_worker_report *report) {
  json_decref(report->value);
  memset(report, 0, sizeof *report);
}

/* Reports that one rank failed, and its reason. */
static void fail_of(struct sf_rank_set *set, struct sf_worker_report *report, enum sf_worker_end end, int32_t rank, const char *what) {
  const struct sf_worker_report before = *report;
  sf_rank_set_fail(set, report, end, "rank %d %s: %.400s", rank, what, before.text);
  report->said = (int32_t)(strstr(report->text, what) - report->text + (ptrdiff_t)strlen(what)) + 2;
}

/* --- start and end ---------------------------------------------------------------------------------------------- */

/* Sends a line, which a socket takes at once unless its rank does not read. */
static bool send_line(int fd, const char *line, size_t length) {
  struct sf_wait wait = {.seconds = SEND_SECONDS};
  while (length) {
    const ssize_t sent = send(fd, line, length, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) return false;
    if (sent < 0 && sf_wait_for(&wait, fd, POLLOUT) != SF_WAIT_READY) return false;
    if (sent > 0) line += sent, length -= (size_t)sent;
  }
  return true;
}

/* Asks ranks to end, so that they leave MPI in an orderly way; the rest are ended with the set. */
static void ask_to_quit(struct sf_rank_set *set) {
  static const char quit[] = "{\"request\":\"quit\"}\n";
  const double until = sf_rank_set_now(set) + QUIT_SECONDS;
  for (int32_t i = 0; i < set->count; i++) {
    if (!send_line(set->ranks[i].fd, quit, sizeof quit - 1)) return;
  }
  while (sf_rank_set_now(set) < until && sf_rank_set_wait(set, -1, SF_MOMENT_MS)) {
    for (int32_t i = 0; i < set->count; i++) {
      if (!(set->fds[i].revents & POLLHUP)) continue;
      close(set->ranks[i].fd);
      set->ranks[i].fd = -1;
    }
    usleep(PAUSE_US);
  }
}

void sf_worker_set_end(struct sf_rank_set *set) {
  if (!set) return;
  if (!set->over) ask_to_quit(set);
  sf_rank_set_destroy(set);
  sf_free(set);
}

/* The command is one word for the launcher: each rank has a shell of its own. */
enum sf_status sf_worker_set_start(struct sf_rank_set **out, struct sf_worker_report *report, const struct sf_rank_set_options *options) {
  SF_ASSERT_LE(options->ranks, SF_WORKER_RANKS_MAX);
  struct sf_rank_set *set = sf_alloc(sizeof *set);
  struct sf_rank_set_options of_ranks = *options;
  struct sf_text command = {0};
  sf_text_append(&command, "/bin/sh -c ");
  sf_shell_append(&command, options->command);
  of_ranks.command = command.data;
  const enum sf_status status = set && !command.failed ? sf_rank_set_start(set, report, &of_ranks) : SF_ENOMEM;
  sf_text_destroy(&command);
  if (status == SF_OK) {
    *out = set;
  } else if (set) {
    sf_rank_set_destroy(set);
    sf_free(set);
  }
  return status;
}

/* --- requests --------------------------------------------------------------------------------------------------- */

static int32_t count_state(const struct sf_rank_set *set, int32_t state, int32_t *first) {
  int32_t count = 0;
  for (int32_t i = set->count - 1; i >= 0; i--) {
    if (set->ranks[i].state != state) continue;
    count++;
    if (first) *first = i;
  }
  return count;
}

/* What a rank gave as a reason. */
static const char *reason_of(const char *text) { return text[strspn(text, " \t\r\n")] == '\0' ? "the worker gave no reason" : text; }

/* NULL: the answer has no such text. */
static const char *text_of(const json_t *answer, const char *key) { return json_string_value(json_object_get(answer, key)); }

/* Handles one line of a rank. False: the set has failed. */
static bool take_line(struct sf_rank_set *set, int32_t r, struct sf_worker_report *report, const char *line, size_t length) {
  struct sf_rank *rank = &set->ranks[r];
  const char *wrong = NULL, *text = NULL;
  json_t *answer = sf_rank_line_parse(line, length, &wrong);
  report->rank = r;
  sf_rank_set_note_heard(set, rank);
  const json_t *asked = json_object_get(answer, "id");
  const json_int_t id = json_integer_value(asked);
  if (answer && !json_is_integer(asked)) wrong = "has no id";
  const json_t *ok = json_object_get(answer, "ok");
  set->is_done |= json_is_true(json_object_get(answer, "last"));
  if (wrong) {
    sf_rank_set_fail(set, report, SF_WORKER_GARBLED, "what rank %d said %s: %.160s", r, wrong, line);
  } else if (json_object_get(answer, "heartbeat")) {
    json_decref(answer);
    return true; /* an answer to an earlier request may come late */
  } else if (id != set->id) {
    sf_rank_set_fail(set, report, SF_WORKER_GARBLED, "rank %d answered request %lld while %lld was asked", r, (long long)id,
                     (long long)set->id);
  } else if (rank->state != RANK_WAITED_FOR) {
    sf_rank_set_fail(set, report, SF_WORKER_GARBLED, "rank %d answered twice", r);
  } else if (ok) {
    rank->state = RANK_DONE;
    if (r == 0) report->value = json_incref((json_t *)(uintptr_t)ok);
  } else if ((text = text_of(answer, "refused")) || (text = text_of(answer, "full"))) {
    rank->state = json_object_get(answer, "refused") ? RANK_REFUSED : RANK_FULL;
    if (!*report->text) snprintf(report->text, sizeof report->text, "%s", reason_of(text));
  } else if ((text = text_of(answer, "unusable"))) {
    sf_rank_set_fail(set, report, SF_WORKER_UNUSABLE, "%s", reason_of(text));
  } else if ((text = text_of(answer, "error"))) {
    rank->state = RANK_FAILED;
    if (count_state(set, RANK_FAILED, NULL) == 1) snprintf(report->text, sizeof report->text, "%s", reason_of(text));
  } else {
    sf_rank_set_fail(set, report, SF_WORKER_GARBLED, "the answer of rank %d has none of ok, refused, full, unusable and error: %.160s", r,
                     line);
  }
  json_decref(answer);
  return !set->over;
}

/* The ranks in this state whose connection is closed; first: the lowest. */
static int32_t count_gone(const struct sf_rank_set *set, int32_t state, int32_t *first) {
  int32_t count = 0;
  for (int32_t i = set->count - 1; i >= 0; i--) {
    if (set->ranks[i].state != state || !(set->fds[i].revents & POLLHUP)) continue;
    count++;
    *first = i;
  }
  return count;
}

/* Whether an error may come from another rank's end: words of Python's exceptions, of Gloo, MPI and the system. */
static bool tells_of_lost_peer(const char *text) {
  static const char *const words[] = {"EOF", "connect", "peer", "broken pipe", "socket closed"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strcasestr(text, words[i])) return true;
  return false;
}

/* Reports closed connections. failed: a rank that had failed before, which is why others are gone; -1 = none. Otherwise a rank that is gone
 * without an answer is the cause of what others say and of their ends, since a launcher may end them all; or one that has failed of
 * something else, and is gone. Several may be gone at once; the report begins, for its key, like that of one. */
static void fail_gone(struct sf_rank_set *set, struct sf_worker_report *report, int32_t failed) {
  static const char one[] = "rank died";
  int32_t rank = report->rank;
  const int32_t gone = count_gone(set, RANK_WAITED_FOR, &rank);
  if (failed < 0 && (!gone || !tells_of_lost_peer(report->text))) count_gone(set, RANK_FAILED, &failed);
  report->rank = failed >= 0 ? failed : gone > 1 ? -1 : rank;
  if (failed >= 0) {
    sf_rank_set_hear_last_words(set); /* a rank that died may have said why: the one that failed may only have seen its end */
    fail_of(set, report, SF_WORKER_ONE_SIDED, failed, "failed and the set ended");
  } else if (gone > 1) {
    sf_rank_set_fail(set, report, SF_WORKER_DIED, "%d ranks were gone at once: at least one %s", gone, one);
    report->said = (int32_t)(strstr(report->text, one) - report->text);
  } else {
    sf_rank_set_fail(set, report, SF_WORKER_DIED, "rank %d died", rank);
  }
}

/* Reads rank r's lines; gone: becomes r if no more will come. False: the set has failed. */
static bool hear_rank(struct sf_rank_set *set, int32_t r, struct sf_worker_report *report, int32_t *gone) {
  struct sf_rank *rank = &set->ranks[r];
  const bool there = sf_line_buffer_fill(&rank->lines, rank->fd);
  size_t length = 0;
  for (const char *line; (line = sf_line_buffer_next(&rank->lines, &length)) != NULL;) {
    if (!take_line(set, r, report, line, length)) return false;
  }
  if (!there) *gone = r;
  if (!sf_line_buffer_overflowed(&rank->lines)) return true;
  report->rank = r;
  sf_rank_set_fail(set, report, SF_WORKER_GARBLED, "rank %d said a line of more than %d bytes", r, SF_WORKER_LINE_BYTES);
  return false;
}

/* Reads what has come from all ranks. False: the set has failed. */
static bool hear_ranks(struct sf_rank_set *set, struct sf_worker_report *report) {
  int32_t failed = -1, gone = -1;
  count_state(set, RANK_FAILED, &failed);
  for (int32_t i = 0; i < set->count; i++) {
    if (set->fds[i].revents && !hear_rank(set, i, report, &gone)) return false;
  }
  if (gone < 0) return true;
  report->rank = gone;
  fail_gone(set, report, failed);
  return false;
}

/* Draws the conclusion after all ranks have answered. */
static void conclude(struct sf_rank_set *set, struct sf_worker_report *report) {
  const int32_t ranks = set->count, failed = count_state(set, RANK_FAILED, &report->rank);
  char text[sizeof report->text];
  snprintf(text, sizeof text, "%s", report->text);
  if (failed == ranks) {
    sf_rank_set_hear_of(set, text);
    sf_rank_set_fail(set, report, SF_WORKER_RAISED, "%s", text);
  } else if (failed) {
    fail_of(set, report, SF_WORKER_ONE_SIDED, report->rank, "failed while others went on");
  } else if (count_state(set, RANK_REFUSED, NULL) == ranks) {
    sf_rank_set_fail(set, report, SF_WORKER_REFUSED, "%s", text);
  } else if (count_state(set, RANK_REFUSED, &report->rank)) {
    fail_of(set, report, SF_WORKER_GARBLED, report->rank, "refused what others ran");
  } else if (count_state(set, RANK_FULL, &report->rank)) {
    sf_rank_set_fail(set, report, SF_WORKER_FULL, "%s", text);
  } else {
    sf_rank_set_fail(set, report, SF_WORKER_ANSWERED, "%s", "");
    report->rank = -1;
  }
  if (!report->value || report->end == SF_WORKER_ANSWERED) return;
  json_decref(report->value);
  report->value = NULL;
}

/* The lowest rank whose answer shows that it left the request early; -1 = none. Others may wait for it. */
static int32_t broken_off(const struct sf_rank_set *set) {
  for (int32_t i = 0; i < set->count; i++) {
    if (set->ranks[i].state != RANK_WAITED_FOR && set->ranks[i].state != RANK_DONE) return i;
  }
  return -1;
}

/* Fails the set, and returns false, if some rank was silent for too long. */
static bool check_clock(struct sf_rank_set *set, struct sf_worker_report *report, double began, double *broken_since) {
  const double t = sf_rank_set_now(set), silent_seconds = set->silent_seconds;
  const int32_t broken = broken_off(set);
  int32_t waited = -1;
  const int32_t waiting = count_state(set, RANK_WAITED_FOR, &waited);
  char what[64];
  if (broken >= 0 && *broken_since < 0) *broken_since = t;
  const bool silent = sf_rank_set_is_silent(set, RANK_WAITED_FOR, silent_seconds), late = t - began > SF_LIMIT_FACTOR * silent_seconds;
  if (silent || late) report->rank = waiting == 1 ? waited : -1;
  if (broken >= 0 && (silent || late || t - *broken_since > GRACE_SECONDS)) {
    report->rank = broken;
    snprintf(what, sizeof what, "failed and %d others did not answer", waiting);
    fail_of(set, report, SF_WORKER_ONE_SIDED, broken, what);
  } else if (silent) {
    sf_rank_set_fail(set, report, SF_WORKER_SILENT, "%d of %d ranks did not answer and one of them said nothing for %g s", waiting,
                     set->count, silent_seconds);
  } else if (late) {
    sf_rank_set_fail(set, report, SF_WORKER_SILENT,
                     "%d of %d ranks did not answer within %g s, though they gave signs of life or had no processor", waiting, set->count,
                     SF_LIMIT_FACTOR * silent_seconds);
  } else {
    return true;
  }
  return false;
}

static void wait_for_answers(struct sf_rank_set *set, struct sf_worker_report *report) {
  const double began = sf_rank_set_now(set);
  double broken_since = -1;
  while (count_state(set, RANK_WAITED_FOR, NULL)) {
    const bool alive = sf_rank_set_wait(set, -1, SF_MOMENT_MS);
    if (!hear_ranks(set, report)) return;
    if (count_state(set, RANK_WAITED_FOR, NULL) == 0) break;
    report->rank = -1;
    if (set->stop && *set->stop)
      sf_rank_set_fail(set, report, SF_WORKER_STOPPED, "interrupted");
    else if (!alive)
      sf_rank_set_fail(set, report, SF_WORKER_DIED, "the launcher ended");
    if (set->over || !check_clock(set, report, began, &broken_since)) return;
  }
  conclude(set, report);
}

bool sf_worker_set_is_sound(struct sf_rank_set *set) {
  if (set->over || set->is_done || !sf_rank_set_wait(set, -1, 0)) return false;
  for (int32_t i = 0; i < set->count; i++) {
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

enum sf_status sf_worker_set_ask(struct sf_rank_set *set, struct sf_worker_report *report, json_t *request) {
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
  for (int32_t i = 0; i < set->count && !set->over; i++) {
    set->ranks[i].state = RANK_WAITED_FOR;
    sf_rank_set_note_heard(set, &set->ranks[i]);
    /* A missing rank is noticed when answers are read, after the messages of the others: one of them may know the reason. */
    if (send_line(set->ranks[i].fd, line, length + 1) || is_gone(set->ranks[i].fd)) continue;
    report->rank = i;
    sf_rank_set_fail(set, report, SF_WORKER_DIED, "rank %d took no request", i);
  }
  free(line);
  if (!set->over) wait_for_answers(set, report);
  if (set->over && report->value) {
    json_decref(report->value);
    report->value = NULL;
  }
  return SF_OK;
}
