/* What a long run tells while it goes on. On a terminal a screen of a few lines or, where there is no room, one line, rewritten twice a
 * second; elsewhere, as in the log of a job, a line every 30 seconds. Lines that are said (a new finding) stay in all of them. */
#ifndef SF_RUN_PROGRESS_H
#define SF_RUN_PROGRESS_H

#include "harness/base/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum sf_screen_tone { SF_TONE_PLAIN, SF_TONE_BAD };
/* "findings   3 signatures, 2 not known" */
struct sf_screen_line {
  const char *label; /* the program's own; at most 10 letters */
  enum sf_screen_tone tone;
  char text[240]; /* of sf_line_copy */
};

struct sf_progress {
  FILE *to; /* NULL: says nothing */
  bool is_terminal;
  int32_t open_lines; /* lines stand there that the next ones replace */
  double start, shown;
};

/* to: stderr, or NULL for silence; now: seconds of sf_engine_now. */
struct sf_progress sf_progress_begin(FILE *to, bool is_terminal, double now);
/* Whether it is time for sf_progress_show. */
bool sf_progress_is_due(const struct sf_progress *progress, double now);
/* "   90 s  TEXT": how far the run is. */
void sf_progress_show(struct sf_progress *progress, double now, const char *format, ...) SF_PRINTF(3, 4);
/* Columns of the terminal that have room for a screen of so many lines; 0: it has none, so that sf_progress_show is to be used. */
int32_t sf_progress_screen_width(const struct sf_progress *progress, int32_t lines);
/* Rewrites the screen. In colour, unless NO_COLOR is set. width: as above; longer lines are cut. */
void sf_progress_draw(struct sf_progress *progress, double now, const struct sf_screen_line *lines, int32_t count, int32_t width);
/* A line of its own. */
void sf_progress_say(struct sf_progress *progress, const char *format, ...) SF_PRINTF(2, 3);
/* Takes away what stands on a terminal. */
void sf_progress_end(struct sf_progress *progress);

#endif
