/* Causal softmax of one head. Exponentials stand in p, unrounded, between the two passes; sums run in 16 lanes.
 * Error: worst seen in the contract suite, of the bounds written there (relative, n / 16 + 10 roundoffs plus the distance from the row
 * maximum times u): forward 0.82, backward 0.86. */
#include "harness/device/cpu.h"
#include "harness/device/vec.h"
#include "harness/device/vec_math.h"

#include <math.h>

static float row_max(const float *s, int64_t count) {
  sf_vec top = sf_vec_all(-INFINITY);
  for (int64_t j = 0; j < count; j += SF_LANES)
    top = sf_vec_max(top, sf_vec_keep_first(sf_vec_load(s + j, count - j), count - j, -INFINITY));
  return sf_vec_max_lane(top);
}

static void clear_from(float *row, int64_t from, int64_t n) { memset(row + from, 0, (size_t)(n - from) * sizeof(float)); }

static void cpu_causal_softmax_fwd(struct sf_device *dev, float *p, const float *s, int64_t n, enum sf_dtype store) {
  (void)dev;
  for (int64_t i = 0; i < n; i++, p += n, s += n) {
    const int64_t count = i + 1;
    const float top = row_max(s, count);
    sf_vec lanes = {0};
    for (int64_t j = 0; j < count; j += SF_LANES) {
      const sf_vec e = sf_vec_keep_first(sf_vec_exp(sf_vec_load(s + j, count - j) - top), count - j, 0.0f);
      sf_vec_store(p + j, count - j, e);
      lanes += e;
    }
    const float sum = sf_vec_sum(lanes);
    for (int64_t j = 0; j < count; j += SF_LANES) sf_vec_store(p + j, count - j, sf_vec_round(sf_vec_load(p + j, count - j) / sum, store));
    clear_from(p, count, n);
  }
}

static void cpu_causal_softmax_bwd(struct sf_device *dev, float *ds, const float *dp, const float *p, int64_t n, enum sf_dtype store) {
  (void)dev;
  for (int64_t i = 0; i < n; i++, ds += n, dp += n, p += n) {
    const int64_t count = i + 1;
    sf_vec lanes = {0};
    for (int64_t j = 0; j < count; j += SF_LANES) lanes += sf_vec_load(p + j, count - j) * sf_vec_load(dp + j, count - j);
    const float dot = sf_vec_sum(lanes);
    for (int64_t j = 0; j < count; j += SF_LANES) {
      const sf_vec grad = sf_vec_load(p + j, count - j) * (sf_vec_load(dp + j, count - j) - dot);
      sf_vec_store(ds + j, count - j, sf_vec_round(grad, store));
    }
    clear_from(ds, count, n);
  }
}

void sf_cpu_fill_softmax(struct sf_device_ops *ops) {
  ops->causal_softmax_fwd = cpu_causal_softmax_fwd;
  ops->causal_softmax_bwd = cpu_causal_softmax_bwd;
}
