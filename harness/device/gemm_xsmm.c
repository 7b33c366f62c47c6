/* GEMM by LIBXSMM 1.17: machine code made for one shape.
 *
 * Which code computes a shape depends on how often it was seen, but bits must not: a recomputed activation equals its first pass, and a
 * case gives the same numbers in any campaign. So a new kernel is used only if it gives the loops' bits on a probe; LIBXSMM keeps one
 * chain of fused multiply-adds per element, except where the columns leave a rest of a single vector (16 lanes) and it splits the chain
 * (18 % of random shapes). Those shapes, rare ones, large ones and all past KERNELS_MAX stay with the loops: this variant and the loops
 * agree in every bit.
 *
 * Making a kernel takes 70 us and its probe as long again; it gains 0.1 to 1 us a call on the loops. So a shape gets one at its 256th use,
 * when the loops have cost about as much: campaigns draw far more shapes than they repeat that often. LIBXSMM has no transposed first
 * operand (column-major, so our B): B is transposed into scratch, 0.05-0.2 ns an element.
 *
 * A kernel stays until the process ends, in pages of its own: some 8 KiB. A campaign asks for ever more of them, which gain nothing:
 * those that its cases need most come first.
 *
 * Measured on a Zen 5 core, GFLOP/s of this / OpenBLAS 0.3.21 (which takes that core for a Haswell) / the loops: 16^3 154 / 46 / 110,
 * 32^3 229 / 86 / 200, 64^3 247 / 105 / 227, 96^3 250 / 112 / 229; LIBXSMM alone 128^3 229, 256^3 235, 512^3 178 where the loops have
 * 227, 226, 212. Transposed B: 32^3 176 / 75 / 150, 64^3 207 / 98 / 192. */
#include "harness/base/alloc.h"
#include "harness/base/hash.h"
#include "harness/device/cpu.h"
#include "harness/device/vec.h"

#include <inttypes.h>
#include <libxsmm.h>
#include <stdio.h>

enum { SLOTS = 4096, PROBES = 8, KERNELS_MAX = 128, USES_BEFORE_KERNEL = 256, PROBE_FLOATS_MAX = 1 << 22 };
/* From this m * n * k on a kernel gains less than 5 % on the loops; from 448^3 on, where they block for the cache, nothing. */
static const int64_t large_work = 1 << 20;

struct shape {
  int32_t m, n, k, lda, ldb, ldc, flags;
};
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

/* When the system gives no memory, LIBXSMM puts a kernel's code into memory that cannot be run. False also when that is not known. */
static bool is_runnable(const void *code) {
  FILE *maps = fopen("/proc/self/maps", "r");
  bool runnable = false;
  uintptr_t begin = 0, end = 0;
  char may[8], line[256];
  while (maps && !runnable && fgets(line, sizeof line, maps))
    runnable = sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %7s", &begin, &end, may) == 3 && (uintptr_t)code >= begin && (uintptr_t)code < end &&
               may[2] == 'x';
  if (maps) fclose(maps);
  return runnable;
}

static libxsmm_smmfunction kernel_make(const struct shape *s) {
  const libxsmm_blasint lda = s->ldb, ldb = s->lda, ldc = s->ldc; /* row-major C = A B is column-major C' = B' A' */
  const float alpha = 1.0f, beta = s->flags & FLAG_ACCUMULATE ? 1.0f : 0.0f;
  const int flags = s->flags & FLAG_TRANS_A ? LIBXSMM_GEMM_FLAG_TRANS_B : LIBXSMM_GEMM_FLAG_NONE;
  const libxsmm_smmfunction kernel = libxsmm_smmdispatch(s->n, s->m, s->k, &lda, &ldb, &ldc, &alpha, &beta, &flags, NULL);
  return is_runnable((const void *)(uintptr_t)kernel) ? kernel : NULL;
}

static void fill_probe(float *values, int64_t count) {
  for (int64_t i = 0; i < count; i++) values[i] = (float)(int32_t)(sf_mix64((uint64_t)i) & 0xffffff) * 0x1p-23f - 1.0f;
}

/* The number of rounds in which each element must agree. Two orders of a sum give the same float by chance in about 9 of 10 elements at k =
 * 2, 1 of 2 at k = 8, 1 of 5 at k = 32, and a kernel may split the chain of a single element only. */
static int64_t probe_rounds(int64_t k) { return k < 8 ? 256 : k < 32 ? 32 : 12; }

/* Round r reads A from r floats further on, so that every element is another sum each time. */
static bool probe_agrees(struct sf_cpu *cpu, const struct sf_gemm *g, libxsmm_smmfunction kernel, float *a, float *b, float *c) {
  const int64_t c_count = g->m * g->ldc, rounds = probe_rounds(g->k);
  float *start = c + c_count, *expected = start + c_count;
  struct sf_gemm probe = *g;
  bool same = true;
  for (int64_t r = 0; same && r < rounds; r++) {
    memcpy(c, start, (size_t)c_count * sizeof *c);
    memcpy(expected, start, (size_t)c_count * sizeof *c);
    probe.a = a + r;
    probe.b = b;
    probe.c = expected;
    sf_gemm_loops(cpu, &probe);
    kernel(b, a + r, c);
    same = memcmp(c, expected, (size_t)c_count * sizeof *c) == 0;
  }
  return same;
}

/* Do kernel and loops agree in every bit of C? False also when memory for the probe is missing. */
static bool kernel_agrees(struct sf_cpu *cpu, const struct sf_gemm *g, libxsmm_smmfunction kernel) {
  const int64_t a_count = (g->trans_a ? g->k : g->m) * g->lda + probe_rounds(g->k), b_count = g->k * g->ldb;
  const int64_t floats = a_count + b_count + 3 * g->m * g->ldc;
  float *memory = floats <= PROBE_FLOATS_MAX ? sf_alloc((size_t)floats * sizeof *memory) : NULL;
  if (!memory) return false;
  fill_probe(memory, floats);
  const bool same = probe_agrees(cpu, g, kernel, memory, memory + a_count, memory + a_count + b_count);
  sf_free(memory);
  return same;
}

/* g's B is not transposed here. */
static libxsmm_smmfunction kernel_for(struct sf_cpu *cpu, const struct sf_gemm *g) {
  const struct shape shape = {(int32_t)g->m,
                              (int32_t)g->n,
                              (int32_t)g->k,
                              (int32_t)g->lda,
                              (int32_t)g->ldb,
                              (int32_t)g->ldc,
                              (g->trans_a ? FLAG_TRANS_A : 0) | (g->accumulate ? FLAG_ACCUMULATE : 0)};
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
  struct sf_gemm plain = *g;
  if (g->trans_b) {
    plain.trans_b = false;
    plain.b = cpu->pack;
    plain.ldb = (g->n + SF_LANES - 1) / SF_LANES * SF_LANES;
  }
  const bool small = g->m * g->n * g->k < large_work && fits_int32(&plain) && !(g->trans_b && g->k * plain.ldb > SF_GEMM_PACK_FLOATS);
  const libxsmm_smmfunction kernel = small ? kernel_for(cpu, &plain) : NULL;
  if (!kernel) {
    sf_gemm_loops(cpu, g);
    return;
  }
  if (g->trans_b) sf_gemm_transpose(cpu->pack, plain.ldb, g->b, g->ldb, g->n, g->k);
  kernel(plain.b, plain.a, plain.c);
}

enum sf_status sf_gemm_xsmm_setup(struct sf_cpu *cpu) {
  libxsmm_init();
  cpu->xsmm = sf_alloc(sizeof *cpu->xsmm);
  if (!cpu->xsmm) return SF_ENOMEM;
  cpu->core = gemm_xsmm;
  cpu->ops.name = "cpu-xsmm";
  return SF_OK;
}

void sf_gemm_xsmm_teardown(struct sf_cpu *cpu) { sf_free(cpu->xsmm); }
