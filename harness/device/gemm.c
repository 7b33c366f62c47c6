/* What the three GEMM cores share: empty shapes, alpha, rounding to the stored format.
 * Error: bound (k + 2) u (|alpha| sum |a b| + |c|) before storing; worst seen in the contract suite 0.72 of it (small k). */
#include "harness/base/assert.h"
#include "harness/device/cpu.h"
#include "harness/device/vec.h"

static void scale_round(float *c, int64_t ldc, int64_t m, int64_t n, float alpha, enum sf_dtype store) {
  if (alpha == 1.0f && store == SF_F32) return;
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j += SF_LANES) {
      float *at = c + i * ldc + j;
      sf_vec_store(at, n - j, sf_vec_round(alpha * sf_vec_load(at, n - j), store));
    }
}

static void add_scaled(float *c, int64_t ldc, const float *product, int64_t m, int64_t n, float alpha, enum sf_dtype store) {
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j += SF_LANES) {
      float *at = c + i * ldc + j;
      sf_vec_store(at, n - j, sf_vec_round(sf_vec_load(at, n - j) + alpha * sf_vec_load(product + i * n + j, n - j), store));
    }
}

/* c += alpha a b needs the finished product, which is made block by block in scratch. */
static void gemm_accumulate_scaled(struct sf_cpu *cpu, const struct sf_gemm *g, enum sf_dtype store) {
  const int64_t block_cols = g->n < 256 ? g->n : 256, block_rows = SF_GEMM_BLOCK_FLOATS / block_cols;
  for (int64_t i = 0; i < g->m; i += block_rows)
    for (int64_t j = 0; j < g->n; j += block_cols) {
      struct sf_gemm part = *g;
      part.m = g->m - i < block_rows ? g->m - i : block_rows;
      part.n = g->n - j < block_cols ? g->n - j : block_cols;
      part.a += g->trans_a ? i : i * g->lda;
      part.b += g->trans_b ? j * g->ldb : j;
      part.c = cpu->block;
      part.ldc = part.n;
      part.accumulate = false;
      cpu->core(cpu, &part);
      add_scaled(g->c + i * g->ldc + j, g->ldc, cpu->block, part.m, part.n, g->alpha, store);
    }
}

static void clear(const struct sf_gemm *g) {
  for (int64_t i = 0; i < g->m; i++) memset(g->c + i * g->ldc, 0, (size_t)g->n * sizeof(float));
}

void sf_cpu_gemm(struct sf_device *dev, const struct sf_gemm *g, enum sf_dtype store) {
  struct sf_cpu *cpu = dev->impl;
  if (g->m == 0 || g->n == 0) return;
  SF_ASSERT_LE(g->trans_a ? g->m : g->k, g->lda);
  SF_ASSERT_LE(g->trans_b ? g->k : g->n, g->ldb);
  SF_ASSERT_LE(g->n, g->ldc);
  if (g->k > 0 && g->accumulate && g->alpha != 1.0f) {
    gemm_accumulate_scaled(cpu, g, store);
    return;
  }
  if (g->k > 0)
    cpu->core(cpu, g);
  else if (!g->accumulate)
    clear(g);
  scale_round(g->c, g->ldc, g->m, g->n, g->k > 0 ? g->alpha : 1.0f, store);
}
