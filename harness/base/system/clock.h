/* The one clock of this program, and the watch that every deadline is measured with. */
#ifndef SF_BASE_CLOCK_H
#define SF_BASE_CLOCK_H

/* Seconds since some moment of the past: for reports, and for how long a campaign is to last. */
double sf_clock_seconds(void);

/* Counts the time in which the process that looks at it ran: between two looks at most SF_WATCH_STEP_MS. So a deadline does not pass while
 * everything stands still, as in a frozen container, a suspended job or a laptop that sleeps. A process that waits for a deadline has to
 * look more often than that. */
enum { SF_WATCH_STEP_MS = 250 };
struct sf_watch {
  double seen; /* sf_clock_seconds of the last look; 0: none yet */
  double passed;
};
/* Seconds since the first look at a zeroed watch. */
double sf_watch_seconds(struct sf_watch *watch);
/* The same where it is `now`, a time of sf_clock_seconds. */
double sf_watch_seconds_at(struct sf_watch *watch, double now);

#endif
