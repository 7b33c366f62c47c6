#include "harness/run/trial/gemm_table.h"

#include "harness/base/assert.h"

#include <cblas.h>
#ifdef SF_SANITIZE
#include <sanitizer/asan_interface.h>
#endif

/* Called before each product, because no other code runs first in every process; it costs a comparison. With more than one thread, the
 * others spin between products and take the cores that other processes need. */
static void use_one_thread(void) {
  if (openblas_get_num_threads() != 1) openblas_set_num_threads(1);
}

/* The sanitizers do not see what BLAS reads and writes, so this asks them. */
static void check_rows(const void *rows, int64_t count, int64_t row_bytes, int64_t pitch_bytes) {
#ifdef SF_SANITIZE
  for (int64_t i = 0; i < count; i++) SF_ASSERT(__asan_region_is_poisoned((char *)rows + i * pitch_bytes, (size_t)row_bytes) == NULL);
#else
  (void)rows, (void)count, (void)row_bytes, (void)pitch_bytes;
#endif
}

static void check_operands(const struct sf_product *p) {
  const int64_t bytes = (int64_t)(p->fp64 ? sizeof(double) : sizeof(float));
  check_rows(p->a, p->trans_a ? p->k : p->m, (p->trans_a ? p->m : p->k) * bytes, p->lda * bytes);
  check_rows(p->b, p->trans_b ? p->n : p->k, (p->trans_b ? p->k : p->n) * bytes, p->ldb * bytes);
  check_rows(p->c, p->m, p->n * bytes, p->ldc * bytes);
}

static CBLAS_TRANSPOSE trans(bool on) { return on ? CblasTrans : CblasNoTrans; }

static void multiply(const struct sf_product *p) {
  const blasint m = (blasint)p->m, n = (blasint)p->n, k = (blasint)p->k, lda = (blasint)p->lda, ldb = (blasint)p->ldb,
                ldc = (blasint)p->ldc;
  use_one_thread();
  check_operands(p);
  if (p->fp64)
    cblas_dgemm(CblasRowMajor, trans(p->trans_a), trans(p->trans_b), m, n, k, 1.0, p->a, lda, p->b, ldb, 0.0, p->c, ldc);
  else
    cblas_sgemm(CblasRowMajor, trans(p->trans_a), trans(p->trans_b), m, n, k, 1.0f, p->a, lda, p->b, ldb, 0.0f, p->c, ldc);
}

const struct sf_gemm_table sf_run_gemm_table = {.multiply = multiply};
