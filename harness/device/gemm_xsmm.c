/* GEMM by LIBXSMM 1.17: machine code made for one shape, 2 to 5 times as fast as OpenBLAS up to 512 x 512.
 *
 * Which code computes a shape depends on how often it was seen, but bits must not: a recomputed activation equals its first pass, and a
 * case gives the same numbers in any campaign. So a new kernel is used only if it gives the loops' bits on a probe; LIBXSMM keeps one
 * chain of fused multiply-adds per element, except where the columns leave a rest of a single vector (16 lanes) and it splits the chain.
 * Those shapes, rare shapes, and all shapes past KERNELS_MAX stay with the loops. Large shapes go to BLAS by their size alone.
 *
 * Making a kernel takes 70 us, so the third use of a shape makes it. LIBXSMM has no transposed B (its first operand, column-major):
 * B is transposed into scratch, 0.05-0.2 ns an element. */
#include "harness/base/alloc.h"
#include "harness/base/hash.h"
#include "harness/device/cpu.h"
#include "harness/device/vec.h"

#include <libxsmm.h>

enum { SLOTS = 16384, PROBES = 8, KERNELS_MAX = 4096, USES_BEFORE_KERNEL = 3, PROBE_FLOATS_MAX = 1 << 22, PROBE_ELEMENTS_MIN = 1024 };
/* m * n * k above which BLAS is no slower, measured: beyond it LIBXSMM's unblocked loops leave the cache. */
static const int64_t blas_work_min = (int64_t)640 * 640 * 640;

struct shape { int32_t m, n, k, lda, ldb, ldc, flags; };
enum slot_state { SLOT_EMPTY, SLOT_COUNTING, SLOT_KERNEL, SLOT_LOOPS };
struct slot {
  struct shape shape;
  enum slot_state state;
  int32_t uses;
  libxsmm_smmfunction kernel;
};
struct sf_xsmm {
  int32_t kernels;
  struct slot slots[SLOTS];
};

const bool sf_gemm_xsmm_built = true;

enum { FLAG_TRANS_A = 1, FLAG_ACCUMULATE = 2 };

static uint64_t shape_hash(const struct shape *s) {
  uint64_t mixed = (uint64_t)(uint32_t)s->m * UINT64_C(0x9e3779b97f4a7c15) + (uint32_t)s->n;
  mixed = mixed * UINT64_C(0xda942042e4dd58b5) + (uint32_t)s->k;
  mixed = mixed * UINT64_C(0x9e3779b97f4a7c15) + (uint32_t)s->lda;
  mixed = mixed * UINT64_C(0xda942042e4dd58b5) + ((uint64_t)(uint32_t)s->ldb << 2) + (uint32_t)s->flags;
  mixed = mixed * UINT64_C(0x9e3779b97f4a7c15) + (uint32_t)s->ldc;
  return sf_mix64(mixed);
}

/* The slot of a shape; a new one takes the place of the first counter or refusal among its probes; NULL when all hold kernels. */
static struct slot *slot_find(struct sf_xsmm *xsmm, const struct shape *shape) {
  const uint64_t hash = shape_hash(shape);
  struct slot *free_slot = NULL;
  for (uint64_t i = 0; i < PROBES; i++) {
    struct slot *slot = &xsmm->slots[(hash + i) % SLOTS];
    if (slot->state == SLOT_EMPTY) {
      free_slot = slot;
      break;
    }
    if (memcmp(&slot->shape, shape, sizeof *shape) == 0) return slot;
    if (!free_slot && slot->state != SLOT_KERNEL) free_slot = slot;
  }
  if (free_slot) *free_slot = (struct slot){*shape, SLOT_COUNTING, 0, NULL};
  return free_slot;
}

static libxsmm_smmfunction kernel_make(const struct shape *s) {
  const libxsmm_blasint lda = s->ldb, ldb = s->lda, ldc = s->ldc; /* row-major C = A B is column-major C' = B' A' */
  const float alpha = 1.0f, beta = s->flags & FLAG_ACCUMULATE ? 1.0f : 0.0f;
  const int flags = s->flags & FLAG_TRANS_A ? LIBXSMM_GEMM_FLAG_TRANS_B : LIBXSMM_GEMM_FLAG_NONE;
  return libxsmm_smmdispatch(s->n, s->m, s->k, &lda, &ldb, &ldc, &alpha, &beta, &flags, NULL);
}

static void fill_probe(float *values, int64_t count, uint64_t seed) {
  for (int64_t i = 0; i < count; i++)
    values[i] = (float)(int32_t)(sf_mix64(seed + (uint64_t)i) & 0xffffff) * 0x1p-23f - 1.0f;
}

/* One probe in `memory`, the rounds of which differ in their numbers. */
static bool probe_agrees(struct sf_cpu *cpu, const struct sf_gemm *g, libxsmm_smmfunction kernel, float *memory, int64_t floats) {
  const int64_t a_count = (g->trans_a ? g->k : g->m) * g->lda, b_count = g->k * g->ldb, c_count = g->m * g->ldc;
  struct sf_gemm probe = *g;
  float *a = memory, *b = a + a_count, *c = b + b_count, *expected = c + c_count;
  bool same = true;
  for (int64_t round = 0, elements = 0; same && elements < PROBE_ELEMENTS_MIN; round++, elements += g->m * g->n) {
    fill_probe(memory, floats - c_count, (uint64_t)(round * floats));
    memcpy(expected, c, (size_t)c_count * sizeof *c);
    probe.a = a;
    probe.b = b;
    probe.c = expected;
    sf_gemm_loops(cpu, &probe);
    kernel(b, a, c);
    same = memcmp(c, expected, (size_t)c_count * sizeof *c) == 0;
  }
  return same;
}

/* Do kernel and loops agree in every bit of C? False also when memory for the probe is missing. */
static bool kernel_agrees(struct sf_cpu *cpu, const struct sf_gemm *g, libxsmm_smmfunction kernel) {
  const int64_t floats = (g->trans_a ? g->k : g->m) * g->lda + g->k * g->ldb + 2 * g->m * g->ldc;
  float *memory = floats <= PROBE_FLOATS_MAX ? sf_alloc((size_t)floats * sizeof *memory) : NULL;
  const bool same = memory && probe_agrees(cpu, g, kernel, memory, floats);
  sf_free(memory);
  return same;
}

/* g's B is not transposed here. */
static libxsmm_smmfunction kernel_for(struct sf_cpu *cpu, const struct sf_gemm *g) {
  const struct shape shape = {(int32_t)g->m,   (int32_t)g->n,   (int32_t)g->k, (int32_t)g->lda, (int32_t)g->ldb,
                              (int32_t)g->ldc, (g->trans_a ? FLAG_TRANS_A : 0) | (g->accumulate ? FLAG_ACCUMULATE : 0)};
  struct slot *slot = slot_find(cpu->xsmm, &shape);
  if (!slot) return NULL;
  if (slot->state != SLOT_COUNTING || ++slot->uses < USES_BEFORE_KERNEL) return slot->kernel;
  slot->state = SLOT_LOOPS;
  if (cpu->xsmm->kernels >= KERNELS_MAX) return NULL;
  const libxsmm_smmfunction kernel = kernel_make(&shape);
  cpu->xsmm->kernels++;
  if (!kernel || !kernel_agrees(cpu, g, kernel)) return NULL;
  slot->kernel = kernel;
  slot->state = SLOT_KERNEL;
  return kernel;
}

static bool fits_int32(const struct sf_gemm *g) {
  return g->m <= INT32_MAX && g->n <= INT32_MAX && g->k <= INT32_MAX && g->lda <= INT32_MAX && g->ldb <= INT32_MAX && g->ldc <= INT32_MAX;
}

static void gemm_xsmm(struct sf_cpu *cpu, const struct sf_gemm *g) {
  if (sf_gemm_blas_core && g->m * g->n * g->k >= blas_work_min) {
    sf_gemm_blas_core(cpu, g);
    return;
  }
  struct sf_gemm plain = *g;
  if (g->trans_b) {
    plain.trans_b = false;
    plain.b = cpu->pack;
    plain.ldb = (g->n + SF_LANES - 1) / SF_LANES * SF_LANES;
    if (g->k * plain.ldb > SF_GEMM_PACK_FLOATS) {
      sf_gemm_loops(cpu, g);
      return;
    }
  }
  const libxsmm_smmfunction kernel = fits_int32(&plain) ? kernel_for(cpu, &plain) : NULL;
  if (!kernel) {
    sf_gemm_loops(cpu, g);
    return;
  }
  if (g->trans_b) sf_gemm_transpose(cpu->pack, plain.ldb, g->b, g->ldb, g->n, g->k);
  kernel(plain.b, plain.a, plain.c);
}

enum sf_status sf_gemm_xsmm_setup(struct sf_cpu *cpu) {
  if (sf_gemm_blas_built) {
    const enum sf_status status = sf_gemm_blas_setup(cpu);
    if (status != SF_OK) return status;
  }
  libxsmm_init();
  cpu->xsmm = sf_alloc(sizeof *cpu->xsmm);
  if (!cpu->xsmm) return SF_ENOMEM;
  cpu->core = gemm_xsmm;
  cpu->ops.name = "cpu-xsmm";
  return SF_OK;
}

void sf_gemm_xsmm_teardown(struct sf_cpu *cpu) { sf_free(cpu->xsmm); }
