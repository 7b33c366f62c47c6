#include "harness/base/system/system_memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static void test_number_in_file(void **state) {
  (void)state;
  char path[] = "/tmp/sf_number_XXXXXX";
  const int fd = mkstemp(path);
  assert_true(fd >= 0);
  FILE *file = fdopen(fd, "w");
  assert_non_null(file);
  fputs("1234\noom_kill_disable 7\noom_kill 12\nMemAvailable:   55 kB\nwords max\n", file);
  fclose(file);
  assert_true(sf_number_in_file(path, "") == 1234);
  assert_true(sf_number_in_file(path, "oom_kill ") == 12);
  assert_true(sf_number_in_file(path, "MemAvailable:") == 55);
  assert_true(isinf(sf_number_in_file(path, "words "))); /* "max" is no number: a group without a limit */
  assert_true(isinf(sf_number_in_file(path, "missing")));
  unlink(path);
  assert_true(isinf(sf_number_in_file(path, "")));
}

static void test_system_says_something(void **state) {
  (void)state;
  assert_true(sf_memory_available() > 1 << 20);
  assert_true(sf_memory_kills() >= 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_number_in_file), cmocka_unit_test(test_system_says_something)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
