#include "harness/device/cpu.h"

#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/device/vec.h"

static enum sf_status gemm_setup(struct sf_cpu *cpu, enum sf_cpu_gemm gemm) {
  if (gemm == SF_CPU_GEMM_XSMM) return sf_gemm_xsmm_setup(cpu);
  if (gemm == SF_CPU_GEMM_BLAS) return sf_gemm_blas_setup(cpu);
  cpu->core = sf_gemm_loops;
  cpu->ops.name = "cpu-loops";
  return SF_OK;
}

static void fill_table(struct sf_device_ops *ops) {
  ops->gemm = sf_cpu_gemm;
  sf_cpu_fill_elementwise(ops);
  sf_cpu_fill_norm(ops);
  sf_cpu_fill_softmax(ops);
  sf_cpu_fill_rotary(ops);
  sf_cpu_fill_activation(ops);
  sf_cpu_fill_embedding(ops);
  sf_cpu_fill_cross_entropy(ops);
  sf_cpu_fill_adam(ops);
}

static void destroy(struct sf_device *dev) {
  struct sf_cpu *cpu = dev->impl;
  sf_gemm_xsmm_teardown(cpu);
  sf_free(cpu->block);
  sf_free(cpu->pack);
  sf_free(cpu);
}

enum sf_status sf_cpu_device_create(struct sf_device **out, enum sf_cpu_gemm gemm) {
  enum sf_status status = SF_ENOMEM;
  struct sf_cpu *cpu = sf_alloc(sizeof *cpu);
  if (!cpu) return SF_ENOMEM;
  cpu->device.ops = &cpu->ops;
  cpu->device.impl = cpu;
  cpu->device.destroy = destroy;
  cpu->pack = sf_alloc(SF_GEMM_PACK_FLOATS * sizeof(float));
  cpu->block = sf_alloc(SF_GEMM_BLOCK_FLOATS * sizeof(float));
  if (!cpu->pack || !cpu->block) goto done;
  fill_table(&cpu->ops);
  status = gemm_setup(cpu, gemm);
done:
  if (status == SF_OK)
    *out = &cpu->device;
  else
    sf_device_destroy(&cpu->device);
  return status;
}

enum sf_cpu_gemm sf_cpu_gemm_default(void) {
#ifdef SF_SANITIZE
  return SF_CPU_GEMM_LOOPS; /* ASan cannot see into code made at run time */
#else
  return sf_gemm_xsmm_built ? SF_CPU_GEMM_XSMM : sf_gemm_blas_built ? SF_CPU_GEMM_BLAS : SF_CPU_GEMM_LOOPS;
#endif
}
