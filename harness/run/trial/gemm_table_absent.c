/* Plain loops, for builds without BLAS. */
#include "harness/run/trial/gemm_table.h"

#define DEFINE_LOOPS(name, real)                                                                                                           \
  static void name(const struct sf_product *p) {                                                                                           \
    const real *a = p->a, *b = p->b;                                                                                                       \
    for (int64_t i = 0; i < p->m; i++) {                                                                                                   \
      for (int64_t j = 0; j < p->n; j++) {                                                                                                 \
        real sum = 0;                                                                                                                      \
        for (int64_t q = 0; q < p->k; q++)                                                                                                 \
          sum += (p->trans_a ? a[q * p->lda + i] : a[i * p->lda + q]) * (p->trans_b ? b[j * p->ldb + q] : b[q * p->ldb + j]);              \
        ((real *)p->c)[i * p->ldc + j] = sum;                                                                                              \
      }                                                                                                                                    \
    }                                                                                                                                      \
  }

DEFINE_LOOPS(multiply_floats, float)
DEFINE_LOOPS(multiply_doubles, double)

static void multiply(const struct sf_product *p) {
  if (p->fp64)
    multiply_doubles(p);
  else
    multiply_floats(p);
}

const struct sf_gemm_table sf_run_gemm_table = {.multiply = multiply};
