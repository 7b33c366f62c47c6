/* Matrix products of a library, by a small table, so that a test can bring its own. blas.cu: cuBLASLt, found when the device is made. */
#ifndef SF_DEVICE_CUDA_BLAS_CUH
#define SF_DEVICE_CUDA_BLAS_CUH

extern "C" {
#include "harness/base/status.h"
#include "harness/spec/dtype.h"
}

#include <cuda_runtime.h>

/* c = op(a) op(b), row-major, in device memory. a and b are held in `format`: fp32, or bf16 and fp16 in two bytes each; c is fp32. Or all
 * three are fp64. */
struct sf_cuda_product {
  bool trans_a, trans_b;
  int64_t m, n, k; /* > 0 */
  const void *a, *b;
  int64_t lda, ldb;
  enum sf_dtype format;
  void *c;
  int64_t ldc;
};

struct sf_cuda_blas {
  /* Enqueues the product: exact products, sums in fp32 (fp64: fused or not), the same bits for the same call. false: it has none for this
   * call. */
  bool (*multiply)(struct sf_cuda_blas *blas, const struct sf_cuda_product *product, cudaStream_t stream);
  void (*destroy)(struct sf_cuda_blas *blas);
};

/* SF_ENODEVICE: the library is not there, or does not start; the error says why. SF_ENOMEM. */
enum sf_status sf_cuda_blas_create(struct sf_cuda_blas **out, struct sf_error *error) SF_MUST_USE;

#endif
