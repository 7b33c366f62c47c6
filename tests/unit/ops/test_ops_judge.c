/* Storing and judging: the oracle's own rounding against that of harness/spec, and what counts as right. */
#include "harness/base/pcg.h"
#include "oracles/ops/judge.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const enum sf_dtype stored[] = {SF_F32, SF_BF16, SF_F16, SF_F8E4M3, SF_F8E5M2};
enum { FORMATS = sizeof stored / sizeof stored[0] };

static void test_stored_random_same_as_round(void **state) {
  (void)state;
  struct sf_pcg pcg = sf_pcg_create(3, 1);
  for (int i = 0; i < 400000; i++) {
    const uint32_t bits = (uint32_t)sf_pcg_next(&pcg);
    float x;
    memcpy(&x, &bits, sizeof x);
    if (i % 2) x = (float)(int32_t)bits * 0x1p-26f;
    for (int f = 0; f < FORMATS; f++) {
      const double got = sf_op_stored((double)x, stored[f]), want = (double)sf_round(x, stored[f]);
      if (isnan(want)) assert_true(isnan(got));
      else if (got != want || signbit(got) != signbit(want))
        fail_msg("%s of %a: %a, not %a", sf_dtype_name(stored[f]), (double)x, got, want);
    }
  }
}

static void test_element_right_only_within_interval(void **state) {
  (void)state;
  const struct sf_num one = {1, 0x1p-24};
  assert_true(sf_op_element_right(1, one, SF_F32, false));
  assert_true(sf_op_element_right(1 - 0x1p-24, one, SF_F32, false));
  assert_false(sf_op_element_right(1 + 0x1p-22, one, SF_F32, false));
  assert_false(sf_op_element_right((double)NAN, one, SF_F32, false));
  assert_false(sf_op_element_right(INFINITY, one, SF_F32, false));
  assert_false(sf_op_element_right(1 + 0x1p-7, one, SF_BF16, false)); /* the next number of bf16 */
  assert_false(sf_op_element_right(1 + 0x1p-9, (struct sf_num){1, 0x1p-8}, SF_BF16, false)); /* between two of them */
  assert_true(sf_op_element_right(INFINITY, (struct sf_num){65519.999, 1e-2}, SF_F16, false)); /* either side of where it overflows */
  assert_true(sf_op_element_right(65504, (struct sf_num){65519.999, 1e-2}, SF_F16, false));
  assert_false(sf_op_element_right(65504, sf_num(65530), SF_F16, false));
  assert_true(sf_op_element_right(448, sf_num(INFINITY), SF_F8E4M3, false));
  assert_false(sf_op_element_right(0, sf_num(NAN), SF_F32, false));
  assert_true(sf_op_element_right(5, sf_num_unknown(), SF_F32, false));
  assert_true(sf_op_element_right(-0.0, sf_num(0), SF_F32, false));
  assert_false(sf_op_element_right(-0.0, sf_num(0), SF_F32, true));
}

static void test_measure_counts_rows_and_ulps(void **state) {
  (void)state;
  const struct sf_num want[4] = {{1, 0}, {2, 0}, {3, 0}, {4, 0}};
  const double got[4] = {1, 2, 3, 4 + 0x1p-20};
  const struct sf_op_result result = {.got = got, .want = want, .rows = 2, .cols = 2, .dtype = SF_F32};
  const struct sf_op_error error = sf_op_measure(&result);
  int64_t judged = 0;
  assert_int_equal(sf_op_first_wrong(&result, &judged), 3);
  assert_int_equal(error.wrong, 1);
  assert_int_equal(error.wrong_rows, 1);
  assert_int_equal(error.row, 1);
  assert_int_equal(error.worst, 3);
  assert_true(fabs(error.ulps - 2) < 1e-9);
  assert_true(fabs(error.row_relative - 0x1p-20 / 5) < 1e-12);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_stored_random_same_as_round),
      cmocka_unit_test(test_element_right_only_within_interval),
      cmocka_unit_test(test_measure_counts_rows_and_ulps),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
