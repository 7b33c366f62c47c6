/* Plain loops in the place of the library. One call in seven is refused, so that the device's own tiles run too. */
#include "harness/device/cuda/blas.cuh"

extern "C" {
#include "harness/base/alloc.h"
}

static float at(const void *x, int64_t i, enum sf_dtype format) {
  if (format == SF_F32) return ((const float *)x)[i];
  const uint16_t packed = ((const uint16_t *)x)[i];
  return format == SF_BF16 ? sf_bf16_value(packed) : sf_f16_value(packed);
}
static double at_wide(const void *x, int64_t i, enum sf_dtype) { return ((const double *)x)[i]; }

template <class T, T read(const void *, int64_t, enum sf_dtype)> static void loops(const struct sf_cuda_product *g) {
  for (int64_t i = 0; i < g->m; i++)
    for (int64_t j = 0; j < g->n; j++) {
      T sum = 0;
      for (int64_t p = 0; p < g->k; p++)
        sum += read(g->a, g->trans_a ? p * g->lda + i : i * g->lda + p, g->format) * read(g->b, g->trans_b ? j * g->ldb + p : p * g->ldb + j, g->format);
      ((T *)g->c)[i * g->ldc + j] = sum;
    }
}

static bool multiply(struct sf_cuda_blas *blas, const struct sf_cuda_product *g, cudaStream_t stream) {
  (void)blas, (void)stream;
  if ((g->m + g->n + g->k) % 7 == 0) return false;
  const struct sf_cuda_product product = *g;
  sf_emulated_enqueue_of([=]() { product.format == SF_F64 ? loops<double, at_wide>(&product) : loops<float, at>(&product); });
  return true;
}

static void destroy(struct sf_cuda_blas *blas) { sf_free(blas); }

enum sf_status sf_cuda_blas_create(struct sf_cuda_blas **out, struct sf_error *error) {
  struct sf_cuda_blas *blas = (struct sf_cuda_blas *)sf_alloc(sizeof *blas);
  if (blas == NULL) return sf_error_set(error, SF_ENOMEM, "%s", sf_status_text(SF_ENOMEM));
  *blas = {multiply, destroy};
  *out = blas;
  return SF_OK;
}
