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

/* Four numbers that one instruction loads: otherwise too few bytes are under way to keep the memory busy. */
struct alignas(16) quad { float x[4]; };
struct alignas(8) narrow_quad { uint16_t x[4]; };
enum { QUAD = 4 };

static bool is_quads(const void *at) { return (uintptr_t)at % sizeof(struct quad) == 0; }

/* Where element i of the rows one after the other lies. A division costs more than reading the element. */
__device__ static inline int64_t place_of(int64_t i, int64_t cols, int64_t ld) {
  if (ld == cols) return i;
  const int64_t row = (uint64_t)(i | cols) >> 32 == 0 ? (int64_t)((uint32_t)i / (uint32_t)cols) : i / cols;
  return row * ld + (i - row * cols);
}

/* --- copies of operands ------------------------------------------------------------------------------------------------ */

struct operand { /* as it lies */
  const float *x;
  int64_t ld, rows, cols;
};

struct copy { /* of an operand */
  struct operand from;
  void *to; /* NULL: none */
  int64_t ld;
  bool quads; /* both are dense, and `from` begins where a quad may */
};

enum { NOT_BF16 = 1, NOT_F16 = 2, NEITHER = NOT_BF16 | NOT_F16 };

/* The formats that do not hold the number. Subnormal numbers of bf16 stay in fp32. */
__device__ static inline unsigned misfits(float v) {
  const uint32_t bits = __float_as_uint(v), size = bits & 0x7fffffffu;
  const unsigned bf16 = (bits & 0xffffu) != 0 || (size != 0 && size < 0x00800000u) ? NOT_BF16 : 0;
  return bf16 | (__float_as_uint(sf_f16_round(v)) != bits ? NOT_F16 : 0);
}

__device__ static inline uint16_t narrow(float v, enum sf_dtype format) { return format == SF_BF16 ? sf_bf16_bits(v) : sf_f16_bits(v); }

__device__ static inline void store_one(const struct copy *c, int64_t i, float v, enum sf_dtype format) {
  const int64_t to = place_of(i, c->from.cols, c->ld);
  if (format == SF_F32)
    ((float *)c->to)[to] = v;
  else
    ((uint16_t *)c->to)[to] = narrow(v, format);
}

__device__ static inline void store_quad(const struct copy *c, int64_t i, const struct quad *v, enum sf_dtype format) {
  struct narrow_quad packed;
  if (format == SF_F32) {
    ((struct quad *)c->to)[i] = *v;
    return;
  }
  for (int j = 0; j < QUAD; j++) packed.x[j] = narrow(v->x[j], format);
  ((struct narrow_quad *)c->to)[i] = packed;
}

/* `found` of all threads, left in *part by the first. */
__device__ static inline void join_found(unsigned *part, unsigned found) {
  __shared__ unsigned parts[SF_CUDA_THREADS];
  parts[threadIdx.x] = found;
  __syncthreads();
  for (unsigned width = SF_CUDA_THREADS / 2; width > 0; width /= 2) {
    if (threadIdx.x < width) parts[threadIdx.x] |= parts[threadIdx.x + width];
    __syncthreads();
  }
  if (threadIdx.x == 0) *part = parts[0];
}

/* Copies numbers in a format, and finds the formats that do not hold all of them: each block leaves its part in parts, unless that is
 * NULL. Goes on only as long as the copy or what is found may still be of use. */
__global__ static void copy_kernel(unsigned *parts, struct copy c, enum sf_dtype format) {
  const unsigned misfit = parts == NULL || format == SF_F32 ? 0 : format == SF_BF16 ? NOT_BF16 : NOT_F16;
  unsigned found = parts == NULL ? NEITHER : 0;
  bool copies = c.to != NULL;
  SF_CUDA_FOR_EACH(i, c.from.rows * c.from.cols / (c.quads ? QUAD : 1)) {
    if (!copies && found == NEITHER) break;
    if (c.quads) {
      const struct quad v = ((const struct quad *)c.from.x)[i];
      for (int j = 0; j < QUAD && found != NEITHER; j++) found |= misfits(v.x[j]);
      copies = copies && (found & misfit) == 0;
      if (copies) store_quad(&c, i, &v, format);
    } else {
      const float v = c.from.x[place_of(i, c.from.cols, c.from.ld)];
      if (found != NEITHER) found |= misfits(v);
      copies = copies && (found & misfit) == 0;
      if (copies) store_one(&c, i, v, format);
    }
  }
  if (parts != NULL) join_found(&parts[blockIdx.x], found);
}

static int64_t copy_work(const struct copy *c) { return c->from.rows * c->from.cols / (c->quads ? QUAD : 1); }

/* Enqueues both copies, without looking for formats. */
static void copy(struct sf_cuda_call *call, const struct copy copies[2], enum sf_dtype format) {
  for (int i = 0; i < 2; i++) SF_CUDA_EACH(call, copy_kernel, copy_work(&copies[i]), NULL, copies[i], format);
}

/* Copies as well, where there is room. Returns the narrowest format that holds both operands; the copies are good if it is `format`. */
static enum sf_dtype copy_and_check(struct sf_cuda_call *call, const struct copy copies[2], enum sf_dtype format) {
  unsigned blocks[2], found = 0;
  for (int i = 0; i < 2; i++) blocks[i] = sf_cuda_blocks(copy_work(&copies[i]), SF_CUDA_THREADS);
  unsigned *parts = (unsigned *)sf_cuda_scratch(call, (blocks[0] + blocks[1]) * sizeof *parts), *part = parts;
  for (int i = 0; i < 2; part += blocks[i++]) SF_CUDA_EACH(call, copy_kernel, copy_work(&copies[i]), part, copies[i], format);
  sf_cuda_wait(call);
  for (unsigned i = 0; i < blocks[0] + blocks[1]; i++) found |= parts[i];
  return found == NEITHER ? SF_F32 : found & NOT_BF16 ? SF_F16 : SF_BF16;
}

/* Takes scratch if the GPU has no memory of its own left: the product's bits depend only on format and leading dimension. false: neither
 * has room for both, and there are no copies. */
static bool make_room(struct sf_cuda_call *call, struct copy copies[2], enum sf_dtype format) {
  const size_t number = format == SF_F32 ? sizeof(float) : sizeof(uint16_t);
  for (int i = 0; i < 2; i++) {
    const size_t size_bytes = (size_t)(copies[i].from.rows * copies[i].ld) * number;
    copies[i].to = sf_cuda_room_of(&call->cuda->gemm_rooms[i], size_bytes);
    if (copies[i].to == NULL) copies[i].to = sf_arena_alloc(call->cuda->staging, size_bytes);
  }
  if (copies[0].to != NULL && copies[1].to != NULL) return true;
  copies[0].to = copies[1].to = NULL;
  return false;
}

static struct copy copy_of(const void *x, int64_t ld, int64_t rows, int64_t cols) {
  const int64_t copy_ld = (cols + COPY_ALIGN - 1) / COPY_ALIGN * COPY_ALIGN;
  return {{(const float *)x, ld, rows, cols}, NULL, copy_ld, ld == cols && copy_ld == cols && is_quads(x)};
}

/* Whether the product is large and there is room for copies of its operands; then *g reads those. Operands of at most 32 MiB come over
 * the bus: they are read once if they have the format that the last large product had, else twice. */
static bool bring(struct sf_cuda_call *call, struct sf_cuda_product *g) {
  if ((double)g->m * (double)g->n * (double)g->k < COPY_FROM) return false;
  const enum sf_dtype guess = call->cuda->gemm_format;
  struct copy copies[2] = {copy_of(g->a, g->lda, g->trans_a ? g->k : g->m, g->trans_a ? g->m : g->k),
                           copy_of(g->b, g->ldb, g->trans_b ? g->n : g->k, g->trans_b ? g->k : g->n)};
  const bool copied = make_room(call, copies, guess);
  const enum sf_dtype format = copy_and_check(call, copies, guess);
  call->cuda->gemm_format = format;
  if (!copied || format != guess) {
    if (!make_room(call, copies, format)) return false;
    copy(call, copies, format);
  }
  g->format = format;
  g->a = copies[0].to, g->lda = copies[0].ld, g->b = copies[1].to, g->ldb = copies[1].ld;
  return true;
}

/* --- the operation ----------------------------------------------------------------------------------------------------- */

struct finish { /* c = round(alpha product [+ c]); the product may be c itself, or NULL: zeros */
  float *c;
  const float *product;
  int64_t ldc, ldp, m, n;
  float alpha;
  bool accumulate;
  enum sf_dtype store;
};

__device__ static inline float finished(const struct finish *f, float c, float product) {
  const float scaled = f->product ? f->alpha * product : 0.0f;
  return sf_round(!f->accumulate ? scaled : f->product ? c + scaled : c, f->store);
}

__global__ static void finish_kernel(struct finish f) {
  SF_CUDA_FOR_EACH(i, f.m * f.n) {
    float *at = f.c + place_of(i, f.n, f.ldc);
    *at = finished(&f, f.accumulate ? *at : 0.0f, f.product ? f.product[place_of(i, f.n, f.ldp)] : 0.0f);
  }
}

__global__ static void finish_quads_kernel(struct finish f) {
  SF_CUDA_FOR_EACH(i, f.m * f.n / QUAD) {
    const struct quad zeros = {{0, 0, 0, 0}}, product = f.product ? ((const struct quad *)f.product)[i] : zeros;
    struct quad *at = (struct quad *)f.c + i, c = f.accumulate ? *at : zeros;
    for (int j = 0; j < QUAD; j++) c.x[j] = finished(&f, c.x[j], product.x[j]);
    *at = c;
  }
}

static void finish(struct sf_cuda_call *call, const struct finish *f) {
  const bool dense = f->ldc == f->n && (f->product == NULL || f->ldp == f->n);
  if (dense && f->m * f->n % QUAD == 0 && is_quads(f->c) && is_quads(f->product))
    SF_CUDA_EACH(call, finish_quads_kernel, f->m * f->n / QUAD, *f);
  else
    SF_CUDA_EACH(call, finish_kernel, f->m * f->n, *f);
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
  if (g->k > 0 && !g->accumulate && g->alpha == 1.0f && store == SF_F32) return;
  const float *terms = g->k > 0 ? (const float *)product.c : NULL;
  const struct finish rest = {c, terms, g->ldc, product.ldc, g->m, g->n, g->alpha, g->accumulate, store};
  finish(&call, &rest);
}
