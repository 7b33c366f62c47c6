#include "harness/base/float_mode.h"

#include <fenv.h>
#include <float.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static volatile float smallest = FLT_MIN, three = 3, third_of_one;

static float third(void) { return third_of_one = 1 / three; }

static void test_float_mode_rounding_is_restored_and_told(void **state) {
  static const struct {
    int mode;
    const char *text;
  } directions[] = {{FE_DOWNWARD, "rounding down"}, {FE_UPWARD, "rounding up"}, {FE_TOWARDZERO, "rounding toward zero"}};
  char text[120];
  (void)state;
  for (int i = 0; i < 3; i++) {
    const float nearest = third();
    assert_int_equal(fesetround(directions[i].mode), 0);
    const float rounded = third();
    const struct sf_float_mode was = sf_float_mode_restore();
    assert_int_equal(fegetround(), FE_TONEAREST);
    assert_true(rounded != nearest || directions[i].mode == FE_UPWARD);
    assert_true(third() == nearest);
    assert_false(sf_float_mode_is_default(was));
    sf_float_mode_text(text, sizeof text, was);
    assert_string_equal(text, directions[i].text);
    sf_float_mode_set(was);
    assert_int_equal(fegetround(), directions[i].mode);
    assert_false(sf_float_mode_is_default(sf_float_mode_restore()));
    assert_true(sf_float_mode_is_default(sf_float_mode_restore()));
  }
}

#if defined(__x86_64__)
#include <xmmintrin.h>

static void test_float_mode_flushing_is_restored_and_told(void **state) {
  char text[120];
  (void)state;
  _mm_setcsr(_mm_getcsr() | 0x8040);
  assert_true(smallest / 4 == 0);
  sf_float_mode_text(text, sizeof text, sf_float_mode_restore());
  assert_true(smallest / 4 > 0);
  assert_string_equal(text, "flush-to-zero, denormals-are-zero");
}

static void test_float_mode_traps_are_restored_and_told(void **state) {
  char text[120];
  (void)state;
  feenableexcept(FE_DIVBYZERO);
  sf_float_mode_text(text, sizeof text, sf_float_mode_restore());
  assert_int_equal(fegetexcept(), 0);
  assert_string_equal(text, "traps of exceptions");
  volatile float zero = 0;
  assert_true(1 / zero > FLT_MAX);
}

/* Flags that any inexact result sets are no mode. */
static void test_float_mode_flags_are_no_change(void **state) {
  (void)state;
  sf_float_mode_restore();
  (void)third();
  feraiseexcept(FE_ALL_EXCEPT);
  assert_true(sf_float_mode_is_default(sf_float_mode_restore()));
}
#endif

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_float_mode_rounding_is_restored_and_told),
#if defined(__x86_64__)
      cmocka_unit_test(test_float_mode_flushing_is_restored_and_told),
      cmocka_unit_test(test_float_mode_traps_are_restored_and_told),
      cmocka_unit_test(test_float_mode_flags_are_no_change),
#endif
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
