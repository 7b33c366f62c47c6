/* Adam's constants are right to fp32, whatever beta is. */
#include "harness/device/device.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

enum { COUNT = 37 };

/* From zero moments m = (1 - beta1) g and v = (1 - beta2) g^2: three roundings, none of them magnified by a beta near 1. */
static void test_adam_beta_near_one_moments_right_to_fp32(void **state) {
  (void)state;
  const double betas[] = {0.5, 0.9, 0.95, 0.99, 0.999, 0.9999}, u = ldexp(1, -24);
  struct sf_device *dev;
  assert_int_equal(sf_cpu_device_create(&dev, SF_CPU_GEMM_LOOPS), SF_OK);
  for (size_t b = 0; b < sizeof betas / sizeof *betas; b++) {
    const double rest = 1 - betas[b];
    const struct sf_adam o = {
        .lr = 1e-3f, .beta1 = betas[b], .beta2 = betas[b], .epsilon = 1e-8f, .bias1 = (float)rest, .bias2 = (float)rest, .grad_scale = 1};
    float master[COUNT], m[COUNT] = {0}, v[COUNT] = {0}, delta[COUNT], grad[COUNT];
    for (int i = 0; i < COUNT; i++) {
      master[i] = 0;
      grad[i] = (i % 2 ? 1.0f : -1.0f) * (0.3f + (float)i);
    }
    dev->ops->adam(dev, master, m, v, delta, grad, COUNT, &o);
    for (int i = 0; i < COUNT; i++) {
      const double g = (double)grad[i];
      assert_true(fabs((double)m[i] - rest * g) <= 3 * u * fabs(rest * g));
      assert_true(fabs((double)v[i] - rest * g * g) <= 4 * u * rest * g * g);
      assert_true(fabs(fabs((double)delta[i]) - 1e-3) <= 16 * u * 1e-3);
    }
  }
  sf_device_destroy(dev);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_adam_beta_near_one_moments_right_to_fp32)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
