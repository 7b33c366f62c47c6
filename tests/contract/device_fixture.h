/* What the device suite shares: one fixture per variant, drawn values, guarded buffers, comparison against a model in fp64. */
#ifndef SF_TESTS_CONTRACT_DEVICE_FIXTURE_H
#define SF_TESTS_CONTRACT_DEVICE_FIXTURE_H

#include "harness/base/alloc.h"
#include "harness/base/pcg.h"
#include "harness/device/device.h"
#include "tests/rounds.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const double u = 0x1p-24; /* unit roundoff of fp32 */
enum { GUARD = 32, REPEATS = 300 };

enum values { NORMAL, OFFSET, TIES, WIDE, SPECIAL, VALUES_COUNT };

struct fixture {
  const char *name;
  enum sf_device_kind kind;
  enum sf_cpu_gemm gemm;
  int repeats; /* of one call that must give the same bits */
  struct sf_device *dev;
  struct sf_pcg pcg;
  const char *op;
  double worst; /* error / bound of the operation under test */
  int passed, skipped;
};

/* --- values, buffers, comparison ---------------------------------------------------------------------------- */

static inline int64_t below(struct fixture *f, int64_t bound) { return (int64_t)sf_pcg_below(&f->pcg, (uint64_t)bound); }

static inline int64_t any_size(struct fixture *f) {
  static const int64_t sizes[] = {0, 1, 2, 3, 5, 7, 8, 13, 15, 16, 17, 24, 31, 32, 33, 47, 48, 63, 64, 65, 80, 96, 100, 127, 128, 129};
  return sizes[below(f, (int64_t)(sizeof sizes / sizeof *sizes))];
}
static inline int64_t any_positive(struct fixture *f) {
  const int64_t size = any_size(f);
  return size ? size : 1;
}
static inline enum sf_dtype any_store(struct fixture *f) {
  static const enum sf_dtype stores[] = {SF_F32, SF_BF16, SF_F16};
  return stores[below(f, 3)];
}

static inline float uniform(struct fixture *f) { return (float)below(f, 1 << 24) * 0x1p-23f - 1.0f; }
static inline float normal(struct fixture *f) { return (uniform(f) + uniform(f) + uniform(f)) * 1.0f; }

static inline float any_value(struct fixture *f, enum values values) {
  if (values == OFFSET) return 1000.0f + normal(f);
  if (values == TIES) return (float)below(f, 5) - 2.0f;
  if (values == WIDE) return ldexpf(uniform(f), (int)below(f, 24) - 12);
  if (values == SPECIAL && below(f, 40) == 0) {
    static const float special[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1e-41f};
    return special[below(f, 6)];
  }
  return normal(f);
}

static inline enum values any_values(struct fixture *f) { return (enum values)below(f, VALUES_COUNT); }

/* count floats between guards; the guards are checked when it is freed. */
static inline float *buffer(int64_t count) {
  const size_t total = (size_t)count + 2 * GUARD;
  float *all = sf_alloc(total * sizeof *all + sizeof(int64_t));
  assert_non_null(all);
  for (size_t i = 0; i < total; i++) all[i] = -7777.0f;
  memcpy(all + total, &count, sizeof count);
  return all + GUARD;
}
static inline float *filled(struct fixture *f, int64_t count, enum values values) {
  float *x = buffer(count);
  for (int64_t i = 0; i < count; i++) x[i] = any_value(f, values);
  return x;
}
static inline float *copy(const float *x, int64_t count) {
  float *y = buffer(count);
  memcpy(y, x, (size_t)count * sizeof *y);
  return y;
}
static inline void release(float *x, int64_t count) {
  for (int i = 0; i < GUARD; i++) {
    assert_true(x[-1 - i] == -7777.0f);
    assert_true(x[count + i] == -7777.0f);
  }
  sf_free(x - GUARD);
}

/* A factor that fp32 cannot tell from zero is zero, and infinity times it is NaN. */
static inline double flushed(double factor) { return fabs(factor) <= 0x1p-150 ? 0.0 : factor; }

/* bound: of the error before storing. */
static inline void expect(struct fixture *f, float got, double want, double bound, enum sf_dtype store) {
  bool good;
  if (isnan(want))
    good = isnan(got);
  else if (isinf(want))
    good = (double)got == want;
  else if (store == SF_F16 && fabs(want) + bound >= 65519.0) /* infinity where the sum may have reached 65520 */
    good = fabs(want) - bound < 65520.0 ? fabs((double)got) >= 65504.0 - bound : isinf(got);
  else {
    const double storing = store == SF_F32 ? 0.0 : sf_dtype_unit_roundoff(store);
    const double subnormal = store == SF_F32 ? 0x1p-149 : sf_dtype_least_error(store) * 0x1.01p0;
    const double limit = bound * (1 + storing) + storing * fabs(want) + subnormal, error = fabs((double)got - want);
    good = error <= limit;
    if (good && store == SF_F32 && error / limit > f->worst) f->worst = error / limit;
  }
  if (good && !isnan(got)) good = sf_round(got, store) == got;
  if (!good) fail_msg("%s %s: got %.9g, want %.9g, bound %.3g, %s", f->name, f->op, (double)got, want, bound, sf_dtype_name(store));
}

/* NaN equals NaN: its sign and payload are not promised. */
static inline bool same_bits(const float *a, const float *b, int64_t count) {
  for (int64_t i = 0; i < count; i++)
    if (memcmp(&a[i], &b[i], sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i]))) return false;
  return true;
}

static inline void begin(void **state, const char *op) {
  struct fixture *f = *state;
  f->op = op;
  f->worst = 0;
  if (!f->dev) {
    f->skipped++;
    skip();
  }
}
static inline void end(void **state) {
  struct fixture *f = *state;
  f->passed++;
  print_message("           %-9s %-18s worst error / bound %.3f\n", f->name, f->op, f->worst);
}

/* device_cases_gemm.c */
void test_gemm_random_within_bound(void **state);
void test_gemm_repeated_same_bits(void **state);
void test_gemm_chain_exact_bits(void **state);
void test_gemm_large_within_bound(void **state);
void test_gemm_reduced_formats_within_bound(void **state);
void test_gemm_one_number_fits_no_reduced_format_is_kept(void **state);
/* device_cases_product.c */
void test_product_random_within_bound(void **state);
void test_product_in_order_random_same_bits(void **state);
void test_product_large_within_bound(void **state);
/* device_cases_fp8.c */
void test_fp8_cast_random_same_bits_as_single_values(void **state);
/* device_cases_block_softmax.c */
void test_block_softmax_fwd_random_within_bound(void **state);
void test_block_softmax_fwd_nan_alone_in_a_block_fills_the_row(void **state);
void test_block_softmax_bwd_random_within_bound(void **state);
/* device_cases_adam.c */
void test_adam_random_within_bound(void **state);
void test_round_stochastic_random_is_the_specified_number(void **state);

#endif
