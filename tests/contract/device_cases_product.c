/* Products of the host's matrices (sf_device.product) of the device contract. A device may have none, and may refuse some. */
#include "tests/contract/device_fixture.h"

static const double u64 = 0x1p-53; /* unit roundoff of fp64 */

struct product_case {
  struct sf_product p;
  float *a, *b, *before, *c; /* of fp32 */
  double *a64, *b64, *before64, *c64;
  int64_t a_count, b_count, c_count;
};

static double *widened(const float *x, int64_t count, double factor) {
  double *y = sf_alloc((size_t)(count > 0 ? count : 1) * sizeof *y);
  assert_non_null(y);
  for (int64_t i = 0; i < count; i++) y[i] = (double)x[i] * factor;
  return y;
}

/* fp64: numbers that fp32 does not have. */
static void case_widen(struct product_case *x) {
  x->a64 = widened(x->a, x->a_count, 1.0 / 3);
  x->b64 = widened(x->b, x->b_count, 1.0 / 7);
  x->before64 = widened(x->before, x->c_count, 1);
  x->c64 = widened(x->before, x->c_count, 1);
  if (!x->p.fp64) return;
  x->p.a = x->a64, x->p.b = x->b64, x->p.c = x->c64;
}

static struct product_case case_of(struct fixture *f, bool fp64, int64_t m, int64_t n, int64_t k, enum values values) {
  struct product_case x = {.p = {.fp64 = fp64, .trans_a = below(f, 2), .trans_b = below(f, 2), .m = m, .n = n, .k = k}};
  struct sf_product *p = &x.p;
  p->lda = (p->trans_a ? m : k) + below(f, 2) * below(f, 9);
  p->ldb = (p->trans_b ? k : n) + below(f, 2) * below(f, 9);
  p->ldc = n + below(f, 2) * below(f, 9);
  /* The last row ends with the matrix: a piece of a wider one has no more behind it. */
  x.a_count = ((p->trans_a ? k : m) - 1) * p->lda + (p->trans_a ? m : k);
  x.b_count = ((p->trans_b ? n : k) - 1) * p->ldb + (p->trans_b ? k : n);
  x.c_count = (m - 1) * p->ldc + n;
  p->a = x.a = filled(f, x.a_count, values);
  p->b = x.b = filled(f, x.b_count, values);
  x.before = filled(f, x.c_count, SPECIAL); /* is not read */
  p->c = x.c = copy(x.before, x.c_count);
  case_widen(&x);
  return x;
}

static void case_release(struct product_case *x) {
  release(x->a, x->a_count), release(x->b, x->b_count), release(x->before, x->c_count), release(x->c, x->c_count);
  sf_free(x->a64), sf_free(x->b64), sf_free(x->before64), sf_free(x->c64);
}

static double number(const struct sf_product *p, const void *x, int64_t at) {
  return p->fp64 ? ((const double *)x)[at] : (double)((const float *)x)[at];
}
static double factor_a(const struct sf_product *p, int64_t i, int64_t l) {
  return number(p, p->a, p->trans_a ? l * p->lda + i : i * p->lda + l);
}
static double factor_b(const struct sf_product *p, int64_t l, int64_t j) {
  return number(p, p->b, p->trans_b ? j * p->ldb + l : l * p->ldb + j);
}

/* What lies between the rows of c, or with `whole` all of c, is as it was. */
static void expect_untouched(const struct product_case *x, bool whole) {
  const size_t size = x->p.fp64 ? sizeof(double) : sizeof(float);
  const char *now = x->p.c, *before = x->p.fp64 ? (const char *)x->before64 : (const char *)x->before;
  for (int64_t i = 0; i < x->p.m; i++) {
    const int64_t first = i * x->p.ldc + (whole ? 0 : x->p.n), end = i + 1 < x->p.m ? (i + 1) * x->p.ldc : whole ? first + x->p.n : first;
    assert_memory_equal(now + (size_t)first * size, before + (size_t)first * size, (size_t)(end - first) * size);
  }
}

/* fp32: |error| <= (k + 2) u sum |a b|; fp64 the same with its unit. In fp64 the model's own sum may be off by as much. */
static void expect_number(struct fixture *f, const struct sf_product *p, int64_t i, int64_t j) {
  double sum = 0, size = 0;
  for (int64_t l = 0; l < p->k; l++) {
    const double term = factor_a(p, i, l) * factor_b(p, l, j);
    sum += term;
    size += fabs(term);
  }
  if (!p->fp64) {
    expect(f, ((const float *)p->c)[i * p->ldc + j], sum, (double)(p->k + 2) * u * size, SF_F32);
    return;
  }
  const double got = ((const double *)p->c)[i * p->ldc + j];
  if (isfinite(sum) ? !(fabs(got - sum) <= 2 * (double)(p->k + 2) * u64 * size) : isnan(sum) ? !isnan(got) : got != sum)
    fail_msg("%s %s: got %.17g, want %.17g", f->name, f->op, got, sum);
}

static void expect_product(struct fixture *f, const struct product_case *x) {
  expect_untouched(x, false);
  for (int64_t i = 0; i < x->p.m; i++)
    for (int64_t j = 0; j < x->p.n; j++) expect_number(f, &x->p, i, j);
}

static struct product_case case_draw(struct fixture *f) {
  const enum values values = any_values(f);
  const int64_t k = below(f, 8) == 0 ? 256 + below(f, 300) : any_positive(f);
  return case_of(f, below(f, 3) == 0, any_positive(f), any_positive(f), k, values);
}

/* Ends a test of a device without products. */
static bool has_none(void **state) {
  struct fixture *f = *state;
  if (f->dev->product != NULL) return false;
  assert_int_equal(f->kind, SF_DEVICE_CPU);
  end(state);
  return true;
}

void test_product_random_within_bound(void **state) {
  struct fixture *f = *state;
  int64_t computed = 0;
  begin(state, "product");
  if (has_none(state)) return;
  for (int i = 0; i < SF_ROUNDS(400); i++) {
    struct product_case x = case_draw(f);
    if (f->dev->product(f->dev, &x.p)) {
      expect_product(f, &x), computed++;
    } else {
      expect_untouched(&x, true);
      f->dev->ops->scale(f->dev, x.a, 2.0f, x.a_count); /* a refused call has ended too: its operands may change */
    }
    case_release(&x);
  }
  assert_true(computed > SF_ROUNDS(200));
  end(state);
}

/* float and double chains as a CPU computes them. */
#define CHAIN(name, type)                                                                                                                  \
  static type name(const struct sf_product *p, int64_t i, int64_t j) {                                                                     \
    type sum = 0;                                                                                                                          \
    for (int64_t l = 0; l < p->k; l++) sum += (type)factor_a(p, i, l) * (type)factor_b(p, l, j);                                           \
    return sum;                                                                                                                            \
  }
CHAIN(chain, float)
CHAIN(chain64, double)

static void expect_chain(const struct sf_product *p, int64_t i, int64_t j) {
  if (p->fp64) {
    const double got = ((const double *)p->c)[i * p->ldc + j], want = chain64(p, i, j);
    assert_true(memcmp(&got, &want, sizeof got) == 0 || (isnan(got) && isnan(want)));
    return;
  }
  const float got = ((const float *)p->c)[i * p->ldc + j], want = chain(p, i, j);
  assert_true(same_bits(&got, &want, 1));
}

void test_product_in_order_random_same_bits(void **state) {
  struct fixture *f = *state;
  begin(state, "product in order");
  if (has_none(state)) return;
  for (int r = 0; r < 200; r++) {
    struct product_case x = case_draw(f);
    x.p.in_order = true;
    assert_true(f->dev->product(f->dev, &x.p));
    expect_untouched(&x, false);
    for (int64_t i = 0; i < x.p.m; i++)
      for (int64_t j = 0; j < x.p.n; j++) expect_chain(&x.p, i, j);
    case_release(&x);
  }
  end(state);
}

/* Sizes at which the reference asks for it. */
void test_product_large_within_bound(void **state) {
  static const int64_t sizes[][3] = {{256, 512, 384}, {513, 300, 257}, {1024, 64, 1023}};
  struct fixture *f = *state;
  begin(state, "product large");
  if (has_none(state)) return;
  for (int i = 0; i < 6; i++) {
    const int64_t *size = sizes[i % 3];
    struct product_case x = case_of(f, i >= 3, size[0], size[1], size[2], NORMAL);
    if (f->dev->product(f->dev, &x.p)) {
      expect_untouched(&x, false);
      for (int r = 0; r < 2000; r++) expect_number(f, &x.p, below(f, x.p.m), below(f, x.p.n));
    }
    case_release(&x);
  }
  end(state);
}
