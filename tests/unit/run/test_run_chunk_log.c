#include "tests/unit/run/run_fixture.h"

#include "harness/run/trial/chunk_log.h"

#include <signal.h>
#include <sys/wait.h>

/* Chunk i: rank i, i + 1 rows of 3 columns, values 100 i + place. */
static void add_chunk(struct sf_chunk_log *log, int32_t i) {
  float data[64];
  const struct sf_shape shape = {i + 1, 3};
  const struct sf_shard_map map = sf_shard_map_whole(shape);
  const struct sf_trace_id id = {.step = 1, .microbatch = (uint16_t)i, .kind = SF_KIND_ACT, .subject = 2};
  for (int32_t at = 0; at < 3 * (i + 1); at++) data[at] = (float)(100 * i + at);
  sf_chunk_log_add(log, i, id, &map, data, shape.rows, shape.cols);
}

static void check_chunk(void *ctx, int32_t rank, struct sf_trace_id id, const struct sf_shard_map *map, const float *data, int64_t rows,
                        int64_t cols) {
  int32_t *next = ctx;
  assert_int_equal(rank, *next);
  assert_int_equal(id.microbatch, *next);
  assert_int_equal(rows, *next + 1);
  assert_int_equal(cols, 3);
  assert_int_equal(sf_dim_map_length(&map->rows), rows);
  for (int32_t at = 0; at < rows * cols; at++) assert_true(data[at] == (float)(100 * *next + at));
  ++*next;
}

static void count_chunk(void *ctx, int32_t rank, struct sf_trace_id id, const struct sf_shard_map *map, const float *data, int64_t rows,
                        int64_t cols) {
  int32_t *count = ctx;
  (void)rank, (void)id, (void)map, (void)data, (void)rows, (void)cols;
  ++*count;
}

static void test_chunk_log_visit_gives_back_what_was_added(void **state) {
  (void)state;
  struct sf_chunk_log log = {0};
  int32_t seen = 0;
  assert_true(sf_chunk_log_visit(log.data, log.size_bytes, check_chunk, &seen));
  for (int32_t i = 0; i < 20; i++) add_chunk(&log, i);
  assert_true(sf_chunk_log_visit(log.data, log.size_bytes, check_chunk, &seen));
  assert_int_equal(seen, 20);
  sf_chunk_log_destroy(&log);
  assert_null(log.data);
}

static void test_chunk_log_visit_cut_bytes_are_refused(void **state) {
  (void)state;
  struct sf_chunk_log log = {0};
  for (int32_t i = 0; i < 3; i++) add_chunk(&log, i);
  int32_t whole = 0;
  for (size_t size = 0; size < log.size_bytes; size++) {
    unsigned char *cut = test_malloc(size ? size : 1); /* of just that size, so that reading on is seen */
    int32_t seen = 0;
    memcpy(cut, log.data, size);
    whole += sf_chunk_log_visit(cut, size, count_chunk, &seen);
    assert_true(seen <= 2);
    test_free(cut);
  }
  assert_int_equal(whole, 3); /* cut between chunks: none, one, two of them */
  sf_chunk_log_destroy(&log);
}

static void test_chunk_log_visit_impossible_sizes_are_refused(void **state) {
  (void)state;
  static const int64_t wrong[][2] = {{-1, 3}, {1, -3}, {INT64_MAX, 3}, {INT64_MAX, INT64_MAX}, {INT64_C(1) << 62, 4}, {5, 3}};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    struct sf_chunk_log log = {0};
    int32_t seen = 0;
    add_chunk(&log, 0);
    memcpy(log.data, wrong[i], sizeof wrong[i]); /* a header begins with rows and columns */
    assert_false(sf_chunk_log_visit(log.data, log.size_bytes, count_chunk, &seen));
    assert_int_equal(seen, 0);
    sf_chunk_log_destroy(&log);
  }
}

static void test_chunk_log_add_without_memory_is_remembered(void **state) {
  (void)state;
  for (int32_t k = 1; k <= 2; k++) {
    struct sf_chunk_log log = {0};
    int32_t seen = 0;
    sf_alloc_fail_at(k);
    for (int32_t i = 0; i < 20; i++) add_chunk(&log, i);
    assert_true(sf_alloc_did_fail());
    sf_alloc_fail_at(0);
    assert_true(log.failed);
    assert_true(sf_chunk_log_visit(log.data, log.size_bytes, check_chunk, &seen));
    assert_true(seen < 20);
    sf_chunk_log_destroy(&log);
  }
}

/* A child adds chunks and dies at once. */
static void child_adds(struct sf_chunk_log *log, int32_t count) {
  fflush(NULL);
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    for (int32_t i = 0; i < count; i++) add_chunk(log, i);
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFSIGNALED(status));
}

static void test_chunk_log_refresh_sees_what_a_dead_process_added(void **state) {
  (void)state;
  struct sf_chunk_log log;
  int32_t seen = 0;
  assert_int_equal(sf_chunk_log_create_shared(&log), SF_OK);
  assert_int_equal(sf_chunk_log_refresh(&log), SF_OK);
  assert_int_equal(log.size_bytes, 0);
  child_adds(&log, 20);
  assert_int_equal(sf_chunk_log_refresh(&log), SF_OK);
  assert_true(sf_chunk_log_visit(log.data, log.size_bytes, check_chunk, &seen));
  assert_int_equal(seen, 20);
  assert_int_equal(sf_chunk_log_refresh(&log), SF_OK);
  sf_chunk_log_destroy(&log);
}

static void test_chunk_log_refresh_tells_of_a_log_that_is_not_complete(void **state) {
  (void)state;
  struct sf_chunk_log log;
  assert_int_equal(sf_chunk_log_create_shared(&log), SF_OK);
  child_adds(&log, 2);
  log.shared->failed = true;
  assert_int_equal(sf_chunk_log_refresh(&log), SF_ENOMEM);
  sf_chunk_log_destroy(&log);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_chunk_log_visit_gives_back_what_was_added),
      cmocka_unit_test(test_chunk_log_visit_cut_bytes_are_refused),
      cmocka_unit_test(test_chunk_log_visit_impossible_sizes_are_refused),
      cmocka_unit_test(test_chunk_log_add_without_memory_is_remembered),
      cmocka_unit_test(test_chunk_log_refresh_sees_what_a_dead_process_added),
      cmocka_unit_test(test_chunk_log_refresh_tells_of_a_log_that_is_not_complete),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
