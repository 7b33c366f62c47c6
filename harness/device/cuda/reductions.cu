/* Sums over rows and over everything. Each block leaves its part, and the parts are joined in order; their number depends only on the
 * size. */
#include "harness/device/cuda/columns.cuh"
#include "harness/device/cuda/math.cuh"

#include <string.h>

/* 32 columns a block. */
__global__ static void col_sum_kernel(float *out, const float *x, int64_t rows, int64_t cols) {
  for (int64_t from = (int64_t)blockIdx.x * SF_CUDA_COLUMNS; from < cols; from += (int64_t)gridDim.x * SF_CUDA_COLUMNS) {
    const int64_t j = from + threadIdx.x % SF_CUDA_COLUMNS;
    float sum = 0.0f;
    if (j < cols)
      for (int64_t r = threadIdx.x / SF_CUDA_COLUMNS; r < rows; r += SF_CUDA_COLUMN_PARTS) sum += x[r * cols + j];
    sum = sf_cuda_column_sum(sum);
    if (j < cols && threadIdx.x < SF_CUDA_COLUMNS) out[j] += sum;
  }
}

void sf_cuda_col_sum(struct sf_device *dev, float *out, const float *x, int64_t rows, int64_t cols) {
  struct sf_cuda_call call(dev);
  const float *from = sf_cuda_in(&call, x, rows * cols);
  float *to = sf_cuda_inout(&call, out, cols);
  SF_CUDA_COLUMN_BLOCKS(&call, col_sum_kernel, cols, to, from, rows, cols);
}

/* As integers, the sizes of floats keep their order, with NaN above infinity. */
__global__ static void amax_kernel(uint32_t *parts, const float *x, int64_t count) {
  __shared__ uint32_t most[SF_CUDA_THREADS];
  uint32_t size = 0;
  SF_CUDA_FOR_EACH(i, count) {
    const uint32_t other = __float_as_uint(x[i]) & 0x7fffffffu;
    size = other > size ? other : size;
  }
  most[threadIdx.x] = size;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (unsigned i = 1; i < SF_CUDA_THREADS; i++) size = most[i] > size ? most[i] : size;
  parts[blockIdx.x] = size;
}

float sf_cuda_amax(struct sf_device *dev, const float *x, int64_t count) {
  struct sf_cuda_call call(dev);
  const unsigned blocks = sf_cuda_blocks(count, SF_CUDA_THREADS);
  const float *from = sf_cuda_in(&call, x, count);
  uint32_t *parts = (uint32_t *)sf_cuda_scratch(&call, blocks * sizeof *parts), most = 0;
  SF_CUDA_EACH(&call, amax_kernel, count, parts, from, count);
  sf_cuda_wait(&call);
  for (unsigned i = 0; i < blocks; i++) most = parts[i] > most ? parts[i] : most;
  float result;
  memcpy(&result, &most, sizeof result);
  return result;
}

/* Squares of floats are exact in double. */
__global__ static void sum_squares_kernel(double *parts, const float *x, int64_t count) {
  __shared__ double part[SF_CUDA_THREADS];
  double sum = 0.0;
  SF_CUDA_FOR_EACH(i, count) sum += (double)x[i] * (double)x[i];
  part[threadIdx.x] = sum;
  __syncthreads();
  for (unsigned width = SF_CUDA_THREADS / 2; width > 0; width /= 2) {
    if (threadIdx.x < width) part[threadIdx.x] += part[threadIdx.x + width];
    __syncthreads();
  }
  if (threadIdx.x == 0) parts[blockIdx.x] = part[0];
}

double sf_cuda_sum_squares(struct sf_device *dev, const float *x, int64_t count) {
  struct sf_cuda_call call(dev);
  const unsigned blocks = sf_cuda_blocks(count, SF_CUDA_THREADS);
  const float *from = sf_cuda_in(&call, x, count);
  double *parts = (double *)sf_cuda_scratch(&call, blocks * sizeof *parts), sum = 0.0;
  SF_CUDA_EACH(&call, sum_squares_kernel, count, parts, from, count);
  sf_cuda_wait(&call);
  for (unsigned i = 0; i < blocks; i++) sum += parts[i];
  return sum;
}
