#include "harness/run/gemm_table.h"

#include <cblas.h>

static CBLAS_TRANSPOSE trans(bool on) { return on ? CblasTrans : CblasNoTrans; }

static void sgemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b, int64_t ldb, float *c,
                  int64_t ldc) {
  cblas_sgemm(CblasRowMajor, trans(trans_a), trans(trans_b), (blasint)m, (blasint)n, (blasint)k, 1.0f, a, (blasint)lda, b, (blasint)ldb, 0.0f, c,
              (blasint)ldc);
}

static void dgemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const double *a, int64_t lda, const double *b, int64_t ldb, double *c,
                  int64_t ldc) {
  cblas_dgemm(CblasRowMajor, trans(trans_a), trans(trans_b), (blasint)m, (blasint)n, (blasint)k, 1.0, a, (blasint)lda, b, (blasint)ldb, 0.0, c,
              (blasint)ldc);
}

const struct sf_gemm_table sf_run_gemm_table = {sgemm, dgemm};
