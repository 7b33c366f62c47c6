/* Plain loops, for builds without BLAS. */
#include "harness/run/trial/gemm_table.h"

#define DEFINE_GEMM(name, real)                                                                                                          \
  static void name(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const real *a, int64_t lda, const real *b, int64_t ldb, \
                   real *c, int64_t ldc) {                                                                                               \
    for (int64_t i = 0; i < m; i++) {                                                                                                    \
      for (int64_t j = 0; j < n; j++) {                                                                                                  \
        real sum = 0;                                                                                                                    \
        for (int64_t p = 0; p < k; p++) sum += (trans_a ? a[p * lda + i] : a[i * lda + p]) * (trans_b ? b[j * ldb + p] : b[p * ldb + j]); \
        c[i * ldc + j] = sum;                                                                                                            \
      }                                                                                                                                  \
    }                                                                                                                                    \
  }

DEFINE_GEMM(sgemm, float)
DEFINE_GEMM(dgemm, double)

const struct sf_gemm_table sf_run_gemm_table = {.sgemm = sgemm, .dgemm = dgemm};
