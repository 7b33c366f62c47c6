/* cuBLASLt called alone, the yardstick of bench_gemm: one product of row-major matrices in the GPU's own memory, with the first algorithm
 * that the library proposes. Operands and result are in the product's format, sums in fp32; fp32 is asked for without reduced formats.
 * Failures end the program with one line (bench_common.h). */
#ifndef SF_TESTS_BENCH_GEMM_LIBRARY_H
#define SF_TESTS_BENCH_GEMM_LIBRARY_H

#include "harness/device/device.h"

struct gemm_library;
/* Opens the library and a stream of its own on the process's GPU. */
struct gemm_library *gemm_library_create(void);
void gemm_library_destroy(struct gemm_library *library);
int64_t gemm_library_version(const struct gemm_library *library);

/* Takes over the product: a and b (host, dense, numbers of the format) are copied. format: SF_F32, SF_BF16, SF_F16. */
void gemm_library_prepare(struct gemm_library *library, const struct sf_gemm *g, enum sf_dtype format);
/* Seconds of one product: on the host's clock, the call and the wait for its end; on the GPU's, from event to event. */
double gemm_library_run_wall(struct gemm_library *library);
double gemm_library_run_events(struct gemm_library *library);
/* c: m x n on the host, dense; the last product. */
void gemm_library_fetch(struct gemm_library *library, float *c);

#endif
