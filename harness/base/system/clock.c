#include "harness/base/system/clock.h"

#include <time.h>

double sf_clock_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

double sf_watch_seconds_at(struct sf_watch *watch, double now) {
  const double step = SF_WATCH_STEP_MS / 1e3, since = watch->seen > 0 ? now - watch->seen : 0;
  watch->passed += since > step ? step : since > 0 ? since : 0;
  watch->seen = now;
  return watch->passed;
}

double sf_watch_seconds(struct sf_watch *watch) { return sf_watch_seconds_at(watch, sf_clock_seconds()); }
