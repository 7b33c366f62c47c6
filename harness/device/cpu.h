/* The CPU device, seen from inside the room: its state, the three GEMM cores and the operations of its table. */
#ifndef SF_DEVICE_CPU_H
#define SF_DEVICE_CPU_H

#include "harness/device/device.h"

/* Scratch is of fixed size, so that no operation allocates: PACK holds a panel of B for the loops and a whole transposed B for LIBXSMM,
 * BLOCK a product that is to be scaled before it is added. */
enum { SF_GEMM_PACK_FLOATS = 256 * 1024, SF_GEMM_BLOCK_FLOATS = 16 * 1024 };

struct sf_cpu;
struct sf_xsmm;
/* c = op(a) op(b) [+ c] in fp32; alpha is ignored; m, n, k > 0. */
typedef void sf_gemm_core(struct sf_cpu *cpu, const struct sf_gemm *g);

struct sf_cpu {
  struct sf_device device;
  struct sf_device_ops ops;
  sf_gemm_core *core;
  float *pack, *block;
  struct sf_xsmm *xsmm; /* NULL unless the variant is XSMM */
};

/* Plain loops, always there.
 * Computes: each element is one chain of fused multiply-adds over k in ascending order, started from 0 or from c. The chain does not
 * depend on the shape or on the blocking, so any block of C has the same bits whoever computes it.
 * Error: at most k u sum |a b| + k u |c|. On a machine without FMA the multiply rounds too (2 k). */
void sf_gemm_loops(struct sf_cpu *cpu, const struct sf_gemm *g);
/* out[p * ldo + j] = b[j * ldb + p] for p < k, j < n. */
void sf_gemm_transpose(float *out, int64_t ldo, const float *b, int64_t ldb, int64_t n, int64_t k);

/* OpenBLAS on one thread. SF_ENOTSUP when the build lacks it. */
enum sf_status sf_gemm_blas_setup(struct sf_cpu *cpu) SF_MUST_USE;
/* Has OpenBLAS take the buffer of its first product, which processes forked later inherit: where it does not get one it tries again for
 * ever, and a case would seem to hang. SF_ENOMEM with a reason: the address space has no room for it. */
enum sf_status sf_gemm_blas_reserve(struct sf_error *error) SF_MUST_USE;
/* LIBXSMM where it is faster; the bits are those of the loops. SF_ENOTSUP, SF_ENOMEM. */
enum sf_status sf_gemm_xsmm_setup(struct sf_cpu *cpu) SF_MUST_USE;
void sf_gemm_xsmm_teardown(struct sf_cpu *cpu); /* takes a device of any variant */
extern const bool sf_gemm_blas_built, sf_gemm_xsmm_built;

/* gemm of struct sf_device_ops, on the device's core. Asserts that each stride is as wide as its rows. */
void sf_cpu_gemm(struct sf_device *dev, const struct sf_gemm *g, enum sf_dtype store);

/* Each of these adds its operations to the table. */
void sf_cpu_fill_elementwise(struct sf_device_ops *ops);
void sf_cpu_fill_norm(struct sf_device_ops *ops);
void sf_cpu_fill_softmax(struct sf_device_ops *ops);
void sf_cpu_fill_rotary(struct sf_device_ops *ops);
void sf_cpu_fill_activation(struct sf_device_ops *ops);
void sf_cpu_fill_embedding(struct sf_device_ops *ops);
void sf_cpu_fill_cross_entropy(struct sf_device_ops *ops);
void sf_cpu_fill_adam(struct sf_device_ops *ops);

#endif
