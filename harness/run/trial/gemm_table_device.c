#include "harness/run/trial/gemm_table.h"

/* When a product is worth its copies to a GPU. A core multiplies and adds some 2^35 pairs a second (OpenBLAS, fp32, AVX-512), pageable
 * memory crosses the bus at some 2^32 bytes a second, and a call waits for 2^-12 s in all: 2^23 pairs, and 2^3 for each byte. These are
 * guesses in favour of the CPU until a GPU has measured them; a wrong one costs only time. */
enum { PAIRS_PER_CALL = 1 << 23, PAIRS_PER_BYTE = 1 << 3 };

bool sf_run_product_pays(const struct sf_product *p) {
  const double m = (double)p->m, n = (double)p->n, k = (double)p->k, number_bytes = p->fp64 ? sizeof(double) : sizeof(float);
  return m * n * k >= PAIRS_PER_CALL + PAIRS_PER_BYTE * number_bytes * (m * k + k * n + m * n);
}

static bool multiply_on(void *ctx, const struct sf_product *product) {
  struct sf_device *device = ctx;
  return sf_run_product_pays(product) && device->product(device, product);
}

struct sf_gemm_table sf_run_gemm_table_on(struct sf_device *device) {
  struct sf_gemm_table table = sf_run_gemm_table;
  if (device->product != NULL) table.faster = multiply_on, table.ctx = device;
  return table;
}
