/* The memory of kernels that are made for one shape of a product each. */
#include "harness/device/cpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { SIDE = 10, USES = 300 /* more than a shape has before it gets a kernel */ };

/* Bytes of code that stand in no file. */
static long code_bytes(void) {
  FILE *maps = fopen("/proc/self/maps", "r");
  char line[512], rights[8], name[256];
  long total = 0;
  assert_non_null(maps);
  while (fgets(line, sizeof line, maps)) {
    unsigned long from, to;
    const int read = sscanf(line, "%lx-%lx %7s %*s %*s %*s %255s", &from, &to, rights, name);
    if (read == 3 && strchr(rights, 'x')) total += (long)(to - from);
  }
  fclose(maps);
  return total;
}

/* m is in [first, last]; n and k have every value up to SIDE. */
static void multiply_all_shapes(struct sf_device *dev, int64_t first, int64_t last) {
  static float a[SIDE * SIDE], b[SIDE * SIDE], c[SIDE * SIDE];
  for (int64_t m = first; m <= last; m++)
    for (int64_t i = 0; i < SIDE * SIDE * USES; i++) {
      const int64_t n = i % SIDE + 1, k = i / SIDE % SIDE + 1;
      const struct sf_gemm g = {.m = m, .n = n, .k = k, .a = a, .lda = k, .b = b, .ldb = n, .c = c, .ldc = n, .alpha = 1};
      dev->ops->gemm(dev, &g, SF_F32);
    }
}

static void test_gemm_of_ever_more_shapes_makes_no_more_code(void **state) {
  (void)state;
  struct sf_device *dev;
  if (!sf_gemm_xsmm_built) skip();
  assert_int_equal(sf_cpu_device_create(&dev, SF_CPU_GEMM_XSMM), SF_OK);
  multiply_all_shapes(dev, 1, SIDE * 6 / 10);
  const long early = code_bytes();
  assert_true(early > 0);
  multiply_all_shapes(dev, SIDE * 6 / 10 + 1, SIDE);
  assert_int_equal(code_bytes(), early);
  sf_device_destroy(dev);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_gemm_of_ever_more_shapes_makes_no_more_code)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
