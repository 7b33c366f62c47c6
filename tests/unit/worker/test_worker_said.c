#include "harness/worker/said.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* This process's stderr while `work` runs. */
static void caught(char *out, size_t size, void (*work)(struct sf_said *said), struct sf_said *said) {
  const int kept = dup(STDERR_FILENO), memory = memfd_create("stderr", MFD_CLOEXEC);
  dup2(memory, STDERR_FILENO);
  work(said);
  dup2(kept, STDERR_FILENO);
  const ssize_t count = pread(memory, out, size - 1, 0);
  out[count > 0 ? count : 0] = '\0';
  close(kept);
  close(memory);
}

static char last[160];

static void in_child(struct sf_said *said, void (*print)(struct sf_said *said)) {
  fflush(NULL);
  const pid_t child = fork();
  if (child == 0) {
    sf_said_begin(said);
    print(said);
    _exit(0);
  }
  waitpid(child, NULL, 0);
  sf_said_last(said, last, sizeof last);
}

static void print_and_die(struct sf_said *said) {
  (void)said;
  printf("one\n");
  fprintf(stderr, "two\n  what():  three  \n\n");
}
static void die_with_last_words(struct sf_said *said) { in_child(said, print_and_die); }

static void print_in_two_cases(struct sf_said *said) {
  fprintf(stderr, "first\n");
  sf_said_pass_on(said);
  sf_said_end(said);
  fprintf(stderr, "between\n");
  sf_said_begin(said);
}
static void die_in_silence(struct sf_said *said) { in_child(said, print_in_two_cases); }

static void test_said_last_line_is_kept_and_all_is_passed_on(void **state) {
  struct sf_said said;
  char text[256];
  (void)state;
  assert_true(sf_said_open(&said));
  caught(text, sizeof text, die_with_last_words, &said);
  assert_string_equal(last, "what():  three");
  assert_string_equal(text, "    | one\n    | two\n    |   what():  three  \n");
  /* Of a process that died without a word nothing is quoted that an earlier case had said. */
  caught(text, sizeof text, die_in_silence, &said);
  assert_string_equal(last, "");
  assert_string_equal(text, "    | first\nbetween\n");
  sf_said_close(&said);
}

static void print_hostile(struct sf_said *said) {
  (void)said;
  printf("%s", "::error::forged\n\x1b[31m##[error]forged\r\n\xff");
  for (int i = 0; i < 3000; i++) printf("\xe2\x82\xac");
}
static void die_hostile(struct sf_said *said) { in_child(said, print_hostile); }

static void test_said_passed_on_is_marked_and_visible(void **state) {
  struct sf_said said;
  static char text[16384];
  (void)state;
  assert_true(sf_said_open(&said));
  caught(text, sizeof text, die_hostile, &said);
  const char *begin = "    | :\\x3aerror::forged\n    | \\x1b[31m##\\x5berror]forged\\r\n    | \\xff\xe2\x82\xac";
  if (strncmp(text, begin, strlen(begin)) != 0) fail_msg("%.200s", text);
  int32_t characters = 0;
  for (const char *at = text; (at = strstr(at, "\xe2\x82\xac")) != NULL; at += 3) characters++;
  assert_int_equal(characters, 3000);
  assert_null(strchr(text, '\x1b'));
  for (const char *line = text; *line; line = strchr(line, '\n') + 1) assert_int_equal(strncmp(line, "    | ", 6), 0);
  sf_said_close(&said);
}

static void test_said_without_memory_changes_nothing(void **state) {
  struct sf_said none = {.memory = -1, .own = {-1, -1}};
  char text[256];
  (void)state;
  caught(text, sizeof text, die_with_last_words, &none);
  assert_string_equal(last, "");
  assert_non_null(strstr(text, "two\n"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_said_last_line_is_kept_and_all_is_passed_on),
      cmocka_unit_test(test_said_passed_on_is_marked_and_visible),
      cmocka_unit_test(test_said_without_memory_changes_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
