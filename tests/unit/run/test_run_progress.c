#include "harness/run/support/progress.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
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

/* What is printed when screens of 3 and of 2 lines are drawn one after the other, a line is said, and the run ends. */
static void draw(char *out, size_t size) {
  const struct sf_screen_line lines[] = {
      {.label = "cases", .text = "12"}, {.label = "findings", .tone = SF_TONE_BAD, .text = "1"}, {.label = "store", .text = "a-long-path"}};
  FILE *to = tmpfile();
  assert_non_null(to);
  struct sf_progress progress = sf_progress_begin(to, true, 100);
  sf_progress_draw(&progress, 101, lines, 3, 20);
  sf_progress_draw(&progress, 102, lines, 2, 20);
  sf_progress_say(&progress, "new finding");
  sf_progress_draw(&progress, 103, lines, 2, 20);
  sf_progress_end(&progress);
  rewind(to);
  out[fread(out, 1, size - 1, to)] = '\0';
  fclose(to);
}

static void test_progress_draw_rewrites_its_lines_and_cuts_them(void **state) {
  (void)state;
  char text[2048];
  setenv("NO_COLOR", "1", 1);
  draw(text, sizeof text);
  assert_string_equal(text, "\rcases      12\033[K\n\rfindings   1\033[K\n\rstore      a-long-p\033[K"
                            "\033[2A\rcases      12\033[K\n\rfindings   1\033[K\033[J"
                            "\033[1A\r\033[Jnew finding\n"
                            "\rcases      12\033[K\n\rfindings   1\033[K\033[1A\r\033[J");
  unsetenv("NO_COLOR");
  draw(text, sizeof text);
  assert_non_null(strstr(text, "\033[0;1;31m1\033[0m"));
}

static void test_progress_screen_width_of_no_terminal_is_0(void **state) {
  (void)state;
  struct sf_progress progress = sf_progress_begin(stderr, false, 0);
  assert_int_equal(sf_progress_screen_width(&progress, 9), 0);
  progress.is_terminal = true;
  setenv("TERM", "dumb", 1);
  assert_int_equal(sf_progress_screen_width(&progress, 9), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_progress_in_a_log_is_a_line_every_30_seconds),
      cmocka_unit_test(test_progress_on_a_terminal_is_one_line_that_is_rewritten),
      cmocka_unit_test(test_progress_without_a_stream_is_silent),
      cmocka_unit_test(test_progress_draw_rewrites_its_lines_and_cuts_them),
      cmocka_unit_test(test_progress_screen_width_of_no_terminal_is_0),
  };
  return cmocka_run_group_tests_name("run/progress", tests, NULL, NULL);
}
