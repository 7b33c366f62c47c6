/* Memory that the device gives: never more than the GPU has, though the driver would; small blocks stay with the host. And which memory it
 * copies. */
#include "harness/device/device.h"
#include "tests/emulation/observed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MIB = 1 << 20 };

static void set_free(int64_t size_bytes) {
  char text[32];
  snprintf(text, sizeof text, "%lld", (long long)size_bytes);
  assert_int_equal(setenv("SF_EMULATED_FREE_BYTES", text, 1), 0);
}

static struct sf_device *device_with(int64_t free_bytes) {
  struct sf_device *dev = NULL;
  set_free(free_bytes);
  assert_int_equal(sf_cuda_device_create(&dev, NULL), SF_OK);
  return dev;
}

static void *take(struct sf_device *dev, int64_t size_bytes) { return dev->memory->alloc(dev->memory->context, (size_t)size_bytes); }
static void give_back(struct sf_device *dev, void *memory) { dev->memory->release(dev->memory->context, memory); }

static void test_create_no_memory_refused_in_one_line(void **state) {
  (void)state;
  struct sf_device *dev = NULL;
  struct sf_error error = {SF_OK, ""};
  set_free(MIB / 2);
  assert_int_equal(sf_cuda_device_create(&dev, &error), SF_ENOMEM);
  assert_null(dev);
  assert_string_equal(error.text, "memory of the GPU: out of memory");
}

/* 16 MiB were free; scratch has one of the fourteen that others may have, and two for itself. */
static void test_alloc_beyond_what_was_free_at_first_refused(void **state) {
  (void)state;
  struct sf_device *dev = device_with(16 * MIB);
  set_free(1000 * MIB); /* somebody else went away since */
  void *first = take(dev, 8 * MIB);
  assert_non_null(first);
  assert_null(take(dev, 5 * MIB));
  void *second = take(dev, 4 * MIB);
  assert_non_null(second);
  give_back(dev, first);
  assert_non_null(first = take(dev, 8 * MIB));
  give_back(dev, first), give_back(dev, second);
  sf_device_destroy(dev);
}

/* A worker's share, of what a process of its own has found free. */
static void test_alloc_beyond_a_share_refused(void **state) {
  (void)state;
  size_t free_bytes = 1;
  set_free(64 * MIB);
  assert_int_equal(sf_device_probe(&free_bytes, SF_DEVICE_CUDA, sf_cpu_gemm_default(), NULL), SF_OK);
  assert_int_equal(free_bytes, 64 * MIB);
  struct sf_device *dev = device_with(64 * MIB);
  dev->memory_bytes_max = free_bytes / 4;
  void *first = take(dev, 8 * MIB);
  assert_non_null(first);
  assert_null(take(dev, 5 * MIB));
  give_back(dev, first);
  sf_device_destroy(dev);
  assert_int_equal(sf_device_probe(&free_bytes, SF_DEVICE_CPU, sf_cpu_gemm_default(), NULL), SF_OK);
  assert_int_equal(free_bytes, 0);
}

static void test_alloc_beyond_what_is_free_now_refused(void **state) {
  (void)state;
  struct sf_device *dev = device_with(64 * MIB);
  set_free(10 * MIB); /* of which scratch has one */
  assert_null(take(dev, 10 * MIB));
  assert_null(take(dev, INT64_MAX));
  void *memory = take(dev, 8 * MIB);
  assert_non_null(memory);
  give_back(dev, memory);
  sf_device_destroy(dev);
}

/* What others may have is taken, and an operation still finds its scratch. */
static void test_operation_when_nothing_is_left_to_take_computes(void **state) {
  (void)state;
  struct sf_device *dev = device_with(64 * MIB);
  int32_t blocks = 0;
  void *block[64];
  while (blocks < 64 && (block[blocks] = take(dev, MIB)) != NULL) blocks++;
  assert_true(blocks > 50 && blocks < 56);
  const int64_t count = MIB;
  float *x = sf_alloc((size_t)count * sizeof *x); /* elsewhere: its copy is scratch */
  assert_non_null(x);
  x[count - 1] = 3.0f;
  dev->ops->scale(dev, x, 2.0f, count);
  assert_true(x[count - 1] == 6.0f);
  sf_free(x);
  while (blocks > 0) give_back(dev, block[--blocks]);
  sf_device_destroy(dev);
}

static void test_alloc_small_blocks_stay_with_the_host(void **state) {
  (void)state;
  struct sf_device *dev = device_with(1000 * MIB);
  char *small = take(dev, 32 * MIB), *large = take(dev, 33 * MIB);
  assert_non_null(small);
  assert_non_null(large);
  assert_true(sf_emulated_is_kept_with_host(small));
  assert_true(sf_emulated_is_kept_with_host(small + 31 * MIB));
  assert_false(sf_emulated_is_kept_with_host(large));
  give_back(dev, small), give_back(dev, large);
  sf_device_destroy(dev);
}

static void expect_doubled(struct sf_device *dev, float *x, int64_t count) {
  x[count - 1] = 3.0f;
  dev->ops->scale(dev, x, 2.0f, count);
  assert_true(x[count - 1] == 6.0f);
}

static void test_alloc_driver_takes_no_advice_computes(void **state) {
  (void)state;
  assert_int_equal(setenv("SF_EMULATED_ADVICE", "0", 1), 0);
  struct sf_device *dev = device_with(64 * MIB);
  float *x = take(dev, MIB);
  assert_non_null(x);
  assert_false(sf_emulated_is_kept_with_host(x));
  expect_doubled(dev, x, MIB / 4);
  give_back(dev, x);
  sf_device_destroy(dev);
  assert_int_equal(unsetenv("SF_EMULATED_ADVICE"), 0);
}

/* The heap's memory is copied, unless the GPU goes by the host's page tables. */
static void test_operation_pageable_memory_copied_but_for_the_hosts_page_tables(void **state) {
  (void)state;
  static const struct { const char *reads; bool copied; } kinds[] = {{"0", true}, {"hmm", true}, {"1", false}};
  const int64_t count = 2 * MIB;
  float *x = sf_alloc((size_t)count * sizeof *x);
  assert_non_null(x);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(setenv("SF_EMULATED_READS_ALL", kinds[i].reads, 1), 0);
    struct sf_device *dev = device_with(64 * MIB);
    const size_t before = sf_emulated_given_bytes();
    expect_doubled(dev, x, count);
    assert_int_equal(sf_emulated_given_bytes() - before >= (size_t)count * sizeof *x, kinds[i].copied);
    sf_device_destroy(dev);
  }
  assert_int_equal(unsetenv("SF_EMULATED_READS_ALL"), 0);
  sf_free(x);
}

/* Copies of a large product's operands lie in the GPU's own memory, or in scratch where it has none left. */
static void test_gemm_large_without_memory_of_the_gpus_own_computes(void **state) {
  (void)state;
  enum { SIZE = 130 };
  assert_int_equal(setenv("SF_EMULATED_OWN_MEMORY", "0", 1), 0);
  struct sf_device *dev = device_with(64 * MIB);
  float *x = take(dev, 2 * SIZE * SIZE * (int64_t)sizeof *x);
  assert_non_null(x);
  for (int i = 0; i < SIZE * SIZE; i++) x[i] = (float)(i / SIZE + 1); /* row i holds i + 1 */
  const struct sf_gemm g = {.trans_b = true,
                            .m = SIZE,
                            .n = SIZE,
                            .k = SIZE,
                            .a = x,
                            .lda = SIZE,
                            .b = x,
                            .ldb = SIZE,
                            .c = x + SIZE * SIZE,
                            .ldc = SIZE,
                            .alpha = 1};
  dev->ops->gemm(dev, &g, SF_F32);
  for (int i = 0; i < SIZE * SIZE; i++) assert_true(g.c[i] == (float)(SIZE * (i / SIZE + 1) * (i % SIZE + 1)));
  give_back(dev, x);
  sf_device_destroy(dev);
  assert_int_equal(unsetenv("SF_EMULATED_OWN_MEMORY"), 0);
}

static void test_create_memory_closed_while_kernels_run_refused(void **state) {
  (void)state;
  struct sf_device *dev = NULL;
  struct sf_error error = {SF_OK, ""};
  set_free(64 * MIB);
  assert_int_equal(setenv("SF_EMULATED_CONCURRENT", "0", 1), 0);
  assert_int_equal(sf_cuda_device_create(&dev, &error), SF_ENODEVICE);
  assert_int_equal(unsetenv("SF_EMULATED_CONCURRENT"), 0);
  assert_null(dev);
  assert_non_null(strstr(error.text, "concurrentManagedAccess"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_create_no_memory_refused_in_one_line),
                                     cmocka_unit_test(test_alloc_beyond_what_was_free_at_first_refused),
                                     cmocka_unit_test(test_alloc_beyond_a_share_refused),
                                     cmocka_unit_test(test_alloc_beyond_what_is_free_now_refused),
                                     cmocka_unit_test(test_operation_when_nothing_is_left_to_take_computes),
                                     cmocka_unit_test(test_alloc_small_blocks_stay_with_the_host),
                                     cmocka_unit_test(test_alloc_driver_takes_no_advice_computes),
                                     cmocka_unit_test(test_operation_pageable_memory_copied_but_for_the_hosts_page_tables),
                                     cmocka_unit_test(test_gemm_large_without_memory_of_the_gpus_own_computes),
                                     cmocka_unit_test(test_create_memory_closed_while_kernels_run_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
