#include "harness/run/support/progress.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* What is printed in 61 seconds in which one finding is made, asked ten times a second. */
static void run(char *out, size_t size, bool is_terminal) {
  FILE *to = tmpfile();
  assert_non_null(to);
  struct sf_progress progress = sf_progress_begin(to, is_terminal, 100);
  for (int tenth = 0; tenth <= 610; tenth++) {
    const double now = 100 + tenth * 0.1;
    if (tenth == 405) sf_progress_say(&progress, "new finding %s", "a/b@tp");
    if (sf_progress_is_due(&progress, now + 1e-6)) sf_progress_show(&progress, now, "%d cases", tenth);
  }
  sf_progress_end(&progress);
  rewind(to);
  out[fread(out, 1, size - 1, to)] = '\0';
  fclose(to);
}

static void test_progress_in_a_log_is_a_line_every_30_seconds(void **state) {
  (void)state;
  char text[8192];
  run(text, sizeof text, false);
  assert_string_equal(text, "      30 s  300 cases\nnew finding a/b@tp\n      60 s  600 cases\n");
}

static void test_progress_on_a_terminal_is_one_line_that_is_rewritten(void **state) {
  (void)state;
  char text[8192];
  int shown = 0;
  run(text, sizeof text, true);
  for (const char *at = text; (at = strstr(at, " cases")) != NULL; at++) shown++;
  assert_int_equal(shown, 122);
  assert_non_null(strstr(text, " cases\r\033[Knew finding a/b@tp\n"));
  const char *newline = strchr(text, '\n');
  assert_non_null(newline);
  assert_null(strchr(newline + 1, '\n'));
  assert_string_equal(text + strlen(text) - 4, "\r\033[K");
}

static void test_progress_without_a_stream_is_silent(void **state) {
  (void)state;
  struct sf_progress progress = sf_progress_begin(NULL, true, 0);
  assert_false(sf_progress_is_due(&progress, 1000));
  sf_progress_show(&progress, 1000, "x");
  sf_progress_say(&progress, "x");
  sf_progress_end(&progress);
}

static void assert_count(const char *line, struct sf_progress_count count) {
  char text[256];
  FILE *to = tmpfile();
  assert_non_null(to);
  struct sf_progress progress = sf_progress_begin(to, false, 100);
  sf_progress_show_count(&progress, 160, &count);
  rewind(to);
  text[fread(text, 1, sizeof text - 1, to)] = '\0';
  fclose(to);
  assert_string_equal(text, line);
}

static void test_progress_show_count_says_only_what_there_is(void **state) {
  (void)state;
  assert_count("      60 s  0 cases, 0.0/s, no findings\n", (struct sf_progress_count){0});
  assert_count("      60 s  1 case, 0.0/s, 1 finding (1 being shrunk)\n",
               (struct sf_progress_count){.cases = 1, .findings = 1, .shrinking = 1});
  assert_count("      60 s  90 cases, 1.5/s, 2 findings\n", (struct sf_progress_count){.cases = 90, .findings = 2});
  assert_count("      60 s  5340 cases, 89/s, 3 findings (2 distinct, 1 being shrunk)\n",
               (struct sf_progress_count){.cases = 5340, .findings = 3, .shrinking = 1, .distinct = 2});
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_progress_in_a_log_is_a_line_every_30_seconds),
      cmocka_unit_test(test_progress_on_a_terminal_is_one_line_that_is_rewritten),
      cmocka_unit_test(test_progress_without_a_stream_is_silent),
      cmocka_unit_test(test_progress_show_count_says_only_what_there_is),
  };
  return cmocka_run_group_tests_name("run/progress", tests, NULL, NULL);
}
