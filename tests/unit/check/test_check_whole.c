/* The logical tensors of a trace of many ranks, as the trace of one rank. */
#include "harness/check/whole.h"
#include "tests/unit/check/trace_fixture.h"

#define CUT "s0/mb0/fwd/act/a/0"
#define SUMMED "s0/mb0/bwd/act_grad/a/0"
#define HOLED "s0/mb0/fwd/act/b/0"
#define AGAIN "s0/mb0/recompute/act/a/0"
#define LONG "s0/mb0/step/main_grad/w/0"
enum { LONG_ROWS = 3, LONG_COLS = 40000 }; /* a row is longer than a block */

static struct sf_trace_set whole_of(const char *dir, struct sf_error *error) {
  char path[400];
  struct sf_trace_set set = set_open(dir, "t");
  snprintf(path, sizeof path, "%s/whole", dir);
  assert_int_equal(mkdir(path, 0777), 0);
  if (sf_whole_write(path, &set, error) != SF_OK) fail_msg("%s", error->text);
  sf_trace_set_close(&set);
  return set_open(dir, "whole");
}

static void assert_values(const struct sf_trace_set *whole, const char *name, enum sf_dtype dtype, const void *values) {
  const struct sf_trace_tensor *tensor = sf_trace_set_find(whole, name);
  if (tensor == NULL) fail_msg("%s is not there", name);
  const size_t size_bytes = (size_t)tensor->count * sf_dtype_wire_bytes(dtype);
  unsigned char *loaded = malloc(size_bytes);
  assert_int_equal(tensor->dtype, dtype);
  assert_int_equal(tensor->pieces->count, tensor->count);
  assert_int_equal(sf_st_load(loaded, &whole->files[0], tensor->pieces->entry, 0, tensor->count, NULL), SF_OK);
  assert_memory_equal(loaded, values, size_bytes);
  free(loaded);
}

static void test_whole_write_of_two_ranks_merges_what_is_complete(void **state) {
  static float rows[2][6], summand[2][3], longs[LONG_ROWS * LONG_COLS];
  float all[12];
  double sums[3];
  struct sf_error error = {SF_OK, ""};
  for (int i = 0; i < 12; i++) all[i] = rows[i / 6][i % 6] = (float)i + 0.1f;
  for (int i = 0; i < 3; i++) {
    for (int rank = 0; rank < 2; rank++) summand[rank][i] = (float)(i + 1) * (rank == 0 ? 1 : 0x1p-30f);
    sums[i] = (double)summand[0][i] + (double)summand[1][i];
  }
  for (int i = 0; i < LONG_ROWS * LONG_COLS; i++) longs[i] = (float)i;
  for (int rank = 0; rank < 2; rank++) {
    const char *const map =
        rank == 0 ? "{\"shape\": [4, 3], \"index\": [[[0, 2]], [[0, 3]]]}" : "{\"shape\": [4, 3], \"index\": [[[2, 2]], [[0, 3]]]}";
    const struct part parts[] = {{CUT, SF_F32, 2, {2, 3}, rows[rank], map},
                                 {SUMMED, SF_F32, 1, {3}, summand[rank], "{\"index\": [[[0, 3, 7]]]}"},
                                 {AGAIN, SF_F32, 2, {2, 3}, rows[rank], map},
                                 {LONG, SF_F32, 2, {LONG_ROWS, LONG_COLS}, longs, NULL},
                                 {HOLED, SF_F32, 2, {2, 3}, rows[0], "{\"shape\": [4, 3], \"index\": [[[0, 2]], [[0, 3]]]}"}};
    rank_write(*state, "t", rank, 2, "e2e", parts, 5);
  }
  struct sf_trace_set whole = whole_of(*state, &error);
  assert_int_equal(whole.ranks, 1);
  assert_int_equal(whole.count, 3); /* without what is recomputed, and what no rank has all of */
  assert_values(&whole, CUT, SF_F32, all);
  assert_values(&whole, SUMMED, SF_F64, sums);
  assert_values(&whole, LONG, SF_F32, longs);
  sf_trace_set_close(&whole);
}

static void test_whole_write_of_shapes_that_differ_leaves_the_tensor_out(void **state) {
  const float values[6] = {1, 2, 3, 4, 5, 6};
  struct sf_error error = {SF_OK, ""};
  for (int rank = 0; rank < 2; rank++) {
    const struct part parts[] = {{CUT, SF_F32, 2, {rank == 0 ? 2 : 3, rank == 0 ? 3 : 2}, values, NULL},
                                 {HOLED, SF_F32, 1, {6}, values, NULL}};
    rank_write(*state, "t", rank, 2, "e2e", parts, 2);
  }
  struct sf_trace_set whole = whole_of(*state, &error);
  assert_int_equal(whole.count, 1);
  assert_values(&whole, HOLED, SF_F32, values);
  sf_trace_set_close(&whole);
}

static void test_whole_write_into_no_folder_is_an_error(void **state) {
  const float values[2] = {1, 2};
  const struct part part = {CUT, SF_F32, 1, {2}, values, NULL};
  char path[400];
  struct sf_error error = {SF_OK, ""};
  rank_write(*state, "t", 0, 1, "e2e", &part, 1);
  struct sf_trace_set set = set_open(*state, "t");
  snprintf(path, sizeof path, "%s/nowhere", (char *)*state);
  assert_int_not_equal(sf_whole_write(path, &set, &error), SF_OK);
  assert_non_null(strstr(error.text, "nowhere"));
  sf_trace_set_close(&set);
}

static void test_whole_write_any_failing_allocation_gives_no_memory(void **state) {
  const float values[2] = {1, 2};
  char path[400];
  for (int rank = 0; rank < 2; rank++) {
    const struct part part = {
        CUT, SF_F32, 1, {2}, values, rank == 0 ? "{\"shape\": [4], \"index\": [[[0, 2]]]}" : "{\"shape\": [4], \"index\": [[[2, 2]]]}"};
    rank_write(*state, "t", rank, 2, "e2e", &part, 1);
  }
  struct sf_trace_set set = set_open(*state, "t");
  snprintf(path, sizeof path, "%s/whole", (char *)*state);
  assert_int_equal(mkdir(path, 0777), 0);
  for (int64_t k = 1;; k++) {
    sf_alloc_fail_at(k);
    const enum sf_status status = sf_whole_write(path, &set, NULL);
    const bool failed = sf_alloc_did_fail();
    sf_alloc_fail_at(0);
    assert_int_equal(status, failed ? SF_ENOMEM : SF_OK);
    if (failed) continue;
    assert_true(k > 10);
    break;
  }
  sf_trace_set_close(&set);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FOLDER_TEST(test_whole_write_of_two_ranks_merges_what_is_complete),
      FOLDER_TEST(test_whole_write_of_shapes_that_differ_leaves_the_tensor_out),
      FOLDER_TEST(test_whole_write_into_no_folder_is_an_error),
      FOLDER_TEST(test_whole_write_any_failing_allocation_gives_no_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
