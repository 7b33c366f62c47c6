#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "harness/base/pcg.h"
#include "harness/base/reals.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void test_shorten_numbers_alone_and_no_string(void **state) {
  (void)state;
  static const char *const rows[][2] = {
      {"0.10000000000000001", "0.1"},
      {"{\"a\":0.10000000000000001,\"b\":[1.0,-0.29999999999999999,2.5]}", "{\"a\":0.1,\"b\":[1.0,-0.3,2.5]}"},
      {"0.30000000000000004", "0.30000000000000004"},
      {"[1e+100,1.0000000000000001e-05,true,false,null,12345678901234567]", "[1e+100,1e-05,true,false,null,12345678901234567]"},
      {"\"0.10000000000000001 \\\" 0.10000000000000001\"", "\"0.10000000000000001 \\\" 0.10000000000000001\""},
      {"{\"0.10000000000000001\": \"e\"}", "{\"0.10000000000000001\": \"e\"}"},
      {"\"open", "\"open"},
      {"", ""}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    char text[200];
    strcpy(text, rows[i][0]);
    sf_reals_shorten(text);
    assert_string_equal(text, rows[i][1]);
  }
}

static void test_shorten_every_number_reads_back_the_same(void **state) {
  (void)state;
  struct sf_pcg pcg = sf_pcg_create(1, 1);
  for (int i = 0; i < 20000; i++) {
    const double value = ((double)sf_pcg_below(&pcg, UINT64_C(4000000000)) - 2e9) / (i % 2 ? 1e3 : 3e7);
    char text[64];
    snprintf(text, sizeof text, "%.17g", value);
    if (!strpbrk(text, ".e")) continue;
    const size_t length = strlen(text);
    sf_reals_shorten(text);
    assert_true(strtod(text, NULL) == value);
    assert_true(strlen(text) <= length);
    if (i % 2) assert_true(strlen(text) <= 13); /* ten digits, sign, point and a zero before it */
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_shorten_numbers_alone_and_no_string),
      cmocka_unit_test(test_shorten_every_number_reads_back_the_same),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
