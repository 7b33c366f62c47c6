#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "generators/draw.h"

#include <string.h>

static void test_draw_choice_pcg_follows_the_weights(void **state) {
  (void)state;
  static const uint32_t weights[4] = {1, 0, 5, 2};
  int counts[4] = {0};
  for (uint64_t i = 0; i < 8000; i++) {
    struct sf_draw draw;
    sf_draw_from_pcg(&draw, 3, i);
    counts[sf_draw_choice(&draw, 4, weights)]++;
  }
  assert_int_equal(counts[1], 0);
  assert_in_range(counts[0], 850, 1150);
  assert_in_range(counts[2], 4800, 5200);
  assert_in_range(counts[3], 1800, 2200);
}

static void test_draw_choice_pcg_same_seed_and_index_repeat(void **state) {
  (void)state;
  enum { CHOICES = 100 };
  struct sf_draw a, b, c;
  int others = 0;
  sf_draw_from_pcg(&a, 3, 4);
  sf_draw_from_pcg(&b, 3, 4);
  sf_draw_from_pcg(&c, 3, 5);
  for (int i = 0; i < CHOICES; i++) {
    const uint64_t choice = sf_draw_choice(&a, 1000, NULL);
    assert_true(choice == sf_draw_choice(&b, 1000, NULL));
    others += choice != sf_draw_choice(&c, 1000, NULL);
  }
  assert_true(others > CHOICES / 2);
}

static void test_draw_choice_bytes_past_the_end_are_zero(void **state) {
  (void)state;
  static const unsigned char bytes[] = {7, 0x34, 0x12, 1, 2};
  struct sf_draw draw;
  sf_draw_from_bytes(&draw, bytes, sizeof bytes);
  assert_int_equal(sf_draw_choice(&draw, 5, NULL), 2);
  assert_int_equal(sf_draw_choice(&draw, 60000, NULL), 0x1234);
  assert_int_equal(sf_draw_choice(&draw, UINT64_C(1) << 63, NULL), 0x0201);
  assert_int_equal(sf_draw_choice(&draw, 5, NULL), 0);
  sf_draw_from_bytes(&draw, NULL, 0);
  assert_int_equal(sf_draw_number(&draw, 5, 5, 0), 0);
}

static void test_draw_number_zero_percent_is_kept(void **state) {
  (void)state;
  int zeros = 0;
  for (uint64_t i = 0; i < 5000; i++) {
    struct sf_draw draw;
    sf_draw_from_pcg(&draw, 1, i);
    const uint64_t value = sf_draw_number(&draw, UINT64_C(1) << 63, 1 << 20, 20);
    assert_true(value < 1 << 20);
    zeros += value == 0;
  }
  assert_in_range(zeros, 880, 1120);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_draw_choice_pcg_follows_the_weights),
      cmocka_unit_test(test_draw_choice_pcg_same_seed_and_index_repeat),
      cmocka_unit_test(test_draw_choice_bytes_past_the_end_are_zero),
      cmocka_unit_test(test_draw_number_zero_percent_is_kept),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
