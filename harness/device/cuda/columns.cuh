/* Blocks that sum over the rows of a matrix: 32 columns side by side, each in eight parts of the rows that are joined in order. */
#ifndef SF_DEVICE_CUDA_COLUMNS_CUH
#define SF_DEVICE_CUDA_COLUMNS_CUH

#include "harness/device/cuda/cuda.cuh"

#define SF_CUDA_COLUMN_BLOCKS(call, kernel, cols, ...)                                                                                     \
  do {                                                                                                                                     \
    if ((cols) > 0) SF_CUDA_LAUNCH(kernel, sf_cuda_blocks(cols, SF_CUDA_COLUMNS), SF_CUDA_THREADS, (call)->cuda->stream, __VA_ARGS__);     \
  } while (0)

/* The column's sum, in the threads of the first part; all of the block must call. */
__device__ static inline float sf_cuda_column_sum(float x) {
  __shared__ float part[SF_CUDA_COLUMNS * SF_CUDA_COLUMN_PARTS];
  part[threadIdx.x] = x;
  __syncthreads();
  float sum = 0.0f;
  if (threadIdx.x < SF_CUDA_COLUMNS)
    for (unsigned i = 0; i < SF_CUDA_COLUMN_PARTS; i++) sum += part[i * SF_CUDA_COLUMNS + threadIdx.x];
  __syncthreads(); /* before the next use writes it */
  return sum;
}

#endif
