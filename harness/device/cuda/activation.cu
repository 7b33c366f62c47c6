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

__global__ static void gelu_fwd_kernel(float *y, const float *x, int64_t count, enum sf_dtype store) {
  SF_CUDA_FOR_EACH(i, count) y[i] = sf_round(gelu_value(x[i]), store);
}
__global__ static void gelu_bwd_kernel(float *dx, const float *dy, const float *x, int64_t count, enum sf_dtype store) {
  SF_CUDA_FOR_EACH(i, count) dx[i] = sf_round(dy[i] * gelu_slope(x[i]), store);
}
__global__ static void relu2_fwd_kernel(float *y, const float *x, int64_t count, enum sf_dtype store) {
  SF_CUDA_FOR_EACH(i, count) y[i] = sf_round(positive_part(x[i]) * positive_part(x[i]), store);
}
__global__ static void relu2_bwd_kernel(float *dx, const float *dy, const float *x, int64_t count, enum sf_dtype store) {
  SF_CUDA_FOR_EACH(i, count) dx[i] = sf_round(dy[i] * (2.0f * positive_part(x[i])), store);
}

typedef void fwd_kernel(float *y, const float *x, int64_t count, enum sf_dtype store);
typedef void bwd_kernel(float *dx, const float *dy, const float *x, int64_t count, enum sf_dtype store);

static void forward(struct sf_device *dev, fwd_kernel *kernel, float *y, const float *x, int64_t count, enum sf_dtype store) {
  struct sf_cuda_call call;
  sf_cuda_begin(&call, dev);
  const float *from = sf_cuda_in(&call, x, count);
  float *to = sf_cuda_out(&call, y, count);
  SF_CUDA_EACH(&call, kernel, count, to, from, count, store);
  sf_cuda_end(&call);
}

static void backward(struct sf_device *dev, bwd_kernel *kernel, float *dx, const float *dy, const float *x, int64_t count,
                     enum sf_dtype store) {
  struct sf_cuda_call call;
  sf_cuda_begin(&call, dev);
  const float *grad = sf_cuda_in(&call, dy, count), *from = sf_cuda_in(&call, x, count);
  float *to = sf_cuda_out(&call, dx, count);
  SF_CUDA_EACH(&call, kernel, count, to, grad, from, count, store);
  sf_cuda_end(&call);
}

static void gelu_fwd(struct sf_device *dev, float *y, const float *x, int64_t count, enum sf_dtype store) {
  forward(dev, gelu_fwd_kernel, y, x, count, store);
}
static void gelu_bwd(struct sf_device *dev, float *dx, const float *dy, const float *x, int64_t count, enum sf_dtype store) {
  backward(dev, gelu_bwd_kernel, dx, dy, x, count, store);
}
static void relu2_fwd(struct sf_device *dev, float *y, const float *x, int64_t count, enum sf_dtype store) {
  forward(dev, relu2_fwd_kernel, y, x, count, store);
}
static void relu2_bwd(struct sf_device *dev, float *dx, const float *dy, const float *x, int64_t count, enum sf_dtype store) {
  backward(dev, relu2_bwd_kernel, dx, dy, x, count, store);
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

static void swiglu_fwd(struct sf_device *dev, float *y, const float *x, int64_t rows, int64_t cols, enum sf_dtype store) {
  struct sf_cuda_call call;
  sf_cuda_begin(&call, dev);
  const float *from = sf_cuda_in(&call, x, rows * 2 * cols);
  float *to = sf_cuda_out(&call, y, rows * cols);
  SF_CUDA_EACH(&call, swiglu_fwd_kernel, rows * cols, to, from, rows, cols, store);
  sf_cuda_end(&call);
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

static void swiglu_bwd(struct sf_device *dev, float *dx, const float *dy, const float *x, int64_t rows, int64_t cols, enum sf_dtype store) {
  struct sf_cuda_call call;
  sf_cuda_begin(&call, dev);
  const float *grad = sf_cuda_in(&call, dy, rows * cols), *from = sf_cuda_in(&call, x, rows * 2 * cols);
  float *to = sf_cuda_out(&call, dx, rows * 2 * cols);
  SF_CUDA_EACH(&call, swiglu_bwd_kernel, rows * cols, to, grad, from, rows, cols, store);
  sf_cuda_end(&call);
}

void sf_cuda_fill_activation(struct sf_device_ops *ops) {
  ops->gelu_fwd = gelu_fwd;
  ops->gelu_bwd = gelu_bwd;
  ops->swiglu_fwd = swiglu_fwd;
  ops->swiglu_bwd = swiglu_bwd;
  ops->relu2_fwd = relu2_fwd;
  ops->relu2_bwd = relu2_bwd;
}
