#include "harness/base/names.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

enum { SIZE = 64 };

static void fit(char out[SIZE], const char *name) {
  memset(out, 'z', SIZE);
  sf_name_fit(out, SIZE, name, strlen(name));
}

static void test_name_fit_short_name_is_kept(void **state) {
  char out[SIZE], name[SIZE];
  (void)state;
  fit(out, "");
  assert_string_equal(out, "");
  memset(name, 'a', SIZE - 1);
  name[SIZE - 1] = '\0';
  fit(out, name);
  assert_string_equal(out, name);
}

static void test_name_fit_long_names_that_differ_at_their_end_stay_different(void **state) {
  char name[200], one[SIZE], other[SIZE];
  (void)state;
  memset(name, 'a', sizeof name);
  for (size_t length = SIZE; length < sizeof name; length++) {
    name[length] = '\0';
    fit(one, name);
    assert_int_equal(strlen(one), SIZE - 1);
    assert_int_equal(one[SIZE - 1 - SF_NAME_HASH_LENGTH], '~');
    name[length - 1] = 'b';
    fit(other, name);
    assert_string_not_equal(one, other);
    name[length - 1] = name[length] = 'a';
  }
}

static void test_name_fit_hash_is_the_same_everywhere(void **state) {
  char out[SIZE];
  (void)state;
  fit(out, "a module with a name that is longer than sixty-three bytes, by some");
  assert_string_equal(out, "a module with a name that is longer than sixty~f42077c871343e20");
}

static void test_name_fit_cuts_between_characters(void **state) {
  char name[200] = "", out[SIZE];
  (void)state;
  for (int shift = 0; shift < 4; shift++) {
    memset(name, 'a', (size_t)shift);
    name[shift] = '\0';
    while (strlen(name) < 120) strcat(name, "\xf0\x9f\x94\xa5");
    fit(out, name);
    const char *hash = strchr(out, '~');
    assert_non_null(hash);
    assert_int_equal(hash[SF_NAME_HASH_LENGTH], '\0');
    assert_int_equal((hash - out - shift) % 4, 0);
  }
}

static void path(char out[SIZE], const char *name) {
  memset(out, 'z', SIZE);
  sf_name_fit_path(out, SIZE, name, 2);
}

static void test_name_fit_path_plain_signature_has_no_hash(void **state) {
  char out[SIZE];
  (void)state;
  path(out, "crash/comm-write/mlp.linear_fc2.fwd@tp+sp");
  assert_string_equal(out, "crash-comm-write-mlp.linear_fc2.fwd@tp+sp");
}

static void test_name_fit_path_different_names_have_different_folders(void **state) {
  static const char *const names[] = {"a/b/c/d",
                                      "a/b/c-d",
                                      "a/b-c/d",
                                      "a/b/c d",
                                      "a/b/c\nd",
                                      "a/b/c\x1b"
                                      "d",
                                      "a/b/c.d",
                                      "a/b/../../c",
                                      "a/b/c\xff"
                                      "d",
                                      "a/b/c$d",
                                      "a/b/c'd"};
  char seen[sizeof names / sizeof names[0]][SIZE];
  (void)state;
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    path(seen[i], names[i]);
    assert_null(strpbrk(seen[i], "/ \n\x1b\xff$'"));
    for (size_t j = 0; j < i; j++) assert_string_not_equal(seen[i], seen[j]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_name_fit_short_name_is_kept),
      cmocka_unit_test(test_name_fit_long_names_that_differ_at_their_end_stay_different),
      cmocka_unit_test(test_name_fit_hash_is_the_same_everywhere),
      cmocka_unit_test(test_name_fit_cuts_between_characters),
      cmocka_unit_test(test_name_fit_path_plain_signature_has_no_hash),
      cmocka_unit_test(test_name_fit_path_different_names_have_different_folders),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
