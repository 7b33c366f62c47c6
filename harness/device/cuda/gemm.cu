/* GEMM: the library makes the product, or plain tiles where it cannot; alpha, the addition and the one rounding follow in a pass of their
 * own. Operands of large products are copied to the GPU's own memory first: many threads read each number, and the bus would carry it as
 * often. The library gets numbers of bf16 or fp16 in that format: the conversion and the products are exact, and sums stay fp32. fp8
 * numbers fit both formats; the fp8 products of tensor cores are not used, because those of sm_89 and sm_90 do not keep fp32 sums. Error:
 * bound (k + 2) u (|alpha| sum |a b| + |c|) before storing, as on the CPU. */
#include "harness/device/cuda/tiles.cuh"

extern "C" {
#include "harness/base/assert.h"
}

enum { COPY_ALIGN = 16 };
static const double COPY_FROM = 1 << 21; /* from this many multiply-adds on, checking and copying the operands pays */

/* --- copies of operands ------------------------------------------------------------------------------------------------ */

struct operand { /* as it lies */
  const float *x;
  int64_t ld, rows, cols;
};

enum { NOT_BF16 = 1, NOT_F16 = 2 };

/* Finds the formats that do not hold all of the matrix's numbers; each block leaves its part. Subnormal numbers of bf16 stay in fp32. */
__global__ static void classify_kernel(unsigned *parts, struct operand o) {
  __shared__ unsigned part[SF_CUDA_THREADS];
  unsigned found = 0;
  SF_CUDA_FOR_EACH(i, o.rows * o.cols) {
    const float v = o.x[i / o.cols * o.ld + i % o.cols];
    const uint32_t bits = __float_as_uint(v), size = bits & 0x7fffffffu;
    if ((bits & 0xffffu) != 0 || (size != 0 && size < 0x00800000u)) found |= NOT_BF16;
    if (__float_as_uint(sf_f16_round(v)) != bits) found |= NOT_F16;
  }
  part[threadIdx.x] = found;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (unsigned i = 1; i < SF_CUDA_THREADS; i++) found |= part[i];
  parts[blockIdx.x] = found;
}

/* The narrowest format that holds both operands. */
static enum sf_dtype common_format(struct sf_cuda_call *call, const struct operand *a, const struct operand *b) {
  const unsigned a_blocks = sf_cuda_blocks(a->rows * a->cols, SF_CUDA_THREADS),
                 b_blocks = sf_cuda_blocks(b->rows * b->cols, SF_CUDA_THREADS);
  unsigned *parts = (unsigned *)sf_cuda_scratch(call, (a_blocks + b_blocks) * sizeof *parts), found = 0;
  SF_CUDA_EACH(call, classify_kernel, a->rows * a->cols, parts, *a);
  SF_CUDA_EACH(call, classify_kernel, b->rows * b->cols, parts + a_blocks, *b);
  sf_cuda_wait(call);
  for (unsigned i = 0; i < a_blocks + b_blocks; i++) found |= parts[i];
  return found == (NOT_BF16 | NOT_F16) ? SF_F32 : found & NOT_BF16 ? SF_F16 : SF_BF16;
}

__global__ static void copy_kernel(void *out, int64_t ld, struct operand o, enum sf_dtype format) {
  SF_CUDA_FOR_EACH(i, o.rows * o.cols) {
    const int64_t to = i / o.cols * ld + i % o.cols;
    const float v = o.x[i / o.cols * o.ld + i % o.cols];
    if (format == SF_F32)
      ((float *)out)[to] = v;
    else
      ((uint16_t *)out)[to] = format == SF_BF16 ? sf_bf16_bits(v) : sf_f16_bits(v);
  }
}

static int64_t copy_ld(const struct operand *o) { return (o->cols + COPY_ALIGN - 1) / COPY_ALIGN * COPY_ALIGN; }

/* Takes scratch if the GPU has no memory of its own left: the product's bits depend only on format and leading dimension. NULL: neither has
 * room. */
static void *copy_room(struct sf_cuda_call *call, struct sf_cuda_room *room, int64_t size_bytes) {
  void *memory = sf_cuda_room_of(room, (size_t)size_bytes);
  return memory ? memory : sf_arena_alloc(call->cuda->staging, (size_t)size_bytes);
}

/* Whether the product is large and there is room for copies of its operands; then *g reads those. */
static bool bring(struct sf_cuda_call *call, struct sf_cuda_product *g) {
  if ((double)g->m * (double)g->n * (double)g->k < COPY_FROM) return false;
  const struct operand a = {(const float *)g->a, g->lda, g->trans_a ? g->k : g->m, g->trans_a ? g->m : g->k};
  const struct operand b = {(const float *)g->b, g->ldb, g->trans_b ? g->n : g->k, g->trans_b ? g->k : g->n};
  const enum sf_dtype format = common_format(call, &a, &b);
  const int64_t lda = copy_ld(&a), ldb = copy_ld(&b), number = format == SF_F32 ? 4 : 2;
  struct sf_cuda_room *rooms = call->cuda->gemm_rooms;
  void *a_copy = copy_room(call, &rooms[0], a.rows * lda * number), *b_copy = copy_room(call, &rooms[1], b.rows * ldb * number);
  if (a_copy == NULL || b_copy == NULL) return false;
  SF_CUDA_EACH(call, copy_kernel, a.rows * a.cols, a_copy, lda, a, format);
  SF_CUDA_EACH(call, copy_kernel, b.rows * b.cols, b_copy, ldb, b, format);
  g->format = format;
  g->a = a_copy, g->lda = lda, g->b = b_copy, g->ldb = ldb;
  return true;
}

/* --- the operation ----------------------------------------------------------------------------------------------------- */

/* c = round(alpha product [+ c]); the product may be c itself. */
__global__ static void finish_kernel(float *c, int64_t ldc, const float *product, int64_t ldp, int64_t m, int64_t n, float alpha,
                                     bool accumulate, enum sf_dtype store) {
  SF_CUDA_FOR_EACH(i, m * n) {
    float *at = c + i / n * ldc + i % n;
    const float scaled = product ? alpha * product[i / n * ldp + i % n] : 0.0f;
    *at = sf_round(!accumulate ? scaled : product ? *at + scaled : *at, store);
  }
}

static void multiply(struct sf_cuda_call *call, const struct sf_cuda_product *g) {
  struct sf_cuda_product brought = *g;
  if (bring(call, &brought) && sf_cuda_multiply(call->cuda, &brought)) return;
  if (!sf_cuda_multiply(call->cuda, g)) sf_cuda_tiles_run<struct sf_cuda_fused_chain>(g, call->cuda->stream);
}

void sf_cuda_gemm(struct sf_device *dev, const struct sf_gemm *g, enum sf_dtype store) {
  if (g->m == 0 || g->n == 0) return;
  SF_ASSERT_LE(g->trans_a ? g->m : g->k, g->lda);
  SF_ASSERT_LE(g->trans_b ? g->k : g->n, g->ldb);
  SF_ASSERT_LE(g->n, g->ldc);
  struct sf_cuda_call call(dev);
  struct sf_cuda_product product = {g->trans_a, g->trans_b, g->m, g->n, g->k, NULL, NULL, g->lda, g->ldb, SF_F32, NULL, g->ldc};
  product.a = sf_cuda_in(&call, g->a, sf_cuda_span(g->trans_a ? g->k : g->m, g->trans_a ? g->m : g->k, g->lda));
  product.b = sf_cuda_in(&call, g->b, sf_cuda_span(g->trans_b ? g->n : g->k, g->trans_b ? g->k : g->n, g->ldb));
  float *c = sf_cuda_inout(&call, g->c, sf_cuda_span(g->m, g->n, g->ldc));
  product.c = c;
  if (g->accumulate && g->k > 0) {
    const size_t size_bytes = (size_t)(g->m * g->n) * sizeof(float);
    product.ldc = g->n;
    product.c = sf_cuda_room_of(&call.cuda->gemm_rooms[2], size_bytes);
    if (product.c == NULL) product.c = sf_cuda_scratch(&call, size_bytes);
  }
  if (g->k > 0) multiply(&call, &product);
  const bool finished = g->k > 0 && !g->accumulate && g->alpha == 1.0f && store == SF_F32;
  if (!finished)
    SF_CUDA_EACH(&call, finish_kernel, g->m * g->n, c, g->ldc, g->k > 0 ? (const float *)product.c : NULL, product.ldc, g->m, g->n,
                 g->alpha, g->accumulate, store);
}
