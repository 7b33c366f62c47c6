/* Numbers with error bounds, against fp32 arithmetic itself. */
#include "harness/base/pcg.h"
#include "oracles/ops/num.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* Any bits: NaN, infinities and subnormal numbers among them; half of them of ordinary size. */
static float any_float(struct sf_pcg *pcg) {
  const uint32_t bits = (uint32_t)sf_pcg_next(pcg);
  float x;
  memcpy(&x, &bits, sizeof x);
  return sf_pcg_below(pcg, 2) ? x : (float)(int32_t)bits * 0x1p-28f;
}

static void expect(struct sf_num want, float got) {
  if (want.e > 0 && isinf(want.e)) return;
  if (isnan(want.v)) {
    assert_true(isnan(got));
    return;
  }
  const double low = (double)(float)(want.v - want.e), high = (double)(float)(want.v + want.e);
  if (!((double)got >= low && (double)got <= high)) fail_msg("got %a, want %a within %a", (double)got, want.v, want.e);
}

static void test_num_random_chains_hold_fp32(void **state) {
  (void)state;
  struct sf_pcg pcg = sf_pcg_create(7, 1);
  for (int i = 0; i < 300000; i++) {
    const float a = any_float(&pcg), b = any_float(&pcg), c = any_float(&pcg), d = any_float(&pcg);
    const struct sf_num x = sf_num((double)a), y = sf_num((double)b), z = sf_num((double)c), w = sf_num((double)d);
    volatile float sum = a + b, product = sum * c, quotient = product / d, root = sqrtf(quotient), difference = root - a;
    expect(sf_num_add(x, y), sum);
    expect(sf_num_mul(sf_num_add(x, y), z), product);
    expect(sf_num_div(sf_num_mul(sf_num_add(x, y), z), w), quotient);
    expect(sf_num_sqrt(sf_num_div(sf_num_mul(sf_num_add(x, y), z), w)), root);
    expect(sf_num_sub(sf_num_sqrt(sf_num_div(sf_num_mul(sf_num_add(x, y), z), w)), x), difference);
    expect(sf_num_exp(sf_num_add(x, y)), expf(sum));
  }
}

static void test_sum_random_orders_within_bound(void **state) {
  (void)state;
  struct sf_pcg pcg = sf_pcg_create(7, 2);
  for (int i = 0; i < 3000; i++) {
    const int count = (int)sf_pcg_below(&pcg, 70);
    struct sf_num_sum sum = {0};
    volatile float up = 0, even = 0, odd = 0;
    float values[70];
    for (int k = 0; k < count; k++) {
      values[k] = any_float(&pcg);
      if (sf_pcg_below(&pcg, 8)) values[k] = (float)(int32_t)sf_pcg_next(&pcg) * 0x1p-20f;
      sf_num_sum_add(&sum, sf_num((double)values[k]));
    }
    for (int k = 0; k < count; k++) up = up + values[k];
    for (int k = count - 1; k >= 0; k--) *(k % 2 ? &odd : &even) += values[k];
    volatile float lanes = even + odd;
    expect(sf_num_sum_of(&sum), up);
    expect(sf_num_sum_of(&sum), lanes);
  }
}

/* The bound is no wider than the roundings that it counts: one operation, one half unit. */
static void test_num_one_operation_bound_is_half_an_ulp(void **state) {
  (void)state;
  assert_true(sf_num_add(sf_num(1), sf_num(0x1p-30)).e <= 0x1.001p-24);
  assert_true(sf_num_mul(sf_num(1.5), sf_num(1.5)).e <= 2.25 * 0x1.001p-24);
  assert_true(sf_num_exp(sf_num(1)).e <= 2.7183 * 0x1.001p-22);
}

static void test_num_specials_certain_or_unknown(void **state) {
  (void)state;
  const struct sf_num infinity = sf_num(INFINITY), zero = sf_num(0), blurred = {0, 0x1p-149};
  assert_true(isnan(sf_num_mul(infinity, zero).v) && sf_num_mul(infinity, zero).e == 0);
  assert_true(isinf(sf_num_mul(infinity, blurred).e));
  assert_true(isinf(sf_num_add(sf_num(0x1p128), zero).e)); /* fp32 has made it infinity */
  assert_true(isinf(sf_num_div(sf_num(1), blurred).e));
  assert_true(sf_num_div(sf_num(1), zero).v == INFINITY);
  assert_true(isnan(sf_num_sub(infinity, infinity).v));
  assert_true(isnan(sf_num_sqrt(sf_num(-1)).v));
  assert_true(sf_num_exp(sf_num(-INFINITY)).v == 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_num_random_chains_hold_fp32),
      cmocka_unit_test(test_sum_random_orders_within_bound),
      cmocka_unit_test(test_num_one_operation_bound_is_half_an_ulp),
      cmocka_unit_test(test_num_specials_certain_or_unknown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
