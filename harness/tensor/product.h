/* One matrix product of the host's matrices, as it is handed to whatever may compute it faster. */
#ifndef SF_TENSOR_PRODUCT_H
#define SF_TENSOR_PRODUCT_H

#include <stdbool.h>
#include <stdint.h>

/* c = op(a) op(b), row-major: floats, or doubles with fp64. */
struct sf_product {
  bool fp64, trans_a, trans_b;
  bool in_order; /* each number is a chain over ascending k from zero on, products and sums rounded one by one, not fused */
  int64_t m, n, k; /* > 0 */
  const void *a; int64_t lda;
  const void *b; int64_t ldb;
  void *c; int64_t ldc;
};

#endif
