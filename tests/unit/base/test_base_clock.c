/* Deadlines count the time in which their watch was looked at. */
#include "harness/base/system/clock.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

static bool is_near(double a, double b) { return fabs(a - b) < 1e-9; }

static void test_watch_looked_at_often_counts_all_time(void **state) {
  (void)state;
  struct sf_watch watch = {0};
  assert_true(sf_watch_seconds_at(&watch, 1000) == 0);
  for (int32_t i = 1; i <= 100; i++) assert_true(is_near(sf_watch_seconds_at(&watch, 1000 + 0.05 * i), 0.05 * i));
}

static void test_watch_counts_a_pause_as_one_step(void **state) {
  (void)state;
  struct sf_watch watch = {0};
  sf_watch_seconds_at(&watch, 1000);
  sf_watch_seconds_at(&watch, 1000.125);
  assert_true(is_near(sf_watch_seconds_at(&watch, 1070.125), 0.125 + SF_WATCH_STEP_MS / 1e3));
  assert_true(is_near(sf_watch_seconds_at(&watch, 1070.25), 0.25 + SF_WATCH_STEP_MS / 1e3));
}

static void test_watch_never_goes_back(void **state) {
  (void)state;
  struct sf_watch watch = {0};
  sf_watch_seconds_at(&watch, 1000);
  sf_watch_seconds_at(&watch, 1000.125);
  assert_true(is_near(sf_watch_seconds_at(&watch, 999), 0.125));
  assert_true(is_near(sf_watch_seconds_at(&watch, 999.125), 0.25));
}

static void test_clock_goes_on_and_so_does_a_watch(void **state) {
  (void)state;
  struct sf_watch watch = {0};
  const double began = sf_clock_seconds();
  assert_true(sf_watch_seconds(&watch) == 0);
  usleep(2000);
  const double passed = sf_watch_seconds(&watch);
  assert_true(passed > 0.0019 && passed <= sf_clock_seconds() - began);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_watch_looked_at_often_counts_all_time),
      cmocka_unit_test(test_watch_counts_a_pause_as_one_step),
      cmocka_unit_test(test_watch_never_goes_back),
      cmocka_unit_test(test_clock_goes_on_and_so_does_a_watch),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
