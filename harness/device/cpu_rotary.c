/* Rotary position embedding, rotate-half pairing (Su et al. 2021, arXiv 2104.09864; Megatron-LM's rotary_interleaved = false). */
#include "harness/base/assert.h"
#include "harness/device/cpu.h"
#include "harness/device/vec.h"

#include <math.h>

static void cpu_rotate(struct sf_device *dev, float *y, int64_t ldy, const float *x, int64_t ldx, const float *cos_sin, int64_t rows,
                       int64_t rows_per_position, int64_t position_first, int64_t head_dim, bool inverse, enum sf_dtype store) {
  (void)dev;
  SF_ASSERT_EQ(head_dim % 2, 0);
  const int64_t half = head_dim / 2;
  const float sign = inverse ? -1.0f : 1.0f;
  for (int64_t r = 0; r < rows; r++) {
    const float *table = cos_sin + (position_first + r / rows_per_position) * head_dim;
    const float *from = x + r * ldx;
    float *to = y + r * ldy;
    for (int64_t j = 0; j < half; j += SF_LANES) {
      const int64_t left = half - j;
      const sf_vec c = sf_vec_load(table + j, left), s = sign * sf_vec_load(table + half + j, left);
      const sf_vec a = sf_vec_load(from + j, left), b = sf_vec_load(from + half + j, left);
      sf_vec_store(to + j, left, sf_vec_round(a * c - b * s, store));
      sf_vec_store(to + half + j, left, sf_vec_round(b * c + a * s, store));
    }
  }
}

void sf_rotary_table(float *cos_sin, int64_t positions, int64_t head_dim) {
  const int64_t half = head_dim / 2;
  for (int64_t i = 0; i < half; i++) {
    const double frequency = pow(10000.0, -2.0 * (double)i / (double)head_dim);
    for (int64_t position = 0; position < positions; position++) {
      const double angle = (double)position * frequency;
      cos_sin[position * head_dim + i] = (float)cos(angle);
      cos_sin[position * head_dim + half + i] = (float)sin(angle);
    }
  }
}

void sf_cpu_fill_rotary(struct sf_device_ops *ops) { ops->rotate = cpu_rotate; }
