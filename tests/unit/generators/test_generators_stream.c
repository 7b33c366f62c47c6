#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "generators/stream.h"

#include <string.h>

static void test_draw_choice_pcg_follows_the_weights(void **state) {
  (void)state;
  static const uint32_t weights[4] = {1, 0, 5, 2};
  int counts[4] = {0};
  for (uint64_t i = 0; i < 8000; i++) {
    struct sf_draw draw;
    sf_draw_from_pcg(&draw, 3, i);
    counts[sf_draw_choice(&draw, 0, 4, weights)]++;
  }
  assert_int_equal(counts[1], 0);
  assert_in_range(counts[0], 850, 1150);
  assert_in_range(counts[2], 4800, 5200);
  assert_in_range(counts[3], 1800, 2200);
}

static void test_draw_choice_pcg_same_seed_and_index_repeat(void **state) {
  (void)state;
  struct sf_draw a, b, c;
  sf_draw_from_pcg(&a, 3, 4);
  sf_draw_from_pcg(&b, 3, 4);
  sf_draw_from_pcg(&c, 3, 5);
  for (int i = 0; i < SF_STREAM_MAX; i++) {
    assert_true(sf_draw_choice(&a, i, 1000, NULL) == sf_draw_choice(&b, i, 1000, NULL));
    sf_draw_choice(&c, i, 1000, NULL);
  }
  assert_true(sf_stream_equal(&a.record, &b.record));
  assert_false(sf_stream_equal(&a.record, &c.record));
}

static void test_draw_choice_saved_stream_is_clamped_and_ends_in_zeros(void **state) {
  (void)state;
  const struct sf_stream saved = {.count = 3, .values = {2, 9, UINT64_MAX}};
  struct sf_draw draw;
  sf_draw_from_stream(&draw, &saved);
  assert_int_equal(sf_draw_choice(&draw, 7, 5, NULL), 2);
  assert_int_equal(sf_draw_choice(&draw, 8, 5, NULL), 4);
  assert_int_equal(sf_draw_number(&draw, 9, 100, 10, 0), 99);
  assert_int_equal(sf_draw_choice(&draw, 10, 5, NULL), 0);
  assert_int_equal(draw.record.count, 4);
  assert_int_equal(draw.record.fields[2], 9);
  assert_int_equal(draw.record.bounds[3], 5);
}

static void test_draw_choice_bytes_past_the_end_are_zero(void **state) {
  (void)state;
  static const unsigned char bytes[] = {7, 0x34, 0x12, 1, 2};
  struct sf_draw draw;
  sf_draw_from_bytes(&draw, bytes, sizeof bytes);
  assert_int_equal(sf_draw_choice(&draw, 0, 5, NULL), 2);
  assert_int_equal(sf_draw_choice(&draw, 0, 60000, NULL), 0x1234);
  assert_int_equal(sf_draw_choice(&draw, 0, UINT64_C(1) << 63, NULL), 0x0201);
  assert_int_equal(sf_draw_choice(&draw, 0, 5, NULL), 0);
}

static void test_stream_to_bytes_read_back_gives_the_same_choices(void **state) {
  (void)state;
  static const uint64_t bounds[] = {1, 2, 256, 257, 65536, 65537, UINT64_C(1) << 63};
  unsigned char bytes[SF_STREAM_BYTES_MAX];
  for (uint64_t round = 0; round < 500; round++) {
    struct sf_draw draw, again;
    sf_draw_from_pcg(&draw, 8, round);
    for (int i = 0; i < SF_STREAM_MAX; i++) sf_draw_choice(&draw, i, bounds[(round + (uint64_t)i * 5) % 7], NULL);
    const size_t byte_count = sf_stream_to_bytes(bytes, &draw.record);
    sf_draw_from_bytes(&again, bytes, byte_count);
    for (int i = 0; i < SF_STREAM_MAX; i++) sf_draw_choice(&again, i, draw.record.bounds[i], NULL);
    assert_memory_equal(&again.record, &draw.record, sizeof draw.record);
    assert_int_equal(again.byte_at, byte_count);
  }
}

static void test_draw_number_zero_percent_is_kept(void **state) {
  (void)state;
  int zeros = 0;
  for (uint64_t i = 0; i < 5000; i++) {
    struct sf_draw draw;
    sf_draw_from_pcg(&draw, 1, i);
    const uint64_t value = sf_draw_number(&draw, 0, UINT64_C(1) << 63, 1 << 20, 20);
    assert_true(value < 1 << 20);
    zeros += value == 0;
  }
  assert_in_range(zeros, 880, 1120);
}

static void test_stream_equal_ignores_trailing_zeros(void **state) {
  (void)state;
  const struct sf_stream a = {.count = 2, .values = {1, 2}}, b = {.count = 4, .values = {1, 2, 0, 0}},
                         c = {.count = 4, .values = {1, 2, 0, 1}};
  assert_true(sf_stream_equal(&a, &b));
  assert_false(sf_stream_equal(&a, &c));
  assert_false(sf_stream_equal(&c, &b));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_draw_choice_pcg_follows_the_weights),
      cmocka_unit_test(test_draw_choice_pcg_same_seed_and_index_repeat),
      cmocka_unit_test(test_draw_choice_saved_stream_is_clamped_and_ends_in_zeros),
      cmocka_unit_test(test_draw_choice_bytes_past_the_end_are_zero),
      cmocka_unit_test(test_stream_to_bytes_read_back_gives_the_same_choices),
      cmocka_unit_test(test_draw_number_zero_percent_is_kept),
      cmocka_unit_test(test_stream_equal_ignores_trailing_zeros),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
