/* The functions of base/sinks.h, through which every text of others goes, with each text, and with each pair of them. */
#include "tests/hostile/hostile.h"

#include "harness/base/sinks.h"

#include <stdio.h>
#include <stdlib.h>

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
      law_code_span(text.data);
      sf_text_destroy(&text);
    }
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
    law_html_text(line.data);
    if (lines.data != NULL) assert_lines(lines.data), law_html_text(lines.data);
    sf_text_destroy(&line);
    sf_text_destroy(&lines);
  }
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

int hostile_run_sinks(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_line_append_any_text_keeps_to_its_line),    cmocka_unit_test(test_line_copy_any_size_holds_whole_escapes),
      cmocka_unit_test(test_markdown_append_any_text_is_one_code_span), cmocka_unit_test(test_markdown_append_block_any_text_stays_inside),
      cmocka_unit_test(test_html_append_any_text_is_no_markup),         cmocka_unit_test(test_shell_append_any_word_shell_gives_it_back),
  };
  return cmocka_run_group_tests_name("hostile/sinks", tests, NULL, NULL);
}
