/* Additions, dropout and casts. */
#include "harness/device/cuda/cuda.cuh"

__global__ static void bias_add_kernel(float *y, const float *x, const float *bias, int64_t count, int64_t cols, enum sf_dtype store) {
  SF_CUDA_FOR_EACH(i, count) y[i] = sf_round(x[i] + bias[i % cols], store);
}

void sf_cuda_bias_add(struct sf_device *dev, float *y, const float *x, const float *bias, int64_t rows, int64_t cols,
                      enum sf_dtype store) {
  const int64_t count = rows * cols;
  struct sf_cuda_call call(dev);
  const float *from = sf_cuda_in(&call, x, count), *added = sf_cuda_in(&call, bias, rows > 0 ? cols : 0);
  float *to = sf_cuda_out(&call, y, count);
  SF_CUDA_EACH(&call, bias_add_kernel, count, to, from, added, count, cols, store);
}

__global__ static void add_kernel(float *out, const float *a, const float *b, int64_t count, enum sf_dtype store) {
  SF_CUDA_FOR_EACH(i, count) out[i] = sf_round(a[i] + b[i], store);
}

void sf_cuda_add(struct sf_device *dev, float *out, const float *a, const float *b, int64_t count, enum sf_dtype store) {
  struct sf_cuda_call call(dev);
  const float *first = sf_cuda_in(&call, a, count), *second = sf_cuda_in(&call, b, count);
  float *to = sf_cuda_out(&call, out, count);
  SF_CUDA_EACH(&call, add_kernel, count, to, first, second, count, store);
}

/* x NULL: nothing to add to. */
__global__ static void drop_kernel(float *y, const float *x, const float *branch, const float *kept, float factor, int64_t count,
                                   enum sf_dtype store) {
  SF_CUDA_FOR_EACH(i, count) {
    const float dropped = kept[i] > 0.0f ? factor * branch[i] : 0.0f;
    y[i] = sf_round(x ? x[i] + dropped : dropped, store);
  }
}

void sf_cuda_drop_add(struct sf_device *dev, float *out, const float *x, const float *branch, const float *kept, float factor,
                      int64_t count, enum sf_dtype store) {
  struct sf_cuda_call call(dev);
  const float *base = sf_cuda_in(&call, x, count), *from = sf_cuda_in(&call, branch, count), *mask = sf_cuda_in(&call, kept, count);
  float *to = sf_cuda_out(&call, out, count);
  SF_CUDA_EACH(&call, drop_kernel, count, to, base, from, mask, factor, count, store);
}

void sf_cuda_drop(struct sf_device *dev, float *y, const float *x, const float *kept, float factor, int64_t count, enum sf_dtype store) {
  sf_cuda_drop_add(dev, y, NULL, x, kept, factor, count, store);
}

__global__ static void axpy_kernel(float *out, const float *x, float factor, int64_t count) {
  SF_CUDA_FOR_EACH(i, count) out[i] = out[i] + factor * x[i];
}

void sf_cuda_axpy(struct sf_device *dev, float *out, const float *x, float factor, int64_t count) {
  struct sf_cuda_call call(dev);
  const float *from = sf_cuda_in(&call, x, count);
  float *to = sf_cuda_inout(&call, out, count);
  SF_CUDA_EACH(&call, axpy_kernel, count, to, from, factor, count);
}

__global__ static void scale_kernel(float *x, float factor, int64_t count) {
  SF_CUDA_FOR_EACH(i, count) x[i] = factor * x[i];
}

void sf_cuda_scale(struct sf_device *dev, float *x, float factor, int64_t count) {
  struct sf_cuda_call call(dev);
  float *at = sf_cuda_inout(&call, x, count);
  SF_CUDA_EACH(&call, scale_kernel, count, at, factor, count);
}

__global__ static void round_kernel(float *out, const float *x, int64_t count, enum sf_dtype store) {
  SF_CUDA_FOR_EACH(i, count) out[i] = sf_round(x[i], store);
}

void sf_cuda_round(struct sf_device *dev, float *out, const float *x, int64_t count, enum sf_dtype store) {
  struct sf_cuda_call call(dev);
  const float *from = sf_cuda_in(&call, x, count);
  float *to = sf_cuda_out(&call, out, count);
  SF_CUDA_EACH(&call, round_kernel, count, to, from, count, store);
}

__global__ static void cast_f8_kernel(float *out, const float *x, float factor, int64_t count, enum sf_dtype format) {
  SF_CUDA_FOR_EACH(i, count) out[i] = sf_f8_round(factor * x[i], format);
}

void sf_cuda_cast_f8(struct sf_device *dev, float *out, const float *x, float factor, int64_t count, enum sf_dtype format) {
  struct sf_cuda_call call(dev);
  const float *from = sf_cuda_in(&call, x, count);
  float *to = sf_cuda_out(&call, out, count);
  SF_CUDA_EACH(&call, cast_f8_kernel, count, to, from, factor, count, format);
}
