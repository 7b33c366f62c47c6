#include "harness/base/alloc.h"
#include "harness/base/sinks.h"
#include "harness/base/utf8.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define ASSERT_LINE(expected, ...)            \
  do {                                        \
    struct sf_text line_ = {0};               \
    sf_line_append(&line_, __VA_ARGS__);      \
    assert_string_equal(line_.data, expected); \
    sf_text_destroy(&line_);                  \
  } while (0)

static void test_line_append_formats_as_printf_does(void **state) {
  char expected[600];
  struct sf_text text = {0};
  (void)state;
#define ARGUMENTS                                                                                                                          \
  "%d|%5d|%-5d|%05d|%i|%u|%x|%08x|%" PRId64 "|%" PRIu64 "|%016" PRIx64                                                                     \
  "|%zu|%lld|%ld|%.3g|%11.3g|%.0f|%5.1f|%%|%s|%10s|%-10s|%.3s|%.*s|%*d|%-*s|%c|%c",                                                        \
      -7, 12, 12, 12, 3, 7u, 255u, 0xabu, INT64_MIN, UINT64_MAX, UINT64_C(0x1234), (size_t)5, 6LL, 7L, 1.0 / 3, 1e9, 2.5, 2.25, "s",       \
      "right", "left", "cut here", 2, "cut", 6, 42, 4, "a", 'c', '+'
  snprintf(expected, sizeof expected, ARGUMENTS);
  sf_line_append(&text, ARGUMENTS);
#undef ARGUMENTS
  assert_string_equal(text.data, expected);
  sf_text_destroy(&text);
}

static void test_line_append_what_is_anybodys_is_made_visible(void **state) {
  (void)state;
  ASSERT_LINE("a \\x1b[31m\\n\\t\\r\\x7f z\n", "a %s z\n", "\x1b[31m\n\t\r\x7f");
  ASSERT_LINE("\\xc2\\x9b|\\xe2\\x80\\xae|\\xff|\xc3\xa9", "%s|%s|%s|%s", "\xc2\x9b", "\xe2\x80\xae", "\xff", "\xc3\xa9");
  ASSERT_LINE("\xe2\x82\xac|", "%.5s|", "\xe2\x82\xac\xe2\x82\xac");
  ASSERT_LINE("  \xe2\x82\xac|\xe2\x82\xac  |", "%3s|%-3s|", "\xe2\x82\xac", "\xe2\x82\xac");
  ASSERT_LINE(":\\x3aerror::x\n :\\x3aerror\na::b", "%s\n %s\n%s", "::error::x", "::error", "a::b");
  ASSERT_LINE(":\\x3aerror", "%s%s", ":", ":error");
  ASSERT_LINE("##\\x5berror] ##vso\\x5bx] #[y", "%s[error] %s #[y", "##", "##vso[x]");
}

static void test_line_append_continues_a_line(void **state) {
  struct sf_text text = {0};
  (void)state;
  sf_line_append(&text, "a\n%s", ":");
  sf_line_append(&text, "%s", ":error");
  assert_string_equal(text.data, "a\n:\\x3aerror");
  sf_text_destroy(&text);
  sf_line_append(&text, "#"); /* and the first line of all */
  sf_line_append(&text, "%s", "#[x]");
  assert_string_equal(text.data, "##\\x5bx]");
  sf_text_destroy(&text);
}

static void test_line_append_all_marks_each_line(void **state) {
  struct sf_text text = {0};
  (void)state;
  sf_line_append_all(&text, "| ", "\n::error::x\n \t\r\n\x1b[0m\r\nend");
  assert_string_equal(text.data, "| ::error::x\n| \\x1b[0m\\r\n| end\n");
  sf_text_destroy(&text);
}

static void test_line_append_no_memory_is_told(void **state) {
  (void)state;
  for (int64_t k = 1;; k++) {
    struct sf_text text = {0};
    sf_alloc_fail_at(k);
    sf_line_append(&text, "%s", "\x1b");
    const bool failed = sf_alloc_did_fail();
    sf_alloc_fail_at(0);
    assert_int_equal(text.failed, failed);
    sf_text_destroy(&text);
    if (!failed) break;
  }
}

static void test_print_lines_keeps_what_was_made_and_nothing_else(void **state) {
  char *seen = NULL;
  size_t size = 0;
  FILE *to = open_memstream(&seen, &size);
  (void)state;
  sf_print_lines(to, "two\nlines\n\x1b[31m\n::error::x\nno end");
  sf_print_lines(to, NULL);
  sf_print(to, "%s\n", "\x1b");
  fclose(to);
  assert_string_equal(seen, "two\nlines\n\\x1b[31m\n:\\x3aerror::x\nno end\\x1b\n");
  free(seen);
}

static void test_markdown_append_shows_the_text_as_it_is(void **state) {
  static const char *const table[][2] = {
      {"tolerance/act/self_attention.linear_proj@tp+sp", "`tolerance/act/self_attention.linear_proj@tp+sp`"},
      {"shardfuzz replay 'a (1)/min.json' # <b> & [x](y): 50 %", "`shardfuzz replay 'a (1)/min.json' # <b> & [x](y): 50 %`"},
      {"a`b", "``a`b``"},
      {"`", "`` ` ``"},
      {"a|b", "`a\\|b`"},
      {"a\\|b", "`a\\\\\\|b`"},
      {" a ", "`  a  `"},
      {"", "`  `"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
    struct sf_text text = {0};
    sf_markdown_append(&text, table[i][0]);
    assert_string_equal(text.data, table[i][1]);
    sf_text_destroy(&text);
  }
}

static void test_html_append_shows_the_text_as_it_is(void **state) {
  struct sf_text text = {0};
  (void)state;
  sf_html_append(&text, "%s %d: a & b \xe2\x82\xac", "<i> \"x\" 'y'", 7);
  assert_string_equal(text.data, "&lt;i&gt; &quot;x&quot; &#39;y&#39; 7: a &amp; b \xe2\x82\xac");
  sf_text_destroy(&text);
  sf_html_append_lines(&text, "one <1>\n\ntwo\n");
  assert_string_equal(text.data, "one &lt;1&gt;\ntwo\n");
  sf_text_destroy(&text);
}

static void test_shell_append_plain_word_is_quoted(void **state) {
  struct sf_text text = {0};
  (void)state;
  sf_shell_append(&text, "a b/min.json");
  assert_string_equal(text.data, "'a b/min.json'");
  sf_text_destroy(&text);
}

static void test_utf8_cut_keeps_whole_characters(void **state) {
  (void)state;
  assert_int_equal(sf_utf8_cut("abc", 5), 3);
  assert_int_equal(sf_utf8_cut("abc", 3), 3);
  assert_int_equal(sf_utf8_cut("abc", 2), 2);
  assert_int_equal(sf_utf8_cut("a\xe2\x82\xac", 3), 1);
  assert_int_equal(sf_utf8_cut("a\xe2\x82\xac", 4), 4);
  assert_int_equal(sf_utf8_cut("\xf0\x9f\x94\xa5x", 3), 0);
  assert_int_equal(sf_utf8_cut("\xf0\x9f\x94\xa5x", 4), 4);
  assert_int_equal(sf_utf8_cut("\x80\x80\x80", 2), 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_line_append_formats_as_printf_does),
      cmocka_unit_test(test_line_append_what_is_anybodys_is_made_visible),
      cmocka_unit_test(test_line_append_continues_a_line),
      cmocka_unit_test(test_line_append_all_marks_each_line),
      cmocka_unit_test(test_line_append_no_memory_is_told),
      cmocka_unit_test(test_print_lines_keeps_what_was_made_and_nothing_else),
      cmocka_unit_test(test_markdown_append_shows_the_text_as_it_is),
      cmocka_unit_test(test_html_append_shows_the_text_as_it_is),
      cmocka_unit_test(test_shell_append_plain_word_is_quoted),
      cmocka_unit_test(test_utf8_cut_keeps_whole_characters),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
