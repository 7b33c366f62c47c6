/* GEMM by OpenBLAS. Its kernels block over k, so the order of a sum depends on the shape, but on nothing else: one thread, packed
 * panels. */
#include "harness/base/assert.h"
#include "harness/device/cpu.h"

#include <cblas.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const bool sf_gemm_blas_built = true;

static void gemm_blas(struct sf_cpu *cpu, const struct sf_gemm *g) {
  (void)cpu;
  SF_ASSERT(g->m <= INT32_MAX && g->n <= INT32_MAX && g->k <= INT32_MAX);
  SF_ASSERT(g->lda <= INT32_MAX && g->ldb <= INT32_MAX && g->ldc <= INT32_MAX);
  const CBLAS_TRANSPOSE trans_a = g->trans_a ? CblasTrans : CblasNoTrans, trans_b = g->trans_b ? CblasTrans : CblasNoTrans;
  cblas_sgemm(CblasRowMajor, trans_a, trans_b, (int)g->m, (int)g->n, (int)g->k, 1.0f, g->a, (int)g->lda, g->b, (int)g->ldb,
              g->accumulate ? 1.0f : 0.0f, g->c, (int)g->ldc);
}

void sf_gemm_pick_kernels(char **argv) {
#if defined(__x86_64__)
  const char *own = openblas_get_corename();
  if (getenv("OPENBLAS_CORETYPE") != NULL || strcmp(own, "Haswell") == 0 || strcmp(own, "Zen") == 0 || !__builtin_cpu_supports("avx2")) return;
  if (setenv("OPENBLAS_CORETYPE", "Haswell", 1) == 0) execv("/proc/self/exe", argv);
#else
  (void)argv;
#endif
}

enum sf_status sf_gemm_blas_setup(struct sf_cpu *cpu) {
  openblas_set_num_threads(1);
  cpu->core = gemm_blas;
  cpu->ops.name = "cpu-blas";
  return SF_OK;
}
