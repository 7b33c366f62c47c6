#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "harness/base/hash.h"
#include "harness/base/pcg.h"
#include "harness/library/library.h"
#include "harness/tensor/consistent.h"

#include <string.h>

enum { DIMS = 3, RUNS = 3, ELEMENTS_MAX = 4096 };

/* Up to three runs of each dimension of a small tensor. */
struct drawn {
  int64_t shape[DIMS], counts[DIMS], runs[DIMS * RUNS * 2];
};

static struct drawn draw_box(struct sf_pcg *pcg) {
  struct drawn drawn;
  int64_t *run = drawn.runs;
  for (int32_t d = 0; d < DIMS; d++) {
    drawn.shape[d] = 1 + (int64_t)sf_pcg_below(pcg, 7);
    drawn.counts[d] = (int64_t)sf_pcg_below(pcg, RUNS + 1);
    for (int64_t i = 0; i < drawn.counts[d]; i++, run += 2) {
      run[0] = (int64_t)sf_pcg_below(pcg, (uint64_t)drawn.shape[d] + 1);
      run[1] = (int64_t)sf_pcg_below(pcg, (uint64_t)(drawn.shape[d] - run[0]) + 1);
    }
  }
  return drawn;
}

/* Logical indices of one dimension in local order. */
static int64_t list_indices(int64_t *out, const int64_t *run, int64_t count) {
  int64_t total = 0;
  for (int64_t i = 0; i < count; i++) {
    for (int64_t k = 0; k < run[2 * i + 1]; k++) out[total++] = run[2 * i] + k;
  }
  return total;
}

static void check_box(const struct drawn *drawn, const struct sf_library_fill *fill) {
  static float got[ELEMENTS_MAX + 1];
  int64_t index[DIMS][RUNS * 8], n[DIMS], at = 0;
  const int64_t *run = drawn->runs;
  for (int32_t d = 0; d < DIMS; run += 2 * drawn->counts[d], d++) n[d] = list_indices(index[d], run, drawn->counts[d]);
  const int64_t total = n[0] * n[1] * n[2];
  got[total] = -77;
  assert_null(sf_library_fill_box(got, fill, &(struct sf_library_box){DIMS, drawn->shape, drawn->counts, drawn->runs}));
  for (int64_t i = 0; i < n[0]; i++) {
    for (int64_t j = 0; j < n[1]; j++) {
      for (int64_t k = 0; k < n[2]; k++, at++) {
        const int64_t logical = (index[0][i] * drawn->shape[1] + index[1][j]) * drawn->shape[2] + index[2][k];
        float want = 0;
        assert_null(sf_library_fill_range(&want, fill, logical, 1));
        if (memcmp(&want, &got[at], sizeof want) != 0)
          fail_msg("element %lld is %a, expected %a", (long long)logical, (double)got[at], (double)want);
      }
    }
  }
  assert_true(got[total] == -77);
}

static void test_fill_box_random_boxes_match_element_by_element(void **state) {
  (void)state;
  struct sf_pcg pcg = sf_pcg_create(11, 5);
  int32_t filled = 0;
  for (int32_t i = 0; i < 500; i++) {
    const struct drawn drawn = draw_box(&pcg);
    const struct sf_library_fill fill = {sf_library_key(i, "w", 3), i % SF_DIST_COUNT, i % 3, 0.25f, 1.0f};
    check_box(&drawn, &fill);
    filled += drawn.counts[0] && drawn.counts[1] && drawn.counts[2];
  }
  assert_true(filled > 100);
}

static void test_fill_range_equals_the_generator(void **state) {
  (void)state;
  static const enum sf_dtype formats[] = {SF_F32, SF_BF16, SF_F16, SF_F8E4M3, SF_F8E5M2};
  float got[300], want[300];
  for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
    const struct sf_library_fill fill = {sf_library_key(7, "decoder.weight", 2), SF_DIST_HEAVY, (int32_t)formats[i], 0.5f, -1.0f};
    const struct sf_fill same = {.key = sf_fill_key(7, sf_hash_string(0, "decoder.weight"), 2),
                                 .dist = SF_DIST_HEAVY,
                                 .scale = 0.5f,
                                 .offset = -1.0f,
                                 .dtype = formats[i]};
    assert_null(sf_library_fill_range(got, &fill, 1000, 300));
    sf_fill_range(want, &same, 1000, 300);
    assert_memory_equal(got, want, sizeof got);
  }
}

static void test_fill_scalar_is_one_element(void **state) {
  (void)state;
  const struct sf_library_fill fill = {5, 0, 0, 1.0f, 0.0f};
  float got[2] = {0, -77}, want = 0;
  assert_null(sf_library_fill_box(got, &fill, &(struct sf_library_box){0, NULL, NULL, NULL}));
  assert_null(sf_library_fill_range(&want, &fill, 0, 1));
  assert_memory_equal(got, &want, sizeof want);
  assert_true(got[1] == -77);
}

static void test_fill_wrong_arguments_are_told(void **state) {
  (void)state;
  const struct sf_library_fill good = {1, 0, 0, 1.0f, 0.0f};
  float out = -77;
  for (int32_t dist = -1; dist <= SF_DIST_COUNT; dist += SF_DIST_COUNT + 1) {
    const struct sf_library_fill bad = {1, dist, 0, 1.0f, 0.0f};
    assert_string_equal(sf_library_fill_range(&out, &bad, 0, 1), "there is no such distribution");
  }
  static const int32_t formats[] = {-1, SF_F64, SF_DTYPE_COUNT};
  for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
    const struct sf_library_fill bad = {1, 0, formats[i], 1.0f, 0.0f};
    assert_string_equal(sf_library_fill_range(&out, &bad, 0, 1), "there is no such format");
  }
  assert_non_null(sf_library_fill_range(&out, &good, -1, 1));
  assert_non_null(sf_library_fill_range(&out, &good, 0, -1));
  assert_non_null(sf_library_fill_range(&out, &good, INT64_MAX, 1));
  static const int64_t boxes[][5] = {{-1, 1, 0, 1, 0}, {INT64_MAX, 1, 0, 1, INT64_MAX}, {4, -1, 0, 1, 1}, {4, 1, -1, 1, 1},
                                     {4, 1, 0, -1, 1}, {4, 1, 0, 5, 1},                 {4, 1, 4, 1, 1},  {4, 1, 5, 0, 1}};
  for (size_t i = 0; i < sizeof boxes / sizeof boxes[0]; i++) {
    const int64_t shape[2] = {boxes[i][0], boxes[i][4]}, counts[2] = {boxes[i][1], 1}, runs[4] = {boxes[i][2], boxes[i][3], 0, 1};
    assert_non_null(sf_library_fill_box(&out, &good, &(struct sf_library_box){2, shape, counts, runs}));
  }
  assert_non_null(sf_library_fill_box(&out, &good, &(struct sf_library_box){9, NULL, NULL, NULL}));
  assert_non_null(sf_library_fill_box(&out, &good, &(struct sf_library_box){-1, NULL, NULL, NULL}));
  assert_true(out == -77);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_fill_box_random_boxes_match_element_by_element),
      cmocka_unit_test(test_fill_range_equals_the_generator),
      cmocka_unit_test(test_fill_scalar_is_one_element),
      cmocka_unit_test(test_fill_wrong_arguments_are_told),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
