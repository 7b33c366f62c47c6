#include "harness/run/support/progress.h"

#include "harness/base/sinks.h"

#include <inttypes.h>
#include <stdarg.h>

static const double TERMINAL_SECONDS = 0.5, LOG_SECONDS = 30;

struct sf_progress sf_progress_begin(FILE *to, bool is_terminal, double now) {
  return (struct sf_progress){.to = to, .is_terminal = is_terminal, .start = now, .shown = now};
}

bool sf_progress_is_due(const struct sf_progress *progress, double now) {
  return progress->to != NULL && now - progress->shown >= (progress->is_terminal ? TERMINAL_SECONDS : LOG_SECONDS);
}

void sf_progress_end(struct sf_progress *progress) {
  if (progress->is_open) sf_print(progress->to, "\r\033[K");
  progress->is_open = false;
}

void sf_progress_show(struct sf_progress *progress, double now, const char *format, ...) {
  va_list arguments;
  if (progress->to == NULL) return;
  sf_progress_end(progress);
  sf_print(progress->to, "%8.0f s  ", now - progress->start);
  va_start(arguments, format);
  sf_print_arguments(progress->to, format, arguments);
  va_end(arguments);
  if (!progress->is_terminal) sf_print(progress->to, "\n");
  fflush(progress->to);
  progress->is_open = progress->is_terminal;
  progress->shown = now;
}

static void append_note(struct sf_text *line, const char **before, int64_t number, const char *what) {
  if (number == 0) return;
  sf_line_append(line, "%s%" PRId64 " %s", *before, number, what);
  *before = ", ";
}

static void append_findings(struct sf_text *line, const struct sf_progress_count *count) {
  const char *before = " (";
  if (count->findings == 0)
    sf_line_append(line, "no findings");
  else
    sf_line_append(line, "%" PRId64 " finding%s", count->findings, count->findings == 1 ? "" : "s");
  append_note(line, &before, count->distinct, "distinct");
  append_note(line, &before, count->shrinking, "being shrunk");
  if (*before == ',') sf_line_append(line, ")");
}

void sf_progress_show_count(struct sf_progress *progress, double now, const struct sf_progress_count *count) {
  const double seconds = now - progress->start, rate = seconds > 0 ? (double)count->cases / seconds : 0;
  struct sf_text line = {0};
  sf_line_append(&line, "%" PRId64 " case%s, %.*f/s, ", count->cases, count->cases == 1 ? "" : "s", rate < 10 ? 1 : 0, rate);
  append_findings(&line, count);
  sf_progress_show(progress, now, "%s", line.failed ? "(out of memory)" : line.data);
  sf_text_destroy(&line);
}

void sf_progress_say(struct sf_progress *progress, const char *format, ...) {
  va_list arguments;
  if (progress->to == NULL) return;
  sf_progress_end(progress);
  va_start(arguments, format);
  sf_print_arguments(progress->to, format, arguments);
  va_end(arguments);
  sf_print(progress->to, "\n");
  fflush(progress->to);
}
