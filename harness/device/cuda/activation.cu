/* GELU (erf form), SwiGLU and squared ReLU. */
#include "harness/device/cuda/math.cuh"

__device__ static inline float gelu_slope(float x) {
  float cumulative, density;
  sf_cuda_normal(&cumulative, &density, x);
  return cumulative + x * density;
}
__device__ static inline float gelu_value(float x) {
  float cumulative, density;
  sf_cuda_normal(&cumulative, &density, x);
  return x * cumulative;
}
/* max(x, 0); a NaN stays one. */
__device__ static inline float positive_part(float x) { return x < 0.0f ? 0.0f : x; }

__global__ static void gelu_fwd_kernel(float *y, const float *x, int64_t rows, int64_t cols, enum sf_dtype store) {
  SF_CUDA_FOR_EACH(i, rows * cols) y[i] = sf_round(gelu_value(x[i]), store);
}
__global__ static void gelu_bwd_kernel(float *dx, const float *dy, const float *x, int64_t rows, int64_t cols, enum sf_dtype store) {
  SF_CUDA_FOR_EACH(i, rows * cols) dx[i] = sf_round(dy[i] * gelu_slope(x[i]), store);
}
__global__ static void relu2_fwd_kernel(float *y, const float *x, int64_t rows, int64_t cols, enum sf_dtype store) {
  SF_CUDA_FOR_EACH(i, rows * cols) y[i] = sf_round(positive_part(x[i]) * positive_part(x[i]), store);
}
__global__ static void relu2_bwd_kernel(float *dx, const float *dy, const float *x, int64_t rows, int64_t cols, enum sf_dtype store) {
  SF_CUDA_FOR_EACH(i, rows * cols) dx[i] = sf_round(dy[i] * (2.0f * positive_part(x[i])), store);
}

__global__ static void swiglu_fwd_kernel(float *y, const float *x, int64_t rows, int64_t cols, enum sf_dtype store) {
  SF_CUDA_FOR_EACH(i, rows * cols) {
    const float *row = x + i / cols * 2 * cols;
    const float gate = row[i % cols], up = row[cols + i % cols];
    float value, complement;
    sf_cuda_logistic(&value, &complement, gate);
    y[i] = sf_round(gate * value * up, store);
  }
}

__global__ static void swiglu_bwd_kernel(float *dx, const float *dy, const float *x, int64_t rows, int64_t cols, enum sf_dtype store) {
  SF_CUDA_FOR_EACH(i, rows * cols) {
    const int64_t at = i / cols * 2 * cols + i % cols;
    const float gate = x[at], up = x[at + cols], grad = dy[i];
    float value, complement;
    sf_cuda_logistic(&value, &complement, gate);
    const float slope = value * (1.0f + gate * complement);
    dx[at] = sf_round(grad * up * slope, store);
    dx[at + cols] = sf_round(grad * (gate * value), store);
  }
}

typedef void fwd_kernel(float *y, const float *x, int64_t rows, int64_t cols, enum sf_dtype store);
typedef void bwd_kernel(float *dx, const float *dy, const float *x, int64_t rows, int64_t cols, enum sf_dtype store);

/* parts: as of SF_ACTIVATION_MAP. */
static void forward(struct sf_device *dev, fwd_kernel *kernel, int64_t parts, float *y, const float *x, int64_t rows, int64_t cols,
                    enum sf_dtype store) {
  struct sf_cuda_call call(dev);
  const float *from = sf_cuda_in(&call, x, rows * parts * cols);
  float *to = sf_cuda_out(&call, y, rows * cols);
  SF_CUDA_EACH(&call, kernel, rows * cols, to, from, rows, cols, store);
}

static void backward(struct sf_device *dev, bwd_kernel *kernel, int64_t parts, float *dx, const float *dy, const float *x, int64_t rows,
                     int64_t cols, enum sf_dtype store) {
  struct sf_cuda_call call(dev);
  const float *grad = sf_cuda_in(&call, dy, rows * cols), *from = sf_cuda_in(&call, x, rows * parts * cols);
  float *to = sf_cuda_out(&call, dx, rows * parts * cols);
  SF_CUDA_EACH(&call, kernel, rows * cols, to, grad, from, rows, cols, store);
}

#define ACTIVATION(constant, text, name, parts)                                                                                            \
  void sf_cuda_##name##_fwd(struct sf_device *dev, float *y, const float *x, int64_t rows, int64_t cols, enum sf_dtype store) {            \
    forward(dev, name##_fwd_kernel, parts, y, x, rows, cols, store);                                                                       \
  }                                                                                                                                        \
  void sf_cuda_##name##_bwd(struct sf_device *dev, float *dx, const float *dy, const float *x, int64_t rows, int64_t cols,                 \
                            enum sf_dtype store) {                                                                                         \
    backward(dev, name##_bwd_kernel, parts, dx, dy, x, rows, cols, store);                                                                 \
  }
SF_ACTIVATION_MAP(ACTIVATION)
