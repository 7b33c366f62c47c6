/* GEMM: the product by the library or, where that has none, by plain tiles; then alpha, what is added and the one rounding, in a pass of their own.
 *
 * Large products whose operands are numbers of bf16, or of fp16, are handed to the library in that format: the conversion is exact, so are the
 * products, and sums stay fp32. fp8 numbers are numbers of both; the fp8 products of tensor cores are not used, because those of sm_89 and sm_90 do
 * not keep fp32 sums.
 * Error: bound (k + 2) u (|alpha| sum |a b| + |c|) before storing, as on the CPU. */
#include "harness/device/cuda/tiles.cuh"

extern "C" {
#include "harness/base/assert.h"
}

enum { NARROW_ALIGN = 16 };
static const double NARROW_FROM = 1 << 21; /* multiply-adds from which two conversions are worth their while */

/* --- narrow formats -------------------------------------------------------------------------------------------------- */

enum { NOT_BF16 = 1, NOT_F16 = 2 };

/* Subnormal numbers of bf16 are left to fp32. Bits are or-ed: any order gives the same. */
__global__ static void classify_kernel(unsigned *flags, const float *x, int64_t ld, int64_t rows, int64_t cols) {
  unsigned found = 0;
  SF_CUDA_FOR_EACH(i, rows * cols) {
    const float v = x[i / cols * ld + i % cols];
    const uint32_t bits = __float_as_uint(v), size = bits & 0x7fffffffu;
    if ((bits & 0xffffu) != 0 || (size != 0 && size < 0x00800000u)) found |= NOT_BF16;
    if (__float_as_uint(sf_f16_round(v)) != bits) found |= NOT_F16;
  }
  if (found) atomicOr(flags, found);
}

__global__ static void narrow_kernel(uint16_t *out, int64_t ldo, const float *x, int64_t ld, int64_t rows, int64_t cols, enum sf_dtype format) {
  SF_CUDA_FOR_EACH(i, rows * cols) {
    const float v = x[i / cols * ld + i % cols];
    out[i / cols * ldo + i % cols] = format == SF_BF16 ? sf_bf16_bits(v) : sf_f16_bits(v);
  }
}

static int64_t narrow_ld(int64_t cols) { return (cols + NARROW_ALIGN - 1) / NARROW_ALIGN * NARROW_ALIGN; }

/* Whether the operands have a common narrow format; then *g reads copies in it. */
static bool narrow(struct sf_cuda_call *call, struct sf_cuda_product *g) {
  const int64_t a_rows = g->trans_a ? g->k : g->m, a_cols = g->trans_a ? g->m : g->k, b_rows = g->trans_b ? g->n : g->k, b_cols = g->trans_b ? g->k : g->n;
  const float *a = (const float *)g->a, *b = (const float *)g->b;
  if ((double)g->m * (double)g->n * (double)g->k < NARROW_FROM) return false;
  unsigned *flags = (unsigned *)sf_cuda_scratch(call, sizeof *flags);
  *flags = 0;
  SF_CUDA_EACH(call, classify_kernel, a_rows * a_cols, flags, a, g->lda, a_rows, a_cols);
  SF_CUDA_EACH(call, classify_kernel, b_rows * b_cols, flags, b, g->ldb, b_rows, b_cols);
  sf_cuda_wait(call);
  if (*flags == (NOT_BF16 | NOT_F16)) return false;
  g->format = *flags & NOT_BF16 ? SF_F16 : SF_BF16;
  const int64_t lda = narrow_ld(a_cols), ldb = narrow_ld(b_cols);
  uint16_t *a_copy = (uint16_t *)sf_cuda_scratch(call, (size_t)(a_rows * lda) * sizeof *a_copy);
  uint16_t *b_copy = (uint16_t *)sf_cuda_scratch(call, (size_t)(b_rows * ldb) * sizeof *b_copy);
  SF_CUDA_EACH(call, narrow_kernel, a_rows * a_cols, a_copy, lda, a, g->lda, a_rows, a_cols, g->format);
  SF_CUDA_EACH(call, narrow_kernel, b_rows * b_cols, b_copy, ldb, b, g->ldb, b_rows, b_cols, g->format);
  g->a = a_copy, g->lda = lda, g->b = b_copy, g->ldb = ldb;
  return true;
}

/* --- the operation ----------------------------------------------------------------------------------------------------- */

/* c = round(alpha product [+ c]); the product may be c itself. */
__global__ static void finish_kernel(float *c, int64_t ldc, const float *product, int64_t ldp, int64_t m, int64_t n, float alpha, bool accumulate,
                                     enum sf_dtype store) {
  SF_CUDA_FOR_EACH(i, m * n) {
    float *at = c + i / n * ldc + i % n;
    const float scaled = product ? alpha * product[i / n * ldp + i % n] : 0.0f;
    *at = sf_round(!accumulate ? scaled : product ? *at + scaled : *at, store);
  }
}

static void multiply(struct sf_cuda_call *call, const struct sf_cuda_product *wide) {
  struct sf_cuda_product narrower = *wide;
  if (narrow(call, &narrower) && sf_cuda_multiply(call->cuda, &narrower)) return;
  if (!sf_cuda_multiply(call->cuda, wide)) sf_cuda_tiles_run<struct sf_cuda_fused_chain>(wide, call->cuda->stream);
}

static void gemm(struct sf_device *dev, const struct sf_gemm *g, enum sf_dtype store) {
  struct sf_cuda_call call;
  if (g->m == 0 || g->n == 0) return;
  SF_ASSERT_LE(g->trans_a ? g->m : g->k, g->lda);
  SF_ASSERT_LE(g->trans_b ? g->k : g->n, g->ldb);
  SF_ASSERT_LE(g->n, g->ldc);
  sf_cuda_begin(&call, dev);
  struct sf_cuda_product product = {g->trans_a, g->trans_b, g->m, g->n, g->k, NULL, NULL, g->lda, g->ldb, SF_F32, NULL, g->ldc};
  product.a = sf_cuda_in(&call, g->a, sf_cuda_span(g->trans_a ? g->k : g->m, g->trans_a ? g->m : g->k, g->lda));
  product.b = sf_cuda_in(&call, g->b, sf_cuda_span(g->trans_b ? g->n : g->k, g->trans_b ? g->k : g->n, g->ldb));
  float *c = sf_cuda_inout(&call, g->c, sf_cuda_span(g->m, g->n, g->ldc));
  product.c = c;
  if (g->accumulate && g->k > 0) {
    product.ldc = g->n;
    product.c = sf_cuda_scratch(&call, (size_t)(g->m * g->n) * sizeof(float));
  }
  if (g->k > 0) multiply(&call, &product);
  const bool finished = g->k > 0 && !g->accumulate && g->alpha == 1.0f && store == SF_F32;
  if (!finished)
    SF_CUDA_EACH(&call, finish_kernel, g->m * g->n, c, g->ldc, g->k > 0 ? (const float *)product.c : NULL, product.ldc, g->m, g->n, g->alpha, g->accumulate, store);
  sf_cuda_end(&call);
}

void sf_cuda_fill_gemm(struct sf_device_ops *ops) { ops->gemm = gemm; }
