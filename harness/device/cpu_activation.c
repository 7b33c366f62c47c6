/* GELU (erf form), SwiGLU and squared ReLU, which rounds twice at most. Worst error seen: GELU 7.3 u, its gradient 7.2 u of the size of its
 * two parts (vec_math.h); in the contract suite SwiGLU 4.5 u, its gradient 6.5 u of the size of its parts. */
#include "harness/device/cpu.h"
#include "harness/device/vec.h"
#include "harness/device/vec_math.h"

static void cpu_gelu_fwd(struct sf_device *dev, float *y, const float *x, int64_t rows, int64_t cols, enum sf_dtype store) {
  (void)dev;
  const int64_t count = rows * cols;
  for (int64_t i = 0; i < count; i += SF_LANES) {
    const sf_vec v = sf_vec_load(x + i, count - i);
    sf_vec cumulative, density;
    sf_vec_normal(&cumulative, &density, v);
    sf_vec_store(y + i, count - i, sf_vec_round(v * cumulative, store));
  }
}

static void cpu_gelu_bwd(struct sf_device *dev, float *dx, const float *dy, const float *x, int64_t rows, int64_t cols,
                         enum sf_dtype store) {
  (void)dev;
  const int64_t count = rows * cols;
  for (int64_t i = 0; i < count; i += SF_LANES) {
    const sf_vec v = sf_vec_load(x + i, count - i);
    sf_vec cumulative, density;
    sf_vec_normal(&cumulative, &density, v);
    sf_vec_store(dx + i, count - i, sf_vec_round(sf_vec_load(dy + i, count - i) * (cumulative + v * density), store));
  }
}

static void cpu_swiglu_fwd(struct sf_device *dev, float *y, const float *x, int64_t rows, int64_t cols, enum sf_dtype store) {
  (void)dev;
  for (int64_t r = 0; r < rows; r++, x += 2 * cols, y += cols)
    for (int64_t j = 0; j < cols; j += SF_LANES) {
      const int64_t left = cols - j;
      const sf_vec gate = sf_vec_load(x + j, left), up = sf_vec_load(x + cols + j, left);
      sf_vec value, complement;
      sf_vec_logistic(&value, &complement, gate);
      sf_vec_store(y + j, left, sf_vec_round(gate * value * up, store));
    }
}

static void cpu_swiglu_bwd(struct sf_device *dev, float *dx, const float *dy, const float *x, int64_t rows, int64_t cols,
                           enum sf_dtype store) {
  (void)dev;
  for (int64_t r = 0; r < rows; r++, dx += 2 * cols, x += 2 * cols, dy += cols)
    for (int64_t j = 0; j < cols; j += SF_LANES) {
      const int64_t left = cols - j;
      const sf_vec gate = sf_vec_load(x + j, left), up = sf_vec_load(x + cols + j, left), grad = sf_vec_load(dy + j, left);
      sf_vec value, complement;
      sf_vec_logistic(&value, &complement, gate);
      const sf_vec slope = value * (1.0f + gate * complement);
      sf_vec_store(dx + j, left, sf_vec_round(grad * up * slope, store));
      sf_vec_store(dx + cols + j, left, sf_vec_round(grad * (gate * value), store));
    }
}

/* max(x, 0); a NaN stays one. */
SF_VEC_INLINE sf_vec positive_part(sf_vec v) { return sf_vec_select(v < 0.0f, sf_vec_all(0.0f), v); }

static void cpu_relu2_fwd(struct sf_device *dev, float *y, const float *x, int64_t rows, int64_t cols, enum sf_dtype store) {
  (void)dev;
  const int64_t count = rows * cols;
  for (int64_t i = 0; i < count; i += SF_LANES) {
    const sf_vec v = positive_part(sf_vec_load(x + i, count - i));
    sf_vec_store(y + i, count - i, sf_vec_round(v * v, store));
  }
}

static void cpu_relu2_bwd(struct sf_device *dev, float *dx, const float *dy, const float *x, int64_t rows, int64_t cols,
                          enum sf_dtype store) {
  (void)dev;
  const int64_t count = rows * cols;
  for (int64_t i = 0; i < count; i += SF_LANES) {
    const sf_vec slope = 2.0f * positive_part(sf_vec_load(x + i, count - i));
    sf_vec_store(dx + i, count - i, sf_vec_round(sf_vec_load(dy + i, count - i) * slope, store));
  }
}

void sf_cpu_fill_activation(struct sf_device_ops *ops) {
#define FILL(constant, text, name, parts)                                                                                                  \
  ops->activation_fwd[constant] = cpu_##name##_fwd, ops->activation_bwd[constant] = cpu_##name##_bwd;
  SF_ACTIVATION_MAP(FILL)
}
