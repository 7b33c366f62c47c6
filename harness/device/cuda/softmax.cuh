/* What softmax of whole rows and of blocks of columns share: the backward of a row, and the gradient of a sink. */
#ifndef SF_DEVICE_CUDA_SOFTMAX_CUH
#define SF_DEVICE_CUDA_SOFTMAX_CUH

#include "harness/device/cuda/math.cuh"

/* ds = round(p (dp - sum_j p dp)) in columns first..end of a row, 0 in the others up to cols; returns the sum. All of the block must call.
 */
__device__ static inline float sf_cuda_softmax_bwd_row(float *ds, const float *dp, const float *p, int64_t first, int64_t end, int64_t cols,
                                                       enum sf_dtype store) {
  float part = 0.0f;
  SF_CUDA_FOR_COLUMNS(j, first, end) part += p[j] * dp[j];
  const float dot = sf_cuda_block_sum(part);
  SF_CUDA_FOR_COLUMNS(j, 0, cols) ds[j] = j >= first && j < end ? sf_round(p[j] * (dp[j] - dot), store) : 0.0f;
  return dot;
}

/* *grad -= sum over rows of probs dots; one block. */
__global__ static void sf_cuda_sink_grad_kernel(float *grad, const float *probs, const float *dots, int64_t rows) {
  float part = 0.0f;
  SF_CUDA_FOR_COLUMNS(i, 0, rows) part += probs[i] * dots[i];
  const float sum = sf_cuda_block_sum(part);
  if (threadIdx.x == 0) *grad -= sum;
}

/* A sink where kernels find it, and room for every row's sum. All NULL: there is none. */
struct sf_cuda_sink {
  const float *probs;
  float *grad, *dots;
};

/* sink NULL: there is none. */
static inline struct sf_cuda_sink sf_cuda_softmax_sink_place(struct sf_cuda_call *call, const struct sf_sink *sink, int64_t rows) {
  if (!sink) return {};
  return {sf_cuda_in(call, sink->probs, rows), sf_cuda_inout(call, sink->grad, 1),
          (float *)sf_cuda_scratch(call, (size_t)rows * sizeof(float))};
}

/* Once kernels have filled dots: adds the sink's gradient to sink->grad. Does nothing where there is no sink. */
static inline void sf_cuda_softmax_sink_grad(struct sf_cuda_call *call, const struct sf_cuda_sink *sink, int64_t rows) {
  if (sink->dots)
    SF_CUDA_LAUNCH(sf_cuda_sink_grad_kernel, 1, SF_CUDA_ROW_THREADS, call->cuda->stream, sink->grad, sink->probs, sink->dots, rows);
}

#endif
