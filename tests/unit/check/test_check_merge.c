#include "tests/unit/check/trace_fixture.h"

#include "harness/check/kernel.h"
#include "harness/check/merge.h"

#include <math.h>

#define NAME "s0/mb0/fwd/act/m/0"

/* Merges the only tensor of a trace, in blocks of `step` elements, as doubles. */
static struct sf_merge_report merge(double *out, const char *dir, int64_t step) {
  struct sf_trace_set set = set_open(dir, "t");
  struct sf_merger *merger = NULL;
  struct sf_error error = {SF_OK, ""};
  assert_int_equal(set.count, 1);
  assert_int_equal(sf_merger_create(&merger), SF_OK);
  assert_int_equal(sf_merger_begin(merger, &set, &set.tensors[0], NULL), SF_OK);
  for (int64_t at = 0; at < set.tensors[0].count; at += step) {
    const void *data;
    const int64_t end = at + step < set.tensors[0].count ? at + step : set.tensors[0].count;
    if (sf_merger_block(merger, &data, at, end, &error) != SF_OK) fail_msg("%s", error.text);
    sf_widen(out + at, data, end - at, sf_merger_dtype(merger));
  }
  const struct sf_merge_report report = sf_merger_report(merger);
  sf_merger_destroy(merger);
  sf_trace_set_close(&set);
  return report;
}

static void assert_counts_up(const double *values, int64_t count) {
  for (int64_t i = 0; i < count; i++) assert_true(values[i] == (double)i);
}

/* A rank's part whose values are their own logical indices: rows and columns of a matrix 4 x 6. */
static void test_merge_columns_of_two_ranks_in_blocks_of_any_size(void **state) {
  float left[12], right[12];
  double out[24];
  for (int r = 0; r < 4; r++)
    for (int c = 0; c < 3; c++) left[3 * r + c] = (float)(6 * r + c), right[3 * r + c] = (float)(6 * r + 3 + c);
  const struct part parts[2] = {{NAME, SF_F32, 2, {4, 3}, left, "{\"shape\": [4, 6], \"index\": [[[0, 4]], [[0, 3]]]}"},
                                {NAME, SF_F32, 2, {4, 3}, right, "{\"shape\": [4, 6], \"index\": [[[0, 4]], [[3, 3]]]}"}};
  for (int rank = 0; rank < 2; rank++) rank_write(*state, "t", rank, 2, "e2e", &parts[rank], 1);
  for (int64_t step = 1; step <= 24; step++) {
    const struct sf_merge_report report = merge(out, *state, step);
    assert_counts_up(out, 24);
    assert_int_equal(report.gap_count + report.conflict_count, 0);
  }
}

/* Zig-zag pieces of the middle one of three dimensions, 2 x 8 x 3; rank 1 has its two runs in reverse. */
static void test_merge_zigzag_runs_of_the_middle_dimension(void **state) {
  static const int64_t own[2][4] = {{0, 1, 6, 7}, {4, 5, 2, 3}};
  float values[2][24];
  double out[48];
  for (int rank = 0; rank < 2; rank++)
    for (int i = 0; i < 24; i++) values[rank][i] = (float)(i / 12 * 24 + own[rank][i / 3 % 4] * 3 + i % 3);
  const struct part parts[2] = {
      {NAME, SF_F32, 3, {2, 4, 3}, values[0], "{\"shape\": [2, 8, 3], \"index\": [[[0, 2]], [[0, 2], [6, 2]], [[0, 3]]]}"},
      {NAME, SF_F32, 3, {2, 4, 3}, values[1], "{\"shape\": [2, 8, 3], \"index\": [[[0, 2]], [[4, 2], [2, 2]], [[0, 3]]]}"}};
  for (int rank = 0; rank < 2; rank++) rank_write(*state, "t", rank, 2, "e2e", &parts[rank], 1);
  for (int64_t step = 1; step <= 48; step += 5) {
    merge(out, *state, step);
    assert_counts_up(out, 48);
  }
}

static void test_merge_flat_ranges_of_a_box(void **state) {
  /* The box is columns 1..2 of 3 x 4, and column 0 and 3 are rank 2's. In row-major order of the box: elements 1 2, 5 6, 9 10. */
  const float first[2] = {1, 2}, rest[4] = {5, 6, 9, 10}, others[6] = {0, 3, 4, 7, 8, 11};
  const struct part parts[3] = {{NAME, SF_F32, 1, {2}, first, "{\"shape\": [3, 4], \"index\": [[[0, 3]], [[1, 2]]], \"flat\": [0, 2]}"},
                                {NAME, SF_F32, 1, {4}, rest, "{\"shape\": [3, 4], \"index\": [[[0, 3]], [[1, 2]]], \"flat\": [2, 4]}"},
                                {NAME, SF_F32, 2, {3, 2}, others, "{\"shape\": [3, 4], \"index\": [[[0, 3]], [[0, 1], [3, 1]]]}"}};
  double out[12];
  for (int rank = 0; rank < 3; rank++) rank_write(*state, "t", rank, 3, "e2e", &parts[rank], 1);
  for (int64_t step = 1; step <= 12; step++) {
    assert_int_equal(merge(out, *state, step).gap_count, 0);
    assert_counts_up(out, 12);
  }
}

/* Two sums of two summands each, which are replicas; column 2 is no summand. */
static void test_merge_sums_are_added_and_compared_as_replicas(void **state) {
  const float values[4][3] = {{1, 10, 5}, {2, 20, 5}, {1, 10, 5}, {2, 21, 5}};
  static const char *const maps[4] = {
      "{\"index\": [[[0, 2, 1], [2, 1]]], \"shape\": [3]}", "{\"index\": [[[0, 2, 1], [2, 1]]], \"shape\": [3]}",
      "{\"index\": [[[0, 2, 7], [2, 1]]], \"shape\": [3]}", "{\"index\": [[[0, 2, 7], [2, 1]]], \"shape\": [3]}"};
  double out[3];
  for (int rank = 0; rank < 4; rank++) {
    const struct part part = {NAME, SF_F32, 1, {3}, values[rank], maps[rank]};
    rank_write(*state, "t", rank, 4, "e2e", &part, 1);
  }
  const struct sf_merge_report report = merge(out, *state, 3);
  assert_true(out[0] == 3 && out[1] == 30 && out[2] == 5);
  assert_int_equal(report.conflict_count, 1);
  assert_int_equal(report.conflict_first, 1);
  assert_int_equal(report.conflict_holder, 0);
  assert_int_equal(report.conflict_rank, 2);
  assert_true(report.replica_squares == 1);
}

static void test_merge_the_larger_sum_of_two_dimensions_counts(void **state) {
  /* Rows are summands of sum 1, column 1 of sum 2 beside: the ranks agree in column 0 and are replicas in column 1. */
  const float a[2] = {1, 4}, b[2] = {2, 4};
  const struct part parts[2] = {{NAME, SF_F32, 2, {1, 2}, a, "{\"shape\": [1, 2], \"index\": [[[0, 1, 1]], [[0, 1], [1, 1, 2]]]}"},
                                {NAME, SF_F32, 2, {1, 2}, b, "{\"shape\": [1, 2], \"index\": [[[0, 1, 1]], [[0, 1], [1, 1, 3]]]}"}};
  double out[2];
  for (int rank = 0; rank < 2; rank++) rank_write(*state, "t", rank, 2, "e2e", &parts[rank], 1);
  assert_int_equal(merge(out, *state, 2).conflict_count, 0);
  assert_true(out[0] == 3 && out[1] == 4);
}

static void test_merge_replicas_that_differ_name_rank_and_holder(void **state) {
  const float a[4] = {0, 1, 2, 3}, b[3] = {1, 2.5f, 4};
  const struct part parts[3] = {{NAME, SF_F32, 1, {4}, a, "{\"shape\": [4]}"},
                                {NAME, SF_F32, 1, {4}, a, "{\"shape\": [4]}"},
                                {NAME, SF_F32, 1, {3}, b, "{\"shape\": [4], \"index\": [[[1, 3]]]}"}};
  double out[4];
  for (int rank = 0; rank < 3; rank++) rank_write(*state, "t", rank, 3, "e2e", &parts[rank], 1);
  const struct sf_merge_report report = merge(out, *state, 4);
  assert_counts_up(out, 4);
  assert_int_equal(report.conflict_count, 2);
  assert_int_equal(report.conflict_first, 2);
  assert_int_equal(report.conflict_rank, 2);
  assert_int_equal(report.conflict_holder, 0);
  assert_true(report.replica_squares == 1.25);
}

static void test_merge_nans_of_replicas_do_not_differ(void **state) {
  const float a[2] = {NAN, 1}, b[2] = {-NAN, 1};
  const struct part parts[2] = {{NAME, SF_F32, 1, {2}, a, "{\"shape\": [2]}"}, {NAME, SF_F32, 1, {2}, b, "{\"shape\": [2]}"}};
  double out[2];
  for (int rank = 0; rank < 2; rank++) rank_write(*state, "t", rank, 2, "e2e", &parts[rank], 1);
  const struct sf_merge_report report = merge(out, *state, 2);
  assert_int_equal(report.conflict_count, 0);
  assert_true(report.replica_squares == 0);
}

static void test_merge_missing_elements_are_counted_and_zero(void **state) {
  const float a[2] = {1, 1};
  const struct part part = {NAME, SF_F32, 1, {2}, a, "{\"shape\": [70], \"index\": [[[0, 1], [69, 1]]]}"};
  double out[70];
  rank_write(*state, "t", 0, 1, "e2e", &part, 1);
  for (int64_t step = 7; step <= 70; step += 21) {
    const struct sf_merge_report report = merge(out, *state, step);
    assert_int_equal(report.gap_count, 68);
    assert_int_equal(report.gap_first, 1);
    assert_true(out[0] == 1 && out[1] == 0 && out[68] == 0 && out[69] == 1);
  }
}

static void test_merge_types_of_ranks_may_differ(void **state) {
  const float a[2] = {0, 1}, b[2] = {2, 3};
  const struct part parts[2] = {{NAME, SF_BF16, 1, {2}, a, "{\"shape\": [4], \"index\": [[[0, 2]]]}"},
                                {NAME, SF_F8E5M2, 1, {2}, b, "{\"shape\": [4], \"index\": [[[2, 2]]]}"}};
  double out[4];
  for (int rank = 0; rank < 2; rank++) rank_write(*state, "t", rank, 2, "e2e", &parts[rank], 1);
  merge(out, *state, 4);
  assert_counts_up(out, 4);
}

static void test_merge_file_that_became_shorter_is_told(void **state) {
  char path[300];
  const float a[4] = {0, 1, 2, 3};
  const struct part part = {NAME, SF_F32, 1, {4}, a, NULL};
  const void *data;
  struct sf_merger *merger = NULL;
  struct sf_error error = {SF_OK, ""};
  rank_write(*state, "t", 0, 1, "e2e", &part, 1);
  struct sf_trace_set set = set_open(*state, "t");
  snprintf(path, sizeof path, "%s/t/rank-00000.safetensors", (char *)*state);
  assert_int_equal(truncate(path, set.tensors[0].pieces->entry->offset + 8), 0);
  assert_int_equal(sf_merger_create(&merger), SF_OK);
  assert_int_equal(sf_merger_begin(merger, &set, &set.tensors[0], NULL), SF_OK);
  assert_int_equal(sf_merger_block(merger, &data, 0, 4, &error), SF_EINPUT);
  assert_non_null(strstr(error.text, "shorter"));
  sf_merger_destroy(merger);
  sf_trace_set_close(&set);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FOLDER_TEST(test_merge_columns_of_two_ranks_in_blocks_of_any_size),
      FOLDER_TEST(test_merge_zigzag_runs_of_the_middle_dimension),
      FOLDER_TEST(test_merge_flat_ranges_of_a_box),
      FOLDER_TEST(test_merge_sums_are_added_and_compared_as_replicas),
      FOLDER_TEST(test_merge_the_larger_sum_of_two_dimensions_counts),
      FOLDER_TEST(test_merge_replicas_that_differ_name_rank_and_holder),
      FOLDER_TEST(test_merge_nans_of_replicas_do_not_differ),
      FOLDER_TEST(test_merge_missing_elements_are_counted_and_zero),
      FOLDER_TEST(test_merge_types_of_ranks_may_differ),
      FOLDER_TEST(test_merge_file_that_became_shorter_is_told),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
