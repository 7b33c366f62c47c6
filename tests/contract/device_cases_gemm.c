/* GEMM cases of the device contract. */
#include "tests/contract/device_fixture.h"

static float at(const float *x, int64_t ld, bool trans, int64_t row, int64_t col) { return trans ? x[col * ld + row] : x[row * ld + col]; }

/* |error| <= (k + 2) u (|alpha| sum |a b| + |c|) */
static void expect_gemm(struct fixture *f, const struct sf_gemm *g, const float *before, enum sf_dtype store) {
  for (int64_t i = 0; i < g->m; i++)
    for (int64_t j = 0; j < g->ldc; j++) {
      if (j >= g->n) {
        assert_memory_equal(&g->c[i * g->ldc + j], &before[i * g->ldc + j], sizeof(float));
        continue;
      }
      double sum = 0, size = 0;
      for (int64_t p = 0; p < g->k; p++) {
        const double product = (double)at(g->a, g->lda, g->trans_a, i, p) * (double)at(g->b, g->ldb, g->trans_b, p, j);
        sum += product;
        size += fabs(product);
      }
      const double old = g->accumulate ? (double)before[i * g->ldc + j] : 0.0;
      const double want = (g->k ? (double)g->alpha * sum : 0.0) + old;
      expect(f, g->c[i * g->ldc + j], want, (double)(g->k + 2) * u * (fabs((double)g->alpha) * size + fabs(old)), store);
    }
}

struct gemm_case {
  struct sf_gemm g;
  float *a, *b, *before, *c;
  int64_t a_count, b_count, c_count;
  enum sf_dtype store;
};

static struct gemm_case gemm_case_draw(struct fixture *f, int64_t size_max) {
  struct gemm_case x = {.store = any_store(f)};
  struct sf_gemm *g = &x.g;
  const float alphas[] = {1.0f, 1.0f, 0.125f, -0.3f, 0.0f};
  g->m = any_size(f) % (size_max + 1), g->n = any_size(f) % (size_max + 1), g->k = any_size(f) % (size_max + 1);
  if (below(f, 8) == 0) g->k = 256 + below(f, 300);
  g->trans_a = below(f, 2), g->trans_b = below(f, 2), g->accumulate = below(f, 2);
  g->alpha = alphas[below(f, 5)];
  g->lda = (g->trans_a ? g->m : g->k) + below(f, 2) * below(f, 9);
  g->ldb = (g->trans_b ? g->k : g->n) + below(f, 2) * below(f, 9);
  g->ldc = g->n + below(f, 2) * below(f, 9);
  x.a_count = (g->trans_a ? g->k : g->m) * g->lda, x.b_count = (g->trans_b ? g->n : g->k) * g->ldb, x.c_count = g->m * g->ldc;
  g->a = x.a = filled(f, x.a_count, any_values(f));
  g->b = x.b = filled(f, x.b_count, any_values(f));
  /* What is not read may hold anything: NaN where nothing is accumulated. */
  x.before = filled(f, x.c_count, g->accumulate ? NORMAL : SPECIAL);
  g->c = x.c = copy(x.before, x.c_count);
  return x;
}
static void gemm_case_release(struct gemm_case *x) {
  release(x->a, x->a_count);
  release(x->b, x->b_count);
  release(x->before, x->c_count);
  release(x->c, x->c_count);
}

void test_gemm_random_within_bound(void **state) {
  struct fixture *f = *state;
  begin(state, "gemm");
  for (int i = 0; i < SF_ROUNDS(400); i++) {
    struct gemm_case x = gemm_case_draw(f, 129);
    f->dev->ops->gemm(f->dev, &x.g, x.store);
    expect_gemm(f, &x.g, x.before, x.store);
    gemm_case_release(&x);
  }
  end(state);
}

/* A variant may change its code after some uses of a shape; the bits may not change. */
void test_gemm_repeated_same_bits(void **state) {
  struct fixture *f = *state;
  begin(state, "gemm repeated");
  for (int i = 0; i < SF_ROUNDS(150); i++) {
    struct gemm_case x = gemm_case_draw(f, 65);
    float *first = buffer(x.c_count);
    for (int repeat = 0; repeat < f->repeats; repeat++) {
      memcpy(x.c, x.before, (size_t)x.c_count * sizeof *x.c);
      f->dev->ops->gemm(f->dev, &x.g, x.store);
      if (repeat == 0) memcpy(first, x.c, (size_t)x.c_count * sizeof *first);
      assert_true(same_bits(first, x.c, x.c_count));
    }
    expect_gemm(f, &x.g, x.before, x.store);
    release(first, x.c_count);
    gemm_case_release(&x);
  }
  end(state);
}

/* Loops and LIBXSMM promise one chain of fused multiply-adds over ascending k; checked where the machine has the instruction. */
static float fma_chain(const struct sf_gemm *g, float start, int64_t row, int64_t col) {
  for (int64_t p = 0; p < g->k; p++) start = fmaf(at(g->a, g->lda, g->trans_a, row, p), at(g->b, g->ldb, g->trans_b, p, col), start);
  return start;
}

void test_gemm_chain_exact_bits(void **state) {
  struct fixture *f = *state;
  begin(state, "gemm chain");
#ifdef __FMA__
  const bool promised = f->kind == SF_DEVICE_CPU && f->gemm != SF_CPU_GEMM_BLAS;
#else
  const bool promised = false;
#endif
  if (!promised) {
    f->skipped++;
    skip();
  }
  for (int i = 0; i < SF_ROUNDS(150); i++) {
    struct gemm_case x = gemm_case_draw(f, i < 100 ? 65 : 129);
    x.g.alpha = 1.0f;
    for (int repeat = 0; repeat < f->repeats; repeat++) {
      memcpy(x.c, x.before, (size_t)x.c_count * sizeof *x.c);
      f->dev->ops->gemm(f->dev, &x.g, SF_F32);
    }
    for (int64_t row = 0; row < x.g.m; row++)
      for (int64_t col = 0; col < x.g.n; col++) {
        const int64_t place = row * x.g.ldc + col;
        const float want = fma_chain(&x.g, x.g.accumulate ? x.before[place] : 0.0f, row, col);
        if (!same_bits(&x.c[place], &want, 1)) fail_msg("%s: got %a, want %a", f->name, (double)x.c[place], (double)want);
      }
    gemm_case_release(&x);
  }
  end(state);
}

/* Shapes past every internal block and scratch size. */
void test_gemm_large_within_bound(void **state) {
  struct fixture *f = *state;
  begin(state, "gemm large");
  const int64_t sizes[][3] = {{3, 700, 900}, {700, 5, 600}, {300, 300, 300}, {1, 1, 5000}, {17, 1030, 530}, {650, 660, 640}};
  for (int i = 0; i < 6; i++) {
    struct sf_gemm g = {.m = sizes[i][0], .n = sizes[i][1], .k = sizes[i][2], .alpha = i % 2 ? 0.5f : 1.0f, .accumulate = i % 2};
    g.trans_a = i % 3 == 1, g.trans_b = i % 3 != 2;
    g.lda = g.trans_a ? g.m : g.k, g.ldb = g.trans_b ? g.k : g.n, g.ldc = g.n;
    float *a = filled(f, g.m * g.k, NORMAL), *b = filled(f, g.k * g.n, NORMAL), *before = filled(f, g.m * g.n, NORMAL);
    float *c = copy(before, g.m * g.n);
    g.a = a, g.b = b, g.c = c;
    f->dev->ops->gemm(f->dev, &g, SF_F32);
    expect_gemm(f, &g, before, SF_F32);
    release(a, g.m * g.k), release(b, g.k * g.n), release(before, g.m * g.n), release(c, g.m * g.n);
  }
  end(state);
}

static float *rounded(struct fixture *f, int64_t count, enum values values, enum sf_dtype format) {
  float *x = filled(f, count, values);
  for (int64_t i = 0; i < count; i++) x[i] = sf_round(x[i], format);
  return x;
}

/* i-th of the cases: sizes from which devices hand products to a library in reduced formats. */
static struct gemm_case reduced_case(struct fixture *f, int i, const enum sf_dtype formats[2]) {
  static const int64_t sizes[][3] = {{128, 128, 128}, {130, 127, 140}, {257, 33, 260}, {34, 250, 251}, {60, 190, 190}};
  static const enum values values[] = {NORMAL, WIDE, SPECIAL};
  struct gemm_case x = {.store = i % 2 && sf_dtype_is_packed(formats[0]) ? formats[0] : SF_F32}; /* a layer stores no product in fp8 */
  struct sf_gemm *g = &x.g;
  g->m = sizes[i % 5][0], g->n = sizes[i % 5][1], g->k = sizes[i % 5][2];
  g->trans_a = i % 4 & 1, g->trans_b = i % 4 & 2, g->accumulate = i % 3 == 1, g->alpha = i % 3 == 2 ? -0.3f : 1.0f;
  g->lda = (g->trans_a ? g->m : g->k) + i % 2, g->ldb = (g->trans_b ? g->k : g->n) + i % 3, g->ldc = g->n + i % 4;
  x.a_count = (g->trans_a ? g->k : g->m) * g->lda, x.b_count = (g->trans_b ? g->n : g->k) * g->ldb, x.c_count = g->m * g->ldc;
  g->a = x.a = rounded(f, x.a_count, values[i % 3], formats[0]);
  g->b = x.b = rounded(f, x.b_count, i % 3 == 2 ? NORMAL : values[i % 3], formats[1]);
  x.before = filled(f, x.c_count, NORMAL);
  g->c = x.c = copy(x.before, x.c_count);
  return x;
}

/* Operands in the device's own memory, at addresses that more and fewer powers of two divide: which algorithm computes may not hang on
 * that. */
static void expect_same_bits_elsewhere(struct fixture *f, const struct gemm_case *x) {
  enum { APART = 16 };
  const struct sf_memory *memory = f->dev->memory;
  const int64_t a_room = (x->a_count + APART - 1) / APART * APART, b_room = (x->b_count + APART - 1) / APART * APART;
  if (!memory) return;
  float *all = memory->alloc(memory->context, (size_t)(a_room + b_room + x->c_count + APART) * sizeof *all);
  assert_non_null(all);
  for (int64_t shift = 0; shift <= APART; shift += APART) {
    struct sf_gemm g = x->g;
    float *a = all + shift, *b = a + a_room, *c = b + b_room;
    memcpy(a, x->a, (size_t)x->a_count * sizeof *a), memcpy(b, x->b, (size_t)x->b_count * sizeof *b),
        memcpy(c, x->before, (size_t)x->c_count * sizeof *c);
    g.a = a, g.b = b, g.c = c;
    f->dev->ops->gemm(f->dev, &g, x->store);
    assert_true(same_bits(c, x->c, x->c_count));
  }
  memory->release(memory->context, all);
}

void test_gemm_reduced_formats_within_bound(void **state) {
  static const enum sf_dtype formats[][2] = {
      {SF_BF16, SF_BF16},     {SF_F16, SF_F16},     {SF_F8E4M3, SF_F8E4M3}, {SF_F8E5M2, SF_F8E5M2},
      {SF_F8E4M3, SF_F8E5M2}, {SF_BF16, SF_F8E4M3}, {SF_BF16, SF_F16} /* no reduced format holds both */};
  struct fixture *f = *state;
  begin(state, "gemm reduced");
  for (int i = 0; i < 28; i++) {
    struct gemm_case x = reduced_case(f, i, formats[i % 7]);
    f->dev->ops->gemm(f->dev, &x.g, x.store);
    expect_gemm(f, &x.g, x.before, x.store);
    expect_same_bits_elsewhere(f, &x);
    gemm_case_release(&x);
  }
  end(state);
}

/* Operands of small numbers but for one, wherever that lies. */
void test_gemm_one_number_fits_no_reduced_format_is_kept(void **state) {
  enum { SIZE = 128, PLACES = 6 };
  static const int64_t places[PLACES] = {0, 1, 2, 3, 77 * SIZE + 6, SIZE * SIZE - 1};
  struct fixture *f = *state;
  begin(state, "gemm one number");
  for (int i = 0; i < 2 * PLACES; i++) {
    struct sf_gemm g = {.m = SIZE, .n = SIZE, .k = SIZE, .lda = SIZE, .ldb = SIZE, .ldc = SIZE, .alpha = 1.0f};
    float *a = rounded(f, SIZE * SIZE, NORMAL, SF_F8E4M3), *b = rounded(f, SIZE * SIZE, NORMAL, SF_F8E4M3), *c = copy(a, SIZE * SIZE);
    (i < PLACES ? a : b)[places[i % PLACES]] = 2049.0f;
    g.a = a, g.b = b, g.c = c;
    f->dev->ops->gemm(f->dev, &g, SF_F32);
    expect_gemm(f, &g, a, SF_F32);
    release(a, SIZE * SIZE), release(b, SIZE * SIZE), release(c, SIZE * SIZE);
  }
  end(state);
}
