/* Matrix products by cuBLASLt, which is opened when a device is made, so that the program starts where there is none.
 *
 * The library counts columns first, so it is asked for the transposed product of the exchanged operands. It gives the same bits for the
 * same call on the same GPU; splits of k are joined in fp32 and in order. fp32 products are asked for without reduced formats. */
#include "harness/device/cuda/blas.cuh"

extern "C" {
#include "harness/base/alloc.h"
}

#include <cublasLt.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define FUNCTIONS(X)                                                                                                                       \
  X(Create)                                                                                                                                \
  X(Destroy) X(Matmul) X(MatmulAlgoGetHeuristic) X(MatmulDescInit_internal) X(MatmulDescSetAttribute) X(MatrixLayoutInit_internal)         \
      X(MatmulPreferenceInit_internal) X(MatmulPreferenceSetAttribute)

enum { WORKSPACE_BYTES = 32 << 20, CHOICES = 1024 };

/* The library's choice for a call depends only on this. */
struct shape {
  int64_t m, n, k, lda, ldb, ldc;
  int32_t trans_a, trans_b, format;
  uint32_t align_a, align_b, align_c;
};
struct choice {
  struct shape shape;
  bool known, usable;
  cublasLtMatmulAlgo_t algo;
};

struct lt {
  struct sf_cuda_blas blas; /* first */
  void *library, *workspace;
  cublasLtHandle_t handle;
  struct choice *choices;
#define X(name) decltype(&cublasLt##name) name;
  FUNCTIONS(X)
#undef X
};

struct descriptors {
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t a, b, c;
};

/* The largest power of two, at most 16, that divides an address. Kernels load no more at once. A larger alignment depends on earlier
 * allocations; the library's choice, and so the bits, must not. */
static uint32_t alignment(const void *at) {
  const uintptr_t low = (uintptr_t)at & 15u;
  return low == 0 ? 16u : (uint32_t)(low & (~low + 1));
}

static struct shape shape_of(const struct sf_cuda_product *g) {
  struct shape shape;
  memset(&shape, 0, sizeof shape); /* compared byte by byte */
  shape.m = g->m, shape.n = g->n, shape.k = g->k, shape.lda = g->lda, shape.ldb = g->ldb, shape.ldc = g->ldc;
  shape.trans_a = g->trans_a, shape.trans_b = g->trans_b, shape.format = (int32_t)g->format;
  shape.align_a = alignment(g->a), shape.align_b = alignment(g->b), shape.align_c = alignment(g->c);
  return shape;
}

static struct choice *choice_of(struct lt *lt, const struct shape *shape) {
  uint64_t hash = 0;
  for (size_t i = 0; i < sizeof *shape; i++) hash = (hash ^ ((const unsigned char *)shape)[i]) * UINT64_C(0x100000001b3);
  return &lt->choices[(hash >> 20) % CHOICES];
}

static bool describe(struct lt *lt, struct descriptors *d, const struct sf_cuda_product *g) {
  const bool fp64 = g->format == SF_F64;
  const cudaDataType_t sums = fp64 ? CUDA_R_64F : CUDA_R_32F;
  const cudaDataType_t type = g->format == SF_BF16 ? CUDA_R_16BF : g->format == SF_F16 ? CUDA_R_16F : sums;
  const cublasComputeType_t compute = fp64 ? CUBLAS_COMPUTE_64F : g->format == SF_F32 ? CUBLAS_COMPUTE_32F_PEDANTIC : CUBLAS_COMPUTE_32F;
  const cublasOperation_t first = g->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N, second = g->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  cublasStatus_t status = lt->MatmulDescInit_internal(&d->operation, sizeof d->operation, compute, sums);
  if (status == CUBLAS_STATUS_SUCCESS)
    status = lt->MatmulDescSetAttribute(&d->operation, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first);
  if (status == CUBLAS_STATUS_SUCCESS)
    status = lt->MatmulDescSetAttribute(&d->operation, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second);
  if (status == CUBLAS_STATUS_SUCCESS)
    status = lt->MatrixLayoutInit_internal(&d->a, sizeof d->a, type, (uint64_t)(g->trans_b ? g->k : g->n),
                                           (uint64_t)(g->trans_b ? g->n : g->k), g->ldb);
  if (status == CUBLAS_STATUS_SUCCESS)
    status = lt->MatrixLayoutInit_internal(&d->b, sizeof d->b, type, (uint64_t)(g->trans_a ? g->m : g->k),
                                           (uint64_t)(g->trans_a ? g->k : g->m), g->lda);
  if (status == CUBLAS_STATUS_SUCCESS)
    status = lt->MatrixLayoutInit_internal(&d->c, sizeof d->c, sums, (uint64_t)g->n, (uint64_t)g->m, g->ldc);
  return status == CUBLAS_STATUS_SUCCESS;
}

static void choose(struct lt *lt, struct choice *choice, const struct shape *shape, struct descriptors *d) {
  cublasLtMatmulPreferenceOpaque_t preference;
  cublasLtMatmulHeuristicResult_t found;
  const uint64_t workspace_bytes = WORKSPACE_BYTES;
  const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  const struct { cublasLtMatmulPreferenceAttributes_t name; const void *value; size_t size; } wishes[] = {
      {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes, sizeof workspace_bytes},
      {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &shape->align_b, sizeof shape->align_b},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &shape->align_a, sizeof shape->align_a},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &shape->align_c, sizeof shape->align_c},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &shape->align_c, sizeof shape->align_c}};
  int count = 0;
  choice->known = true;
  choice->shape = *shape;
  cublasStatus_t status = lt->MatmulPreferenceInit_internal(&preference, sizeof preference);
  for (const auto &wish : wishes)
    if (status == CUBLAS_STATUS_SUCCESS) status = lt->MatmulPreferenceSetAttribute(&preference, wish.name, wish.value, wish.size);
  if (status == CUBLAS_STATUS_SUCCESS)
    status = lt->MatmulAlgoGetHeuristic(lt->handle, &d->operation, &d->a, &d->b, &d->c, &d->c, &preference, 1, &found, &count);
  choice->usable = status == CUBLAS_STATUS_SUCCESS && count > 0 && found.state == CUBLAS_STATUS_SUCCESS;
  if (choice->usable) choice->algo = found.algo;
}

static bool multiply(struct sf_cuda_blas *blas, const struct sf_cuda_product *g, cudaStream_t stream) {
  struct lt *lt = (struct lt *)blas;
  const struct shape shape = shape_of(g);
  struct choice *choice = choice_of(lt, &shape);
  struct descriptors d;
  const float one = 1.0f, zero = 0.0f;
  const double one64 = 1.0, zero64 = 0.0;
  const bool fp64 = g->format == SF_F64;
  if (!describe(lt, &d, g)) return false;
  if (!choice->known || memcmp(&choice->shape, &shape, sizeof shape) != 0) choose(lt, choice, &shape, &d);
  return choice->usable && lt->Matmul(lt->handle, &d.operation, fp64 ? (const void *)&one64 : &one, g->b, &d.a, g->a, &d.b,
                                      fp64 ? (const void *)&zero64 : &zero, g->c, &d.c, g->c, &d.c, &choice->algo, lt->workspace,
                                      WORKSPACE_BYTES, stream) == CUBLAS_STATUS_SUCCESS;
}

static void destroy(struct sf_cuda_blas *blas) {
  struct lt *lt = (struct lt *)blas;
  if (lt->workspace) (void)cudaFree(lt->workspace);
  if (lt->handle) (void)lt->Destroy(lt->handle);
  if (lt->library) dlclose(lt->library);
  sf_free(lt->choices);
  sf_free(lt);
}

/* SF_CUBLAS_FOLDER: where the build found it, tried after the loader's own places. RTLD_NODELETE: the CUDA runtime inside of it has
 * registered itself with the driver and for the process's end, and cannot be unloaded. */
static void *open_library(char *name, size_t name_size) {
  const char *const folders[] = {"", SF_CUBLAS_FOLDER};
  for (const char *folder : folders) {
    snprintf(name, name_size, "%s%slibcublasLt.so.%d", folder, *folder ? "/" : "", CUBLAS_VER_MAJOR);
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library != NULL) return library;
  }
  return NULL;
}

static enum sf_status start(struct lt *lt, struct sf_error *error) {
  char name[512];
  lt->library = open_library(name, sizeof name);
  if (lt->library == NULL) return sf_error_set(error, SF_ENODEVICE, "libcublasLt.so.%d cannot be opened", CUBLAS_VER_MAJOR);
#define X(function)                                                                             \
  *(void **)&lt->function = dlsym(lt->library, "cublasLt" #function);                           \
  if (!lt->function) return sf_error_set(error, SF_ENODEVICE, "%s has no cublasLt" #function, name);
  FUNCTIONS(X)
#undef X
  if (lt->Create(&lt->handle) != CUBLAS_STATUS_SUCCESS) return sf_error_set(error, SF_ENODEVICE, "%s does not start on this GPU", name);
  if (cudaMalloc(&lt->workspace, WORKSPACE_BYTES) != cudaSuccess)
    return sf_error_set(error, SF_ENOMEM, "memory of the GPU: %s", sf_status_text(SF_ENOMEM));
  return SF_OK;
}

enum sf_status sf_cuda_blas_create(struct sf_cuda_blas **out, struct sf_error *error) {
  struct lt *lt = (struct lt *)sf_alloc(sizeof *lt);
  enum sf_status status = SF_ENOMEM;
  if (lt == NULL) return sf_error_set(error, SF_ENOMEM, "%s", sf_status_text(SF_ENOMEM));
  lt->blas = {multiply, destroy};
  lt->choices = (struct choice *)sf_alloc(CHOICES * sizeof *lt->choices);
  status = lt->choices ? start(lt, error) : sf_error_set(error, SF_ENOMEM, "%s", sf_status_text(SF_ENOMEM));
  if (status == SF_OK)
    *out = &lt->blas;
  else
    destroy(&lt->blas);
  return status;
}
