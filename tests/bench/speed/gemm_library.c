#include "tests/bench/speed/gemm_library.h"

#include "tests/bench/bench_common.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#define FUNCTIONS(X)                                                                                                                       \
  X(Create)                                                                                                                                \
  X(Destroy)                                                                                                                               \
  X(GetVersion) X(Matmul) X(MatmulAlgoGetHeuristic) X(MatmulDescCreate) X(MatmulDescDestroy) X(MatmulDescSetAttribute)                     \
      X(MatrixLayoutCreate) X(MatrixLayoutDestroy) X(MatmulPreferenceCreate) X(MatmulPreferenceDestroy) X(MatmulPreferenceSetAttribute)

enum { WORKSPACE_BYTES = 32 << 20 }; /* what NVIDIA recommends for GPUs of sm_90 */

struct product { /* column-major: the transposed product of the exchanged operands */
  enum sf_dtype format;
  int64_t count[3];
  void *at[3]; /* first and second operand of the library, result */
  cublasLtMatmulDesc_t operation;
  cublasLtMatrixLayout_t layout[3];
  cublasLtMatmulAlgo_t algo;
};

struct gemm_library {
  void *library, *workspace;
  cublasLtHandle_t handle;
  cudaStream_t stream;
  cudaEvent_t begin, end;
  struct product product;
#define X(name) __typeof__(&cublasLt##name) name;
  FUNCTIONS(X)
#undef X
};

static void cuda(cudaError_t error, const char *what) {
  if (error != cudaSuccess) sf_bench_die("%s: %s", what, cudaGetErrorString(error));
}

static void blas(cublasStatus_t status, const char *what) {
  if (status != CUBLAS_STATUS_SUCCESS) sf_bench_die("cuBLASLt: %s: status %d", what, (int)status);
}

/* The library that the device has opened, found by its name. */
struct gemm_library *gemm_library_create(void) {
  char name[64];
  struct gemm_library *l = sf_alloc(sizeof *l);
  if (!l) sf_bench_die("out of memory");
  snprintf(name, sizeof name, "libcublasLt.so.%d", CUBLAS_VER_MAJOR);
  l->library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (!l->library) sf_bench_die("the device has not opened %s", name);
#define X(function)                                                                                                                        \
  *(void **)(&l->function) = dlsym(l->library, "cublasLt" #function);                                                                      \
  if (!l->function) sf_bench_die("%s has no cublasLt" #function, name);
  FUNCTIONS(X)
#undef X
  blas(l->Create(&l->handle), "start");
  cuda(cudaMalloc(&l->workspace, WORKSPACE_BYTES), "workspace");
  cuda(cudaStreamCreate(&l->stream), "stream");
  cuda(cudaEventCreate(&l->begin), "event");
  cuda(cudaEventCreate(&l->end), "event");
  return l;
}

int64_t gemm_library_version(const struct gemm_library *l) { return (int64_t)l->GetVersion(); }

static void drop_product(struct gemm_library *l) {
  struct product *p = &l->product;
  for (int i = 0; i < 3; i++) {
    (void)cudaFree(p->at[i]);
    if (p->layout[i]) (void)l->MatrixLayoutDestroy(p->layout[i]);
  }
  if (p->operation) (void)l->MatmulDescDestroy(p->operation);
  *p = (struct product){0};
}

void gemm_library_destroy(struct gemm_library *l) {
  drop_product(l);
  (void)cudaEventDestroy(l->begin);
  (void)cudaEventDestroy(l->end);
  (void)cudaStreamDestroy(l->stream);
  (void)cudaFree(l->workspace);
  (void)l->Destroy(l->handle);
  (void)dlclose(l->library);
  sf_free(l);
}

static size_t number_bytes(enum sf_dtype format) { return format == SF_F32 ? sizeof(float) : sizeof(uint16_t); }

static void upload(void *to, const float *from, int64_t count, enum sf_dtype format) {
  const size_t size_bytes = (size_t)count * number_bytes(format);
  uint16_t *narrow = NULL;
  if (format != SF_F32) {
    narrow = sf_alloc(size_bytes);
    if (!narrow) sf_bench_die("out of memory");
    for (int64_t i = 0; i < count; i++) narrow[i] = format == SF_BF16 ? sf_bf16_bits(from[i]) : sf_f16_bits(from[i]);
  }
  cuda(cudaMemcpy(to, narrow ? (const void *)narrow : from, size_bytes, cudaMemcpyHostToDevice), "copy of an operand");
  sf_free(narrow);
}

static void choose(struct gemm_library *l) {
  struct product *p = &l->product;
  const uint64_t workspace_bytes = WORKSPACE_BYTES;
  cublasLtMatmulPreference_t preference;
  cublasLtMatmulHeuristicResult_t found;
  int count = 0;
  blas(l->MatmulPreferenceCreate(&preference), "preference");
  blas(l->MatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes, sizeof workspace_bytes),
       "workspace");
  blas(l->MatmulAlgoGetHeuristic(l->handle, p->operation, p->layout[0], p->layout[1], p->layout[2], p->layout[2], preference, 1, &found,
                                 &count),
       "heuristic");
  if (count == 0) sf_bench_die("cuBLASLt has no algorithm for this product");
  p->algo = found.algo;
  (void)l->MatmulPreferenceDestroy(preference);
}

static void describe(struct gemm_library *l, const struct sf_gemm *g) {
  struct product *p = &l->product;
  const cudaDataType_t type = p->format == SF_BF16 ? CUDA_R_16BF : p->format == SF_F16 ? CUDA_R_16F : CUDA_R_32F;
  const cublasOperation_t first = g->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N, second = g->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  blas(l->MatmulDescCreate(&p->operation, p->format == SF_F32 ? CUBLAS_COMPUTE_32F_PEDANTIC : CUBLAS_COMPUTE_32F, CUDA_R_32F), "operation");
  blas(l->MatmulDescSetAttribute(p->operation, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first), "operand");
  blas(l->MatmulDescSetAttribute(p->operation, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second), "operand");
  blas(l->MatrixLayoutCreate(&p->layout[0], type, (uint64_t)g->ldb, (uint64_t)(g->trans_b ? g->n : g->k), g->ldb), "layout");
  blas(l->MatrixLayoutCreate(&p->layout[1], type, (uint64_t)g->lda, (uint64_t)(g->trans_a ? g->k : g->m), g->lda), "layout");
  blas(l->MatrixLayoutCreate(&p->layout[2], type, (uint64_t)g->n, (uint64_t)g->m, g->n), "layout");
}

void gemm_library_prepare(struct gemm_library *l, const struct sf_gemm *g, enum sf_dtype format) {
  struct product *p = &l->product;
  drop_product(l);
  p->format = format;
  const int64_t counts[3] = {g->k * g->n, g->m * g->k, g->m * g->n};
  for (int i = 0; i < 3; i++) {
    p->count[i] = counts[i];
    cuda(cudaMalloc(&p->at[i], (size_t)counts[i] * number_bytes(format)), "memory of the GPU");
  }
  upload(p->at[0], g->b, counts[0], format);
  upload(p->at[1], g->a, counts[1], format);
  describe(l, g);
  choose(l);
}

static void enqueue(struct gemm_library *l) {
  struct product *p = &l->product;
  const float one = 1.0f, zero = 0.0f;
  blas(l->Matmul(l->handle, p->operation, &one, p->at[0], p->layout[0], p->at[1], p->layout[1], &zero, p->at[2], p->layout[2], p->at[2],
                 p->layout[2], &p->algo, l->workspace, WORKSPACE_BYTES, l->stream),
       "product");
}

double gemm_library_run_wall(struct gemm_library *l) {
  const double start = sf_engine_now();
  enqueue(l);
  cuda(cudaStreamSynchronize(l->stream), "product");
  return sf_engine_now() - start;
}

double gemm_library_run_events(struct gemm_library *l) {
  float passed_ms = 0;
  enqueue(l); /* keeps the GPU busy while the timed product is enqueued, whose launch does not count so */
  cuda(cudaEventRecord(l->begin, l->stream), "event");
  enqueue(l);
  cuda(cudaEventRecord(l->end, l->stream), "event");
  cuda(cudaEventSynchronize(l->end), "product");
  cuda(cudaEventElapsedTime(&passed_ms, l->begin, l->end), "event");
  return 1e-3 * (double)passed_ms;
}

void gemm_library_fetch(struct gemm_library *l, float *c) {
  const struct product *p = &l->product;
  const int64_t count = p->count[2];
  const size_t size_bytes = (size_t)count * number_bytes(p->format);
  uint16_t *narrow = p->format == SF_F32 ? NULL : sf_alloc(size_bytes);
  if (p->format != SF_F32 && !narrow) sf_bench_die("out of memory");
  cuda(cudaMemcpy(narrow ? (void *)narrow : c, p->at[2], size_bytes, cudaMemcpyDeviceToHost), "copy of the result");
  for (int64_t i = 0; narrow && i < count; i++) c[i] = p->format == SF_BF16 ? sf_bf16_value(narrow[i]) : sf_f16_value(narrow[i]);
  sf_free(narrow);
}
