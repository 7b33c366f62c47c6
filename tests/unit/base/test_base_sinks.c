#include "harness/base/alloc.h"
#include "harness/base/sinks.h"
#include "tests/unit/hostile.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

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

static void test_line_append_any_text_keeps_to_its_line(void **state) {
  (void)state;
  for (int i = 0; i < HOSTILE_COUNT * HOSTILE_COUNT; i++) {
    const char *one = hostile_texts[i % HOSTILE_COUNT], *other = hostile_texts[i / HOSTILE_COUNT];
    struct sf_text text = {0};
    sf_line_append(&text, "%s%s\n%-30s %.5s\n", one, other, one, other);
    assert_lines(text.data);
    assert_int_equal(line_count(text.data), 2);
    sf_text_destroy(&text);
  }
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

/* Whether it is what some beginning of the text is shown as: no escape, and no character, is cut. */
static bool is_beginning_of(const char *shown, const char *text) {
  char beginning[512], out[2100];
  assert_true(strlen(text) < sizeof beginning);
  for (size_t length = 0; length <= strlen(text); length++) {
    snprintf(beginning, sizeof beginning, "%.*s", (int)length, text);
    sf_line_copy(out, sizeof out, beginning);
    if (strcmp(out, shown) == 0) return true;
  }
  return false;
}

static void test_line_copy_any_size_holds_whole_escapes(void **state) {
  (void)state;
  for (int i = 0; i < HOSTILE_COUNT; i++) {
    for (size_t size = 1; size < 60; size++) {
      char out[64];
      memset(out, 'z', sizeof out);
      sf_line_copy(out, size, hostile_texts[i]);
      assert_true(strlen(out) < size);
      assert_int_equal(out[size], 'z');
      if (!is_beginning_of(out, hostile_texts[i])) fail_msg("'%s' of '%s'", out, hostile_texts[i]);
    }
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

/* Ends the test unless the text is one code span, as CommonMark and tables of GitHub read it: no run of backticks inside is as long as the
 * outer ones, so nothing inside means anything, and each bar is behind an odd number of backslashes, so it ends no cell. */
static void assert_code_span(const char *text) {
  const size_t length = strlen(text), fence = strspn(text, "`");
  int backslashes = 0;
  assert_null(strpbrk(text, "\r\n"));
  assert_true(fence > 0 && fence < length);
  for (size_t at = fence; at < length; at++) {
    const size_t run = strspn(text + at, "`");
    if (run > 0 && (run == fence) != (at + run == length)) fail_msg("not one span: %s", text);
    if (text[at] == '|' && backslashes % 2 == 0) fail_msg("a bar ends the cell: %s", text);
    backslashes = text[at] == '\\' ? backslashes + 1 : 0;
    if (run > 0) at += run - 1;
  }
}

static void test_markdown_append_any_text_is_one_code_span(void **state) {
  static const char *const more[] = {"",    " ",     "`",   "``",  "a`",  "`a",  "a``b`c", "|",
                                     "\\|", "\\\\|", "a\\", "` `", " a ", "|`|", "<!--",   "$`x`$"};
  (void)state;
  for (int i = 0; i < HOSTILE_COUNT; i++) {
    for (size_t k = 0; k < sizeof more / sizeof more[0]; k++) {
      char joined[4096];
      struct sf_text text = {0};
      snprintf(joined, sizeof joined, "%s%s%s", more[k], i ? hostile_texts[i - 1] : "", i % 2 ? more[k] : "");
      sf_markdown_append(&text, joined);
      assert_lines(text.data);
      assert_code_span(text.data);
      sf_text_destroy(&text);
    }
  }
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

static void test_markdown_append_block_any_text_stays_inside(void **state) {
  (void)state;
  for (int i = 0; i < HOSTILE_COUNT * HOSTILE_COUNT; i++) {
    char joined[4096];
    struct sf_text text = {0};
    snprintf(joined, sizeof joined, "%s\n\n%s\n```\n </details>", hostile_texts[i % HOSTILE_COUNT], hostile_texts[i / HOSTILE_COUNT]);
    sf_markdown_append_block(&text, joined);
    assert_lines(text.data);
    const size_t fence = strspn(text.data, "`");
    assert_true(fence > 3 && text.data[fence] == '\n' && text.length > 2 * (fence + 1));
    const char *end = text.data + text.length - fence - 1;
    assert_int_equal(strspn(end, "`"), fence);
    assert_int_equal(end[-1], '\n');
    for (const char *at = text.data + fence; at < end; at += strspn(at, "`") + 1) assert_true(strspn(at, "`") < fence);
    assert_null(strstr(text.data, "\n\n"));
    sf_text_destroy(&text);
  }
}

/* Whether the text holds no markup: neither a tag, nor the end of an attribute, nor an entity that is not one of the five. */
static void assert_html_text(const char *text) {
  static const char *const entities[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
  assert_null(strpbrk(text, "<>\"'"));
  for (const char *at = text; (at = strchr(at, '&')) != NULL; at++) {
    bool is_known = false;
    for (size_t i = 0; i < sizeof entities / sizeof entities[0]; i++) is_known |= strncmp(at, entities[i], strlen(entities[i])) == 0;
    assert_true(is_known);
  }
  assert_null(strstr(text, "\xef\xbf\xbe")); /* no character of XML */
}

static void test_html_append_any_text_is_no_markup(void **state) {
  (void)state;
  for (int i = 0; i < HOSTILE_COUNT * HOSTILE_COUNT; i++) {
    char joined[4096];
    struct sf_text line = {0}, lines = {0};
    snprintf(joined, sizeof joined, "%s%s", hostile_texts[i % HOSTILE_COUNT], hostile_texts[i / HOSTILE_COUNT]);
    sf_html_append(&line, "<a title=\"%s\">", joined);
    sf_html_append_lines(&lines, joined);
    assert_lines(line.data);
    assert_int_equal(line_count(line.data), 0);
    assert_html_text(line.data);
    if (lines.data != NULL) assert_lines(lines.data), assert_html_text(lines.data);
    sf_text_destroy(&line);
    sf_text_destroy(&lines);
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

static void test_shell_append_any_word_shell_gives_it_back(void **state) {
  struct sf_text command = {0}, expected = {0};
  (void)state;
  sf_text_append(&command, "cd / && printf '<%%s>'");
  for (int i = 0; i < HOSTILE_COUNT; i++) {
    struct sf_text word = {0};
    sf_shell_append(&word, hostile_texts[i]);
    assert_lines(word.data);
    assert_int_equal(line_count(word.data), 0);
    sf_text_append(&command, " %s", word.data);
    sf_text_append(&expected, "<%s>", hostile_texts[i]);
    sf_text_destroy(&word);
  }
  char seen[8192] = "";
  FILE *shell = popen(command.data, "r");
  assert_non_null(shell);
  fread(seen, 1, sizeof seen - 1, shell);
  assert_int_equal(pclose(shell), 0);
  assert_string_equal(seen, expected.data);
  sf_text_destroy(&command);
  sf_text_destroy(&expected);
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
      cmocka_unit_test(test_line_append_any_text_keeps_to_its_line),
      cmocka_unit_test(test_line_append_no_memory_is_told),
      cmocka_unit_test(test_line_copy_any_size_holds_whole_escapes),
      cmocka_unit_test(test_print_lines_keeps_what_was_made_and_nothing_else),
      cmocka_unit_test(test_markdown_append_any_text_is_one_code_span),
      cmocka_unit_test(test_markdown_append_shows_the_text_as_it_is),
      cmocka_unit_test(test_markdown_append_block_any_text_stays_inside),
      cmocka_unit_test(test_html_append_any_text_is_no_markup),
      cmocka_unit_test(test_html_append_shows_the_text_as_it_is),
      cmocka_unit_test(test_shell_append_any_word_shell_gives_it_back),
      cmocka_unit_test(test_shell_append_plain_word_is_quoted),
      cmocka_unit_test(test_utf8_cut_keeps_whole_characters),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
