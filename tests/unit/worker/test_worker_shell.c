/* Launchers as the shell reads them. */
#include "harness/worker/shell.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void test_launcher_every_hole_filled(void **state) {
  (void)state;
  static const char *const cases[][2] = {
      {"mpirun -n {n}", "mpirun -n 12"}, {"srun", "srun"}, {"a {n} b {n} c", "a 12 b 12 c"}, {"{n}", "12"}, {"{m} {n", "{m} {n"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    struct sf_text text = {0};
    sf_shell_launcher(&text, cases[i][0], 12);
    assert_string_equal(text.data, cases[i][1]);
    sf_text_destroy(&text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_launcher_every_hole_filled)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
