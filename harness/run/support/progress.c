#include "harness/run/support/progress.h"

#include "harness/base/bytes.h"
#include "harness/base/sinks.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

static const double TERMINAL_SECONDS = 0.5, LOG_SECONDS = 30;
enum { COLUMNS_DEFAULT = 80, ROWS_DEFAULT = 24, SCREEN_COLUMNS_LEAST = 60, LABEL_COLUMNS = 11, CLOCK_COLUMNS = 12 };

struct sf_progress sf_progress_begin(FILE *to, bool is_terminal, double now) {
  return (struct sf_progress){.to = to, .is_terminal = is_terminal, .start = now, .shown = now};
}

bool sf_progress_is_due(const struct sf_progress *progress, double now) {
  return progress->to != NULL && now - progress->shown >= (progress->is_terminal ? TERMINAL_SECONDS : LOG_SECONDS);
}

/* Goes to where the open lines begin, and clears from there on. */
static void clear_open(struct sf_progress *progress) {
  if (progress->open_lines == 0) return;
  if (progress->open_lines > 1) sf_print(progress->to, "\033[%dA", progress->open_lines - 1);
  sf_print(progress->to, progress->open_lines > 1 ? "\r\033[J" : "\r\033[K");
  progress->open_lines = 0;
}

void sf_progress_end(struct sf_progress *progress) { clear_open(progress); }

static struct winsize size_of(FILE *to) {
  struct winsize size = {0};
  if (ioctl(fileno(to), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) size.ws_col = COLUMNS_DEFAULT;
  if (size.ws_row == 0) size.ws_row = ROWS_DEFAULT;
  return size;
}

/* The length of the text, or where to cut it if it is too long: at its last comma that fits, so that no number is cut in two. */
static int length_within(const char *text, int columns) {
  const int length = (int)strlen(text);
  if (length <= columns) return length;
  for (int end = columns; end > 0; end--)
    if (text[end] == ',') return end;
  return columns > 0 ? columns : 0;
}

/* Cut to the terminal's width, because what is wider cannot be rewritten. */
void sf_progress_show(struct sf_progress *progress, double now, const char *format, ...) {
  va_list arguments;
  char text[400];
  if (progress->to == NULL) return;
  clear_open(progress);
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  const int columns = progress->is_terminal ? size_of(progress->to).ws_col - CLOCK_COLUMNS : (int)sizeof text;
  sf_print(progress->to, "%8.0f s  %.*s", now - progress->start, length_within(text, columns), text);
  if (!progress->is_terminal) sf_print(progress->to, "\n");
  fflush(progress->to);
  progress->open_lines = progress->is_terminal;
  progress->shown = now;
}

static bool is_plain_terminal(void) {
  const char *terminal = getenv("TERM");
  return terminal == NULL || strcmp(terminal, "dumb") == 0;
}

int32_t sf_progress_screen_width(const struct sf_progress *progress, int32_t lines) {
  if (progress->to == NULL || !progress->is_terminal || is_plain_terminal()) return 0;
  const struct winsize size = size_of(progress->to);
  return size.ws_col >= SCREEN_COLUMNS_LEAST && size.ws_row > lines ? size.ws_col : 0;
}

static bool has_colour(void) {
  const char *refused = getenv("NO_COLOR");
  return refused == NULL || *refused == '\0';
}

static void draw_line(FILE *to, const struct sf_screen_line *line, int32_t width, bool colour) {
  const int room = width - LABEL_COLUMNS - 1;
  if (!colour)
    sf_print(to, "\r%-*s%.*s\033[K", LABEL_COLUMNS, line->label, room, line->text);
  else if (line->tone == SF_TONE_BAD)
    sf_print(to, "\r\033[2m%-*s\033[0;1;31m%.*s\033[0m\033[K", LABEL_COLUMNS, line->label, room, line->text);
  else
    sf_print(to, "\r\033[2m%-*s\033[0m%.*s\033[K", LABEL_COLUMNS, line->label, room, line->text);
}

/* Each line replaces the one that stands there, so that nothing flickers. */
void sf_progress_draw(struct sf_progress *progress, double now, const struct sf_screen_line *lines, int32_t count, int32_t width) {
  const bool colour = has_colour();
  if (progress->to == NULL) return;
  if (progress->open_lines > 1) sf_print(progress->to, "\033[%dA", progress->open_lines - 1);
  for (int32_t i = 0; i < count; i++) {
    if (i > 0) sf_print(progress->to, "\n");
    draw_line(progress->to, &lines[i], width, colour);
  }
  if (progress->open_lines > count) sf_print(progress->to, "\033[J");
  fflush(progress->to);
  progress->open_lines = count;
  progress->shown = now;
}

void sf_progress_say(struct sf_progress *progress, const char *format, ...) {
  va_list arguments;
  if (progress->to == NULL) return;
  clear_open(progress);
  va_start(arguments, format);
  sf_print_arguments(progress->to, format, arguments);
  va_end(arguments);
  sf_print(progress->to, "\n");
  fflush(progress->to);
}
