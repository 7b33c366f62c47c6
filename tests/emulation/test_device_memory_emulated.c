/* Memory that the device gives: never more than the GPU has, though the driver would. */
#include "harness/device/device.h"

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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_create_no_memory_refused_in_one_line), cmocka_unit_test(test_alloc_beyond_what_was_free_at_first_refused),
      cmocka_unit_test(test_alloc_beyond_what_is_free_now_refused), cmocka_unit_test(test_operation_when_nothing_is_left_to_take_computes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
