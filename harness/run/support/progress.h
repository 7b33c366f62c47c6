/* What a long run tells while it goes on. On a terminal one line, rewritten twice a second; elsewhere, as in the log of a job, a line every
 * 30 seconds. Lines that are said (a new finding) stay in both. */
#ifndef SF_RUN_PROGRESS_H
#define SF_RUN_PROGRESS_H

#include "harness/base/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct sf_progress {
  FILE *to; /* NULL: says nothing */
  bool is_terminal;
  bool is_open; /* a line stands there that the next one replaces */
  double start, shown;
};

/* to: stderr, or NULL for silence; now: seconds of sf_engine_now. */
struct sf_progress sf_progress_begin(FILE *to, bool is_terminal, double now);
/* Whether it is time for sf_progress_show. */
bool sf_progress_is_due(const struct sf_progress *progress, double now);
/* "   90 s  TEXT": how far the run is. */
void sf_progress_show(struct sf_progress *progress, double now, const char *format, ...) SF_PRINTF(3, 4);
/* How far a campaign is. */
struct sf_progress_count {
  int64_t cases, findings; /* findings: cases with one */
  int64_t shrinking;       /* of the findings */
  int64_t distinct;        /* signatures; 0 = not counted */
};

/* "   90 s  5360 cases, 60/s, 2 findings (1 being shrunk)"; what is zero is left out. */
void sf_progress_show_count(struct sf_progress *progress, double now, const struct sf_progress_count *count);
/* A line of its own. */
void sf_progress_say(struct sf_progress *progress, const char *format, ...) SF_PRINTF(2, 3);
/* Takes the line away that stands on a terminal. */
void sf_progress_end(struct sf_progress *progress);

#endif
