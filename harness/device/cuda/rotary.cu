/* Rotary position embedding, rotate-half pairing; a thread per pair. */
#include "harness/device/cuda/cuda.cuh"

extern "C" {
#include "harness/base/assert.h"
}

struct rotate_args {
  float *y;
  const float *x, *cos_sin; /* the table from the first position used on */
  int64_t ldy, ldx, rows, rows_per_position, half;
  float sign;
  enum sf_dtype store;
};

__global__ static void rotate_kernel(struct rotate_args p) {
  SF_CUDA_FOR_EACH(i, p.rows * p.half) {
    const int64_t r = i / p.half, j = i % p.half;
    const float *table = p.cos_sin + r / p.rows_per_position * 2 * p.half, *from = p.x + r * p.ldx;
    const float c = table[j], s = p.sign * table[p.half + j], a = from[j], b = from[p.half + j];
    p.y[r * p.ldy + j] = sf_round(a * c - b * s, p.store);
    p.y[r * p.ldy + p.half + j] = sf_round(b * c + a * s, p.store);
  }
}

void sf_cuda_rotate(struct sf_device *dev, float *y, int64_t ldy, const float *x, int64_t ldx, const float *cos_sin, int64_t rows,
                    int64_t rows_per_position, int64_t position_first, int64_t head_dim, bool inverse, enum sf_dtype store) {
  struct rotate_args p = {};
  SF_ASSERT_EQ(head_dim % 2, 0);
  if (rows == 0 || head_dim == 0) return;
  struct sf_cuda_call call(dev);
  const int64_t positions = (rows - 1) / rows_per_position + 1;
  p.x = sf_cuda_in(&call, x, sf_cuda_span(rows, head_dim, ldx));
  p.cos_sin = sf_cuda_in(&call, cos_sin + position_first * head_dim, positions * head_dim);
  p.y = sf_cuda_inout(&call, y, sf_cuda_span(rows, head_dim, ldy));
  p.ldy = ldy, p.ldx = ldx, p.rows = rows, p.rows_per_position = rows_per_position, p.half = head_dim / 2;
  p.sign = inverse ? -1.0f : 1.0f, p.store = store;
  SF_CUDA_EACH(&call, rotate_kernel, rows * p.half, p);
}
