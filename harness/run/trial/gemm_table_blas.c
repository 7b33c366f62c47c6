#include "harness/run/trial/gemm_table.h"

#include <cblas.h>

/* Before each product, as nothing else runs first in every process; it costs a comparison. With more threads than one, the others spin between
 * products and take the cores that other workers need. */
static void use_one_thread(void) {
  if (openblas_get_num_threads() != 1) openblas_set_num_threads(1);
}

static CBLAS_TRANSPOSE trans(bool on) { return on ? CblasTrans : CblasNoTrans; }

static void sgemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b, int64_t ldb, float *c,
                  int64_t ldc) {
  use_one_thread();
  cblas_sgemm(CblasRowMajor, trans(trans_a), trans(trans_b), (blasint)m, (blasint)n, (blasint)k, 1.0f, a, (blasint)lda, b, (blasint)ldb, 0.0f, c,
              (blasint)ldc);
}

static void dgemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const double *a, int64_t lda, const double *b, int64_t ldb, double *c,
                  int64_t ldc) {
  use_one_thread();
  cblas_dgemm(CblasRowMajor, trans(trans_a), trans(trans_b), (blasint)m, (blasint)n, (blasint)k, 1.0, a, (blasint)lda, b, (blasint)ldb, 0.0, c,
              (blasint)ldc);
}

const struct sf_gemm_table sf_run_gemm_table = {.sgemm = sgemm, .dgemm = dgemm};
