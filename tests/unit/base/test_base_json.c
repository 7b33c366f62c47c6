#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "harness/base/alloc.h"
#include "harness/base/json.h"

#include <string.h>

static const char text[] = "{\"ranks\": 4, \"names\": [\"a\", \"a name that is longer than the others\"], \"number\": 12345678901234567}";

static enum sf_status read_text(json_t **out, const char *from, json_error_t *where) {
  return sf_json_read(out, from, strlen(from), JSON_REJECT_DUPLICATES, where);
}

/* Whichever allocation fails, the text is not blamed, and no part of it is taken for the whole. */
static void test_json_read_without_memory_says_so(void **state) {
  (void)state;
  json_t *whole = NULL, *root = NULL;
  json_error_t where;
  assert_int_equal(read_text(&whole, text, &where), SF_OK);
  int64_t failures = 0;
  for (int64_t countdown = 1;; countdown++) {
    sf_alloc_fail_at(countdown);
    const enum sf_status status = read_text(&root, text, &where);
    const bool failed = sf_alloc_did_fail();
    sf_alloc_fail_at(0);
    if (!failed) {
      assert_int_equal(status, SF_OK);
      assert_true(json_equal(root, whole));
      json_decref(root);
      break;
    }
    assert_int_equal(status, SF_ENOMEM);
    assert_null(root);
    failures++;
  }
  assert_true(failures > 10);
  json_decref(whole);
}

/* Memory that lacks once changes nothing. */
static void test_json_of_tries_again(void **state) {
  (void)state;
  json_t *whole = sf_json_of(text);
  assert_non_null(whole);
  int64_t failures = 0;
  for (bool failed = true; failed; failures += failed) {
    sf_alloc_fail_at(failures + 1);
    json_t *again = sf_json_of(text);
    failed = sf_alloc_did_fail();
    sf_alloc_fail_at(0);
    assert_true(json_equal(again, whole));
    json_decref(again);
  }
  assert_true(failures > 10);
  json_decref(whole);
  assert_null(sf_json_of("{\"ranks\": "));
}

/* A text is whole or none. */
static void test_json_dump_without_memory_is_none(void **state) {
  (void)state;
  json_t *value = NULL;
  json_error_t where;
  assert_int_equal(read_text(&value, text, &where), SF_OK);
  char *whole = sf_json_dump(value, JSON_COMPACT);
  assert_non_null(whole);
  int64_t failures = 0;
  for (bool failed = true; failed; failures += failed) {
    sf_alloc_fail_at(failures + 1);
    char *made = sf_json_dump(value, JSON_COMPACT);
    failed = sf_alloc_did_fail();
    sf_alloc_fail_at(0);
    if (failed)
      assert_null(made);
    else
      assert_string_equal(made, whole);
    sf_free(made);
  }
  assert_true(failures > 2);
  sf_free(whole);
  json_decref(value);
}

static void test_json_read_other_text_says_where(void **state) {
  (void)state;
  json_t *root = NULL;
  json_error_t where;
  assert_int_equal(read_text(&root, "{\"a\": 1,\n \"a\": 2}", &where), SF_EINPUT);
  assert_null(root);
  assert_int_equal(where.line, 2);
  assert_non_null(strstr(where.text, "duplicate"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_json_read_without_memory_says_so),
      cmocka_unit_test(test_json_of_tries_again),
      cmocka_unit_test(test_json_dump_without_memory_is_none),
      cmocka_unit_test(test_json_read_other_text_says_where),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
