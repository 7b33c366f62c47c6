#include "harness/base/assert.h"
#include "harness/base/status.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_status_text_of_each_status_is_its_text(void **state) {
  (void)state;
#define X(name, text) assert_string_equal(sf_status_text(SF_##name), text);
  SF_STATUS_MAP(X)
#undef X
}

static void test_status_text_of_a_number_that_is_no_status_is_a_text(void **state) {
  (void)state;
  assert_string_equal(sf_status_text((enum sf_status)9999), "unknown status");
}

static void test_error_set_fills_status_and_text_and_returns_status(void **state) {
  (void)state;
  struct sf_error error = {0};
  assert_int_equal(sf_error_set(&error, SF_EINPUT, "%s: %d is bad", "layout.tp", 7), SF_EINPUT);
  assert_int_equal(error.status, SF_EINPUT);
  assert_string_equal(error.text, "layout.tp: 7 is bad");
}

static void test_error_set_without_error_returns_status(void **state) {
  (void)state;
  assert_int_equal(sf_error_set(NULL, SF_EIO, "%d", 1), SF_EIO);
}

static void test_error_set_with_control_characters_stays_one_line(void **state) {
  (void)state;
  struct sf_error error;
  (void)sf_error_set(&error, SF_EINPUT, "a\nb\r\x1b[31mc\x7f");
  assert_string_equal(error.text, "a\\nb\\r\\x1b[31mc\\x7f");
}

static void test_error_set_with_long_text_is_cut_and_terminated(void **state) {
  (void)state;
  struct sf_error error;
  char text[2 * sizeof error.text];
  memset(text, 'x', sizeof text - 1);
  text[sizeof text - 1] = '\0';
  (void)sf_error_set(&error, SF_EINPUT, "%s", text);
  assert_int_equal(strlen(error.text), sizeof error.text - 1);
}

static void test_error_set_with_own_text_as_argument_prefixes_it(void **state) {
  (void)state;
  struct sf_error error;
  (void)sf_error_set(&error, SF_EINPUT, "inner");
  (void)sf_error_set(&error, SF_EINPUT, "outer: %s", error.text);
  assert_string_equal(error.text, "outer: inner");
}

/* --- asserts: what a child process that fails one leaves behind -------------------------------------------------- */

static void fail_plain(void) { SF_ASSERT(1 + 1 == 3); }
static void fail_equal(void) { SF_ASSERT_EQ(4, 5); }
static void fail_less_equal(void) { SF_ASSERT_LE(7, 6); }
static void fail_less(void) { SF_ASSERT_LT(8, 8); }
static void pass_all(void) {
  SF_ASSERT(1);
  SF_ASSERT_EQ(5, 5);
  SF_ASSERT_LE(6, 6);
  SF_ASSERT_LT(-1, 0);
}

/* Wait status of the child; its stderr in text. */
static int run_in_child(char *text, size_t text_size, void (*function)(void)) {
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    signal(SIGABRT, SIG_DFL);
    function();
    _exit(0);
  }
  close(ends[1]);
  size_t length = 0;
  for (ssize_t got; length + 1 < text_size && (got = read(ends[0], text + length, text_size - 1 - length)) > 0;) length += (size_t)got;
  text[length] = '\0';
  close(ends[0]);
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  return status;
}

static void expect_abort(void (*function)(void), const char *part) {
  char text[512];
  const int status = run_in_child(text, sizeof text, function);
  assert_true(WIFSIGNALED(status));
  assert_int_equal(WTERMSIG(status), SIGABRT);
  if (strstr(text, part) == NULL) fail_msg("\"%s\" is not in \"%s\"", part, text);
}

static void test_assert_that_fails_prints_and_aborts(void **state) {
  (void)state;
  expect_abort(fail_plain, "assertion failed: 1 + 1 == 3");
  expect_abort(fail_equal, "(4 against 5)");
  expect_abort(fail_less_equal, "(7 against 6)");
  expect_abort(fail_less, "(8 against 8)");
}

static void test_assert_that_holds_goes_on(void **state) {
  (void)state;
  char text[512];
  const int status = run_in_child(text, sizeof text, pass_all);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
  assert_string_equal(text, "");
}

static void test_status_of_errno_tells_a_full_disk_from_a_broken_one(void **state) {
  (void)state;
  assert_int_equal(sf_status_of_errno(ENOSPC), SF_ENOSPC);
  assert_int_equal(sf_status_of_errno(EDQUOT), SF_ENOSPC);
  assert_int_equal(sf_status_of_errno(EIO), SF_EIO);
  assert_int_equal(sf_status_of_errno(ENOENT), SF_ENOTFOUND);
  assert_int_equal(sf_status_of_errno(ENOMEM), SF_ENOMEM);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_status_text_of_each_status_is_its_text),
      cmocka_unit_test(test_status_text_of_a_number_that_is_no_status_is_a_text),
      cmocka_unit_test(test_status_of_errno_tells_a_full_disk_from_a_broken_one),
      cmocka_unit_test(test_error_set_fills_status_and_text_and_returns_status),
      cmocka_unit_test(test_error_set_without_error_returns_status),
      cmocka_unit_test(test_error_set_with_control_characters_stays_one_line),
      cmocka_unit_test(test_error_set_with_long_text_is_cut_and_terminated),
      cmocka_unit_test(test_error_set_with_own_text_as_argument_prefixes_it),
      cmocka_unit_test(test_assert_that_fails_prints_and_aborts),
      cmocka_unit_test(test_assert_that_holds_goes_on),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
