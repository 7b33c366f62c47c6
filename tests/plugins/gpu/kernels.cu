/* Sample kernels of a GPU with bugs that only a GPU shows, one for each library (BUG). The operations are col_sum, bias_add and sum_squares
 * in fp32. Operands are copied to the GPU and back. */
#include "targets/plugin/include/shardfuzz/plugin.h"

#include <cuda_runtime.h>

enum { SOUND, RACE, GRID_LIMIT, STALE_SHARED }; /* values of BUG */
enum { THREADS = 64, ROWS = 16 };

/* Memory of the GPU with a copy of `bytes` bytes; NULL on failure. */
static void *bring(const void *host, size_t bytes) {
  void *copy = NULL;
  if (cudaMalloc(&copy, bytes + 1) != cudaSuccess) return NULL;
  if (bytes > 0 && cudaMemcpy(copy, host, bytes, cudaMemcpyHostToDevice) != cudaSuccess) return NULL;
  return copy;
}
static bool fetch(void *host, void *copy, size_t bytes) {
  return cudaMemcpy(host, copy, bytes, cudaMemcpyDeviceToHost) == cudaSuccess;
}
template <class T> static T *data(const struct shardfuzz_tensor *t) { return (T *)((char *)t->data + t->byte_offset); }

/* --- col_sum: a block sums ROWS rows, and adds its sum to out ------------------------------------------------------------ */

static __device__ float sum_of_block(const float *x, int64_t rows, int64_t cols, int64_t j) {
  const int64_t begin = (int64_t)blockIdx.x * ROWS, end = begin + ROWS < rows ? begin + ROWS : rows;
  float sum = 0;
  for (int64_t i = begin; i < end; i++) sum += x[i * cols + j];
  return sum;
}
static __global__ void partial_sums(float *parts, const float *x, int64_t rows, int64_t cols) {
  for (int64_t j = threadIdx.x; j < cols; j += THREADS) parts[blockIdx.x * cols + j] = sum_of_block(x, rows, cols, j);
}
static __global__ void add_parts(float *out, const float *parts, int64_t blocks, int64_t cols) {
  for (int64_t j = threadIdx.x; j < cols; j += THREADS)
    for (int64_t b = 0; b < blocks; b++) out[j] += parts[b * cols + j];
}
static __global__ void add_at_once(volatile float *out, const float *x, int64_t rows, int64_t cols) {
  for (int64_t j = threadIdx.x; j < cols; j += THREADS)
    out[j] = out[j] + sum_of_block(x, rows, cols, j); /* the bug of RACE: other blocks do so at the same time */
}
static int col_sum(const struct shardfuzz_call *call) {
  const int64_t rows = call->tensors[0].shape[0], cols = call->tensors[0].shape[1], blocks = (rows + ROWS - 1) / ROWS;
  float *x = (float *)bring(data<float>(&call->tensors[0]), rows * cols * sizeof(float));
  float *out = (float *)bring(data<float>(&call->tensors[1]), cols * sizeof(float)), *parts = NULL;
  bool fine = x && out && cudaMalloc(&parts, blocks * cols * sizeof(float) + 1) == cudaSuccess;
  if (fine && blocks > 0) {
    if (BUG == RACE) {
      add_at_once<<<blocks, THREADS>>>(out, x, rows, cols);
    } else {
      partial_sums<<<blocks, THREADS>>>(parts, x, rows, cols);
      add_parts<<<1, THREADS>>>(out, parts, blocks, cols);
    }
  }
  fine = fine && fetch(data<float>(&call->tensors[1]), out, cols * sizeof(float));
  cudaFree(x), cudaFree(out), cudaFree(parts);
  return fine ? SHARDFUZZ_OK : -1;
}

/* --- bias_add: a block for each row ----------------------------------------------------------------------------------- */

static __global__ void add_bias(float *y, const float *x, const float *bias, int64_t rows, int64_t cols) {
  for (int64_t i = blockIdx.y; i < rows; i += BUG == GRID_LIMIT ? rows : gridDim.y)
    for (int64_t j = threadIdx.x; j < cols; j += THREADS) y[i * cols + j] = x[i * cols + j] + bias[j];
}
static int bias_add(const struct shardfuzz_call *call) {
  const int64_t rows = call->tensors[0].shape[0], cols = call->tensors[0].shape[1], size = rows * cols * (int64_t)sizeof(float);
  float *x = (float *)bring(data<float>(&call->tensors[0]), size), *y = (float *)bring(data<float>(&call->tensors[2]), size);
  float *bias = (float *)bring(data<float>(&call->tensors[1]), cols * sizeof(float));
  bool fine = x && y && bias;
  /* The bug of GRID_LIMIT: a grid has at most 65,535 blocks in y. The launch is refused, and nobody asks whether it was. */
  const unsigned grid = (unsigned)(BUG == GRID_LIMIT || rows < 65535 ? rows : 65535);
  if (fine && rows > 0) add_bias<<<dim3(1, grid), THREADS>>>(y, x, bias, rows, cols);
  (void)cudaGetLastError();
  fine = fine && fetch(data<float>(&call->tensors[2]), y, size);
  cudaFree(x), cudaFree(y), cudaFree(bias);
  return fine ? SHARDFUZZ_OK : -1;
}

/* --- sum_squares: a block sums THREADS elements after the other in shared memory ----------------------------------------- */

static __global__ void squares(double *parts, const float *x, int64_t count) {
  __shared__ double tile[THREADS];
  double sum = 0;
  for (int64_t begin = (int64_t)blockIdx.x * THREADS; begin < count; begin += (int64_t)gridDim.x * THREADS) {
    const int64_t i = begin + threadIdx.x;
    if (i < count)
      tile[threadIdx.x] = (double)x[i] * (double)x[i];
    else if (BUG != STALE_SHARED) /* the bug of STALE_SHARED: behind the last element lies what the tile before left there */
      tile[threadIdx.x] = 0;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
      if (threadIdx.x < half) tile[threadIdx.x] += tile[threadIdx.x + half];
      __syncthreads();
    }
    if (threadIdx.x == 0) sum += tile[0];
    __syncthreads();
  }
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}
static __global__ void add_squares(double *sum, const double *parts, int64_t blocks) {
  *sum = 0;
  for (int64_t b = 0; b < blocks; b++) *sum += parts[b];
}
static int sum_squares(const struct shardfuzz_call *call) {
  const int64_t count = call->tensors[0].shape[1], tiles = (count + THREADS - 1) / THREADS, blocks = tiles < 4 ? tiles : 4;
  float *x = (float *)bring(data<float>(&call->tensors[0]), count * sizeof(float));
  double *sum = (double *)bring(data<double>(&call->tensors[1]), sizeof(double)), *parts = NULL;
  bool fine = x && sum && cudaMalloc(&parts, blocks * sizeof(double) + 1) == cudaSuccess;
  if (fine) {
    if (blocks > 0) squares<<<blocks, THREADS>>>(parts, x, count);
    add_squares<<<1, 1>>>(sum, parts, blocks);
  }
  fine = fine && fetch(data<double>(&call->tensors[1]), sum, sizeof(double));
  cudaFree(x), cudaFree(sum), cudaFree(parts);
  return fine ? SHARDFUZZ_OK : -1;
}

#define OPERATION(name, function) {name, SHARDFUZZ_BIT(SHARDFUZZ_F32), SHARDFUZZ_TAKES_UNALIGNED, function, NULL, NULL, NULL, 0, 0}
static const struct shardfuzz_operation operations[] = {OPERATION("col_sum", col_sum), OPERATION("bias_add", bias_add),
                                                        OPERATION("sum_squares", sum_squares)};

extern "C" const struct shardfuzz_plugin *shardfuzz_plugin_get(void) {
  static struct shardfuzz_plugin plugin = {};
  plugin.abi = SHARDFUZZ_PLUGIN_ABI;
  plugin.size_bytes = sizeof plugin;
  plugin.kind = SHARDFUZZ_KIND_OPERATIONS;
  plugin.name = "gpu sample";
  plugin.entries = operations;
  plugin.entry_count = sizeof operations / sizeof operations[0];
  plugin.entry_bytes = sizeof operations[0];
  return &plugin;
}
