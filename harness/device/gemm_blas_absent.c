/* A build without OpenBLAS. */
#include "harness/device/cpu.h"

const bool sf_gemm_blas_built = false;

void sf_gemm_pick_kernels(char **argv) { (void)argv; }

enum sf_status sf_gemm_blas_reserve(struct sf_error *error) {
  (void)error;
  return SF_OK;
}

enum sf_status sf_gemm_blas_setup(struct sf_cpu *cpu) {
  (void)cpu;
  return SF_ENOTSUP;
}
