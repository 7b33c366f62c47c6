#include "harness/run/trial/gemm_table.h"

#include "harness/base/assert.h"

#include <cblas.h>
#ifdef SF_SANITIZE
#include <sanitizer/asan_interface.h>
#endif

/* Before each product, as nothing else runs first in every process; it costs a comparison. With more threads than one, the others spin
 * between products and take the cores that other workers need. */
static void use_one_thread(void) {
  if (openblas_get_num_threads() != 1) openblas_set_num_threads(1);
}

/* What BLAS reads and writes is not seen by the sanitizers: they are asked here. */
static void check_rows(const void *rows, int64_t count, int64_t row_bytes, int64_t pitch_bytes) {
#ifdef SF_SANITIZE
  for (int64_t i = 0; i < count; i++) SF_ASSERT(__asan_region_is_poisoned((char *)rows + i * pitch_bytes, (size_t)row_bytes) == NULL);
#else
  (void)rows, (void)count, (void)row_bytes, (void)pitch_bytes;
#endif
}

static void check_operands(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const void *a, int64_t lda, const void *b,
                           int64_t ldb, const void *c, int64_t ldc, size_t size) {
  const int64_t bytes = (int64_t)size;
  check_rows(a, trans_a ? k : m, (trans_a ? m : k) * bytes, lda * bytes);
  check_rows(b, trans_b ? n : k, (trans_b ? k : n) * bytes, ldb * bytes);
  check_rows(c, m, n * bytes, ldc * bytes);
}

static CBLAS_TRANSPOSE trans(bool on) { return on ? CblasTrans : CblasNoTrans; }

static void sgemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b, int64_t ldb,
                  float *c, int64_t ldc) {
  use_one_thread();
  check_operands(trans_a, trans_b, m, n, k, a, lda, b, ldb, c, ldc, sizeof(float));
  cblas_sgemm(CblasRowMajor, trans(trans_a), trans(trans_b), (blasint)m, (blasint)n, (blasint)k, 1.0f, a, (blasint)lda, b, (blasint)ldb,
              0.0f, c, (blasint)ldc);
}

static void dgemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const double *a, int64_t lda, const double *b, int64_t ldb,
                  double *c, int64_t ldc) {
  use_one_thread();
  check_operands(trans_a, trans_b, m, n, k, a, lda, b, ldb, c, ldc, sizeof(double));
  cblas_dgemm(CblasRowMajor, trans(trans_a), trans(trans_b), (blasint)m, (blasint)n, (blasint)k, 1.0, a, (blasint)lda, b, (blasint)ldb, 0.0,
              c, (blasint)ldc);
}

const struct sf_gemm_table sf_run_gemm_table = {.sgemm = sgemm, .dgemm = dgemm};
