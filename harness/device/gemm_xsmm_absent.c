/* A build without LIBXSMM. */
#include "harness/device/cpu.h"

const bool sf_gemm_xsmm_built = false;

enum sf_status sf_gemm_xsmm_setup(struct sf_cpu *cpu) {
  (void)cpu;
  return SF_ENOTSUP;
}

void sf_gemm_xsmm_teardown(struct sf_cpu *cpu) { (void)cpu; }
