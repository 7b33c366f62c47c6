/* exp, the normal distribution and the logistic function, of one number: the arithmetic of vec_math.h step by step, so that its measured
 * errors and its bits hold here too. Reductions over a block: each thread's part by itself, then a tree. */
#ifndef SF_DEVICE_CUDA_MATH_CUH
#define SF_DEVICE_CUDA_MATH_CUH

#include "harness/device/cuda/cuda.cuh"
#include "harness/device/polynomials.h"

/* exp(high + low); vec_math.h: sf_vec_exp2part */
__device__ static inline float sf_cuda_exp2part(float high, float low) {
  const float shift = 12582912.0f;
  high = high > 89.0f ? 89.0f : high;
  high = high < -104.0f ? -104.0f : high;
  const float shifted = high * 1.44269504f + shift;
  const float n = shifted - shift;
  const float r = ((high - n * 0.693359375f) + n * 2.12194440e-4f) + low;
  const float p = (r * r) * SF_EXP_POLYNOMIAL(r) + r;
  const uint32_t exponent = __float_as_uint(shifted) - 0x4b400000u;
  const int32_t whole = (int32_t)exponent, half = whole >> 1, rest = (int32_t)(exponent - (uint32_t)half);
  return ((p + 1.0f) * __uint_as_float((uint32_t)(half + 127) << 23)) * __uint_as_float((uint32_t)(rest + 127) << 23);
}

/* exp(x); vec_math.h: sf_vec_exp */
__device__ static inline float sf_cuda_exp(float x) { return sf_cuda_exp2part(x, 0.0f); }

/* Phi(x) and phi(x); vec_math.h: sf_vec_normal */
__device__ static inline void sf_cuda_normal(float *cumulative, float *density, float x) {
  float a = __uint_as_float(__float_as_uint(x) & 0x7fffffffu);
  a = a > 15.0f ? 15.0f : a;
  const float head = __uint_as_float(__float_as_uint(a) & 0xfffff000u);
  const float e = sf_cuda_exp2part(head * head * -0.5f, (a - head) * (a + head) * -0.5f);
  const float inverse = 1.0f / (a + 4.0f);
  const float t = (a - 4.0f) * inverse;
  const float outside = e * SF_NORMAL_POLYNOMIAL(t) * inverse;
  *cumulative = x < 0.0f ? outside : 1.0f - outside;
  *density = e * 0.398942280f;
}

/* The logistic function and one minus it; vec_math.h: sf_vec_logistic */
__device__ static inline void sf_cuda_logistic(float *value, float *complement, float x) {
  const float e = sf_cuda_exp(__uint_as_float(__float_as_uint(x) | 0x80000000u)); /* exp(-|x|) */
  const float near_one = 1.0f / (1.0f + e), near_zero = e * near_one;
  *value = x < 0.0f ? near_zero : near_one;
  *complement = x < 0.0f ? near_one : near_zero;
}

/* The larger one; a NaN in b is passed over. */
__device__ static inline float sf_cuda_max(float a, float b) { return b > a ? b : a; }

/* For blocks of SF_CUDA_ROW_THREADS: every thread gets the result. All of the block must call. */
__device__ static inline float sf_cuda_block_sum(float x) {
  __shared__ float part[SF_CUDA_ROW_THREADS];
  part[threadIdx.x] = x;
  __syncthreads();
  for (unsigned width = SF_CUDA_ROW_THREADS / 2; width > 0; width /= 2) {
    if (threadIdx.x < width) part[threadIdx.x] += part[threadIdx.x + width];
    __syncthreads();
  }
  const float sum = part[0];
  __syncthreads(); /* before the next use writes it */
  return sum;
}

/* No element may be NaN. */
__device__ static inline float sf_cuda_block_max(float x) {
  __shared__ float part[SF_CUDA_ROW_THREADS];
  part[threadIdx.x] = x;
  __syncthreads();
  for (unsigned width = SF_CUDA_ROW_THREADS / 2; width > 0; width /= 2) {
    if (threadIdx.x < width) part[threadIdx.x] = sf_cuda_max(part[threadIdx.x], part[threadIdx.x + width]);
    __syncthreads();
  }
  const float most = part[0];
  __syncthreads();
  return most;
}

/* Whether x holds in any thread. */
__device__ static inline bool sf_cuda_block_any(bool x) { return sf_cuda_block_max(x ? 1.0f : 0.0f) > 0.0f; }

/* Largest of x[first..end), NaN passed over; -infinity of none. */
__device__ static inline float sf_cuda_row_max(const float *x, int64_t first, int64_t end) {
  float top = __uint_as_float(0xff800000u);
  SF_CUDA_FOR_COLUMNS(j, first, end) top = sf_cuda_max(top, x[j]);
  return sf_cuda_block_max(top);
}

#endif
