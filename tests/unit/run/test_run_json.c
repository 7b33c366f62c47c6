#include "harness/base/alloc.h"
#include "harness/base/utf8.h"
#include "harness/run/support/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>
#include <math.h>

static void clean_is(const char *text, const char *expected) {
  struct sf_text out = {0};
  sf_utf8_append(&out, text);
  assert_false(out.failed);
  assert_string_equal(out.data, expected);
  sf_text_destroy(&out);
}

#define BAD "\xef\xbf\xbd"

static void test_utf8_append_keeps_what_is_well_formed(void **state) {
  (void)state;
  clean_is(NULL, "");
  clean_is("", "");
  clean_is("tab\tline\n", "tab\tline\n");
  clean_is("\xc2\xa0 \xdf\xbf \xe0\xa0\x80 \xed\x9f\xbf \xee\x80\x80 \xf0\x90\x80\x80 \xf4\x8f\xbf\xbf",
           "\xc2\xa0 \xdf\xbf \xe0\xa0\x80 \xed\x9f\xbf \xee\x80\x80 \xf0\x90\x80\x80 \xf4\x8f\xbf\xbf");
}

static void test_utf8_append_replaces_the_rest(void **state) {
  (void)state;
  clean_is("a\x1b[31mb\x7f", "a" BAD "[31mb" BAD);
  clean_is("a\xc2\x9b[31mb\xc2\x80", "a" BAD "[31mb" BAD); /* what terminals take for an escape */
  clean_is("line\r\n", "line\n");
  clean_is("\x80", BAD);
  clean_is("\xc0\x80", BAD BAD); /* not the shortest form */
  clean_is("\xe0\x80\x80x", BAD BAD BAD "x");
  clean_is("\xed\xa0\x80", BAD BAD BAD);         /* a surrogate */
  clean_is("\xf4\x90\x80\x80", BAD BAD BAD BAD); /* beyond U+10FFFF */
  clean_is("\xef\xbf\xbe\xef\xbf\xbf", BAD BAD); /* no characters of XML */
  clean_is("cut \xe2\x82", "cut " BAD BAD);
  clean_is("\xff\xfe", BAD BAD);
}

static void line_is(json_t *value, const char *expected) {
  struct sf_text line = {0};
  assert_int_equal(sf_json_append(&line, value, JSON_COMPACT | JSON_REAL_PRECISION(12)), SF_OK);
  assert_string_equal(line.data, expected);
  json_t *back = json_loads(line.data, JSON_REJECT_DUPLICATES, NULL);
  assert_true(json_is_array(back));
  json_decref(back);
  json_decref(value);
  sf_text_destroy(&line);
}

static void test_json_real_not_finite_is_a_text(void **state) {
  (void)state;
  line_is(json_pack("[o, o, o, o, o]", sf_json_real(0.5), sf_json_real(0.1), sf_json_real(NAN), sf_json_real(INFINITY),
                    sf_json_real(-INFINITY)),
          "[0.5,0.1,\"nan\",\"inf\",\"-inf\"]");
}

static void test_json_text_is_one_line_and_utf8(void **state) {
  (void)state;
  line_is(json_pack("[o, o, o]", sf_json_text("a\"b\nc\xff"), sf_json_text(""), sf_json_text(NULL)), "[\"a\\\"b\\nc\\uFFFD\",\"\",null]");
}

static void test_json_append_no_command_of_a_ci_system(void **state) {
  (void)state;
  line_is(json_pack("[o]", sf_json_text("##[error] # ###")), "[\"\\u0023#[error] # \\u0023\\u0023#\"]");
}

static void test_json_append_no_memory_is_a_status(void **state) {
  (void)state;
  struct sf_text line = {0};
  assert_int_equal(sf_json_append(&line, NULL, JSON_COMPACT), SF_ENOMEM);
  int failures = 0;
  for (int64_t k = 1;; k++) {
    sf_alloc_fail_at(k);
    struct sf_text out = {0};
    json_t *value = json_pack("[o]", sf_json_text("value"));
    const enum sf_status status = sf_json_append(&out, value, JSON_COMPACT);
    const bool did_fail = sf_alloc_did_fail();
    sf_alloc_fail_at(0);
    json_decref(value);
    sf_text_destroy(&out);
    if (!did_fail) {
      assert_int_equal(status, SF_OK);
      break;
    }
    assert_int_equal(status, SF_ENOMEM);
    failures++;
  }
  assert_int_equal(failures, 2); /* the cleaned text, the line */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_utf8_append_keeps_what_is_well_formed), cmocka_unit_test(test_utf8_append_replaces_the_rest),
      cmocka_unit_test(test_json_real_not_finite_is_a_text),        cmocka_unit_test(test_json_text_is_one_line_and_utf8),
      cmocka_unit_test(test_json_append_no_command_of_a_ci_system), cmocka_unit_test(test_json_append_no_memory_is_a_status),
  };
  return cmocka_run_group_tests_name("run/json", tests, NULL, NULL);
}
