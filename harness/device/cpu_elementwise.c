/* Additions, casts and sums. col_sum keeps the running sums of four vectors of columns in registers, rows in ascending order. */
#include "harness/device/cpu.h"
#include "harness/device/vec.h"

static void cpu_bias_add(struct sf_device *dev, float *y, const float *x, const float *bias, int64_t rows, int64_t cols,
                         enum sf_dtype store) {
  (void)dev;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t j = 0; j < cols; j += SF_LANES) {
      const int64_t at = r * cols + j, left = cols - j;
      sf_vec_store(y + at, left, sf_vec_round(sf_vec_load(x + at, left) + sf_vec_load(bias + j, left), store));
    }
}

static void col_sum_four(float *out, const float *x, int64_t rows, int64_t cols) {
  sf_vec sum[4] = {{0}, {0}, {0}, {0}};
  for (int64_t r = 0; r < rows; r++)
    for (int v = 0; v < 4; v++) sum[v] += sf_vec_load_whole(x + r * cols + v * SF_LANES);
  for (int v = 0; v < 4; v++) sf_vec_store_whole(out + v * SF_LANES, sf_vec_load_whole(out + v * SF_LANES) + sum[v]);
}

static void cpu_col_sum(struct sf_device *dev, float *out, const float *x, int64_t rows, int64_t cols) {
  (void)dev;
  int64_t j = 0;
  for (; j + 4 * SF_LANES <= cols; j += 4 * SF_LANES) col_sum_four(out + j, x + j, rows, cols);
  for (; j < cols; j += SF_LANES) {
    const int64_t left = cols - j;
    sf_vec sum = {0};
    for (int64_t r = 0; r < rows; r++) sum += sf_vec_load(x + r * cols + j, left);
    sf_vec_store(out + j, left, sf_vec_load(out + j, left) + sum);
  }
}

static void cpu_add(struct sf_device *dev, float *out, const float *a, const float *b, int64_t count, enum sf_dtype store) {
  (void)dev;
  for (int64_t i = 0; i < count; i += SF_LANES)
    sf_vec_store(out + i, count - i, sf_vec_round(sf_vec_load(a + i, count - i) + sf_vec_load(b + i, count - i), store));
}

/* factor x where kept, else 0, whatever x is. */
SF_VEC_INLINE sf_vec dropped(const float *x, const float *kept, float factor, int64_t left) {
  return sf_vec_select(sf_vec_load(kept, left) > 0.0f, factor * sf_vec_load(x, left), sf_vec_all(0.0f));
}

static void cpu_drop(struct sf_device *dev, float *y, const float *x, const float *kept, float factor, int64_t count, enum sf_dtype store) {
  (void)dev;
  for (int64_t i = 0; i < count; i += SF_LANES)
    sf_vec_store(y + i, count - i, sf_vec_round(dropped(x + i, kept + i, factor, count - i), store));
}

static void cpu_drop_add(struct sf_device *dev, float *out, const float *x, const float *branch, const float *kept, float factor,
                         int64_t count, enum sf_dtype store) {
  (void)dev;
  for (int64_t i = 0; i < count; i += SF_LANES) {
    const sf_vec sum = sf_vec_load(x + i, count - i) + dropped(branch + i, kept + i, factor, count - i);
    sf_vec_store(out + i, count - i, sf_vec_round(sum, store));
  }
}

static void cpu_axpy(struct sf_device *dev, float *out, const float *x, float factor, int64_t count) {
  (void)dev;
  for (int64_t i = 0; i < count; i += SF_LANES)
    sf_vec_store(out + i, count - i, sf_vec_load(out + i, count - i) + factor * sf_vec_load(x + i, count - i));
}

static void cpu_scale(struct sf_device *dev, float *x, float factor, int64_t count) {
  (void)dev;
  for (int64_t i = 0; i < count; i += SF_LANES) sf_vec_store(x + i, count - i, factor * sf_vec_load(x + i, count - i));
}

static void cpu_round(struct sf_device *dev, float *out, const float *x, int64_t count, enum sf_dtype store) {
  (void)dev;
  for (int64_t i = 0; i < count; i += SF_LANES) sf_vec_store(out + i, count - i, sf_vec_round(sf_vec_load(x + i, count - i), store));
}

/* As integers, the sizes of floats keep their order, with NaN above infinity. */
static float cpu_amax(struct sf_device *dev, const float *x, int64_t count) {
  (void)dev;
  sf_uvec most = {0};
  for (int64_t i = 0; i < count; i += SF_LANES) {
    const sf_uvec size = (sf_uvec)sf_vec_load(x + i, count - i) & 0x7fffffffu;
    most = (sf_uvec)sf_vec_select(size > most, (sf_vec)size, (sf_vec)most);
  }
  uint32_t bits = 0;
  for (int i = 0; i < SF_LANES; i++) bits = most[i] > bits ? most[i] : bits;
  float amax;
  memcpy(&amax, &bits, sizeof amax);
  return amax;
}

static void cpu_cast_f8(struct sf_device *dev, float *out, const float *x, float scale, int64_t count, enum sf_dtype format) {
  (void)dev;
  for (int64_t i = 0; i < count; i += SF_LANES)
    sf_vec_store(out + i, count - i, sf_vec_round_f8(scale * sf_vec_load(x + i, count - i), format));
}

typedef double dvec __attribute__((vector_size(SF_LANES * 4)));
typedef float half_vec __attribute__((vector_size(SF_LANES * 2)));

SF_VEC_INLINE dvec widened_half(sf_vec v, int which) {
  half_vec half;
  memcpy(&half, (const char *)&v + which * (int)sizeof half, sizeof half);
  return __builtin_convertvector(half, dvec);
}

/* Squares of floats are exact in double; 32 running sums. */
static double cpu_sum_squares(struct sf_device *dev, const float *x, int64_t count) {
  (void)dev;
  enum { SUMS = 32, VECS = SUMS / SF_LANES };
  dvec sum[VECS][2] = {0};
  for (int64_t block = 0; block < count; block += SUMS)
    for (int64_t v = 0, i = block; v < VECS && i < count; v++, i += SF_LANES) {
      const sf_vec part = sf_vec_load(x + i, count - i);
      const dvec low = widened_half(part, 0), high = widened_half(part, 1);
      sum[v][0] += low * low;
      sum[v][1] += high * high;
    }
  double lane[SUMS];
  memcpy(lane, sum, sizeof lane);
  for (int i = 0; i < 8; i++) lane[i] = (lane[i] + lane[8 + i]) + (lane[16 + i] + lane[24 + i]);
  return ((lane[0] + lane[4]) + (lane[1] + lane[5])) + ((lane[2] + lane[6]) + (lane[3] + lane[7]));
}

void sf_cpu_fill_elementwise(struct sf_device_ops *ops) {
  ops->bias_add = cpu_bias_add;
  ops->col_sum = cpu_col_sum;
  ops->add = cpu_add;
  ops->drop = cpu_drop;
  ops->drop_add = cpu_drop_add;
  ops->axpy = cpu_axpy;
  ops->scale = cpu_scale;
  ops->round = cpu_round;
  ops->amax = cpu_amax;
  ops->cast_f8 = cpu_cast_f8;
  ops->sum_squares = cpu_sum_squares;
}
