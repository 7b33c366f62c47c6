/* The matrix products that the reference is given. */
#ifndef SF_RUN_GEMM_TABLE_H
#define SF_RUN_GEMM_TABLE_H

#include "harness/device/device.h"
#include "oracles/reference/reference.h"

/* OpenBLAS on one thread; plain loops where the build has no BLAS (gemm_table_absent.c). */
extern const struct sf_gemm_table sf_run_gemm_table;

/* The same, but large products go to the device if it takes any (sf_device.product). Borrows the device. */
struct sf_gemm_table sf_run_gemm_table_on(struct sf_device *device);
/* Whether a product is so large that copying its operands to a GPU and back costs less than computing it here. */
bool sf_run_product_pays(const struct sf_product *product);

#endif
