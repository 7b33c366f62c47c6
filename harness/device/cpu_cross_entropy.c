/* The pieces of cross-entropy on a shard of the vocabulary. Sums run in 32 lanes. A NaN in a row makes its maximum NaN.
 * Error: within the contract suite's bounds: sum of exponentials cols / 32 + 9 roundoffs plus each distance from the maximum times u. */
#include "harness/device/cpu.h"
#include "harness/device/vec.h"
#include "harness/device/vec_math.h"

#include <math.h>

static float row_max(const float *x, int64_t cols) {
  sf_vec top = sf_vec_all(-INFINITY);
  sf_ivec nan = {0};
  for (int64_t j = 0; j < cols; j += SF_LANES) {
    const sf_vec v = sf_vec_keep_first(sf_vec_load(x + j, cols - j), cols - j, -INFINITY);
    nan |= v != v;
    top = sf_vec_max(top, v);
  }
  return sf_vec_max_lane((sf_vec)(nan & 1)) > 0.0f ? NAN : sf_vec_max_lane(top);
}

static void cpu_ce_row_max(struct sf_device *dev, float *max, const float *logits, int64_t rows, int64_t cols) {
  (void)dev;
  for (int64_t r = 0; r < rows; r++) max[r] = row_max(logits + r * cols, cols);
}

static float row_sum_exp(const float *x, float max, int64_t cols) {
  struct sf_sums even = {0}, odd = {0};
  int64_t j = 0;
  for (; j + 2 * SF_SUM_LANES <= cols; j += 2 * SF_SUM_LANES)
    for (int p = 0; p < SF_PARTS; p++) {
      const float *at = x + j + p * SF_LANES;
      even.part[p] += sf_vec_exp(sf_vec_load_whole(at) - max);
      odd.part[p] += sf_vec_exp(sf_vec_load_whole(at + SF_SUM_LANES) - max);
    }
  SF_EACH_PART(p, at, j, cols) even.part[p] += sf_vec_keep_first(sf_vec_exp(sf_vec_load(x + at, cols - at) - max), cols - at, 0.0f);
  sf_sums_merge(&even, &odd);
  return sf_sums_total(&even);
}

static void cpu_ce_sum_exp(struct sf_device *dev, float *sum, float *target, const float *logits, const float *max, const int32_t *labels,
                           int64_t rows, int64_t cols, int64_t first) {
  (void)dev;
  for (int64_t r = 0; r < rows; r++, logits += cols) {
    const int64_t local = labels[r] - first;
    sum[r] = row_sum_exp(logits, max[r], cols);
    target[r] = local >= 0 && local < cols ? logits[local] - max[r] : 0.0f;
  }
}

static void cpu_ce_sum_shifted(struct sf_device *dev, float *shifted, const float *logits, const float *max, int64_t rows, int64_t cols) {
  (void)dev;
  for (int64_t r = 0; r < rows; r++, logits += cols) {
    struct sf_sums sums = {0};
    SF_EACH_PART(p, j, 0, cols)
      sums.part[p] += sf_vec_keep_first(sf_vec_load(logits + j, cols - j) - max[r], cols - j, 0.0f);
    shifted[r] = sf_sums_total(&sums);
  }
}

static void cpu_ce_grad(struct sf_device *dev, float *dlogits, const float *logits, const float *max, const float *sum,
                        const int32_t *labels, const float *weight, int64_t rows, int64_t cols, int64_t first, float label_share,
                        float other_share, enum sf_dtype store) {
  (void)dev;
  for (int64_t r = 0; r < rows; r++, logits += cols, dlogits += cols) {
    const int64_t local = labels[r] - first;
    for (int64_t j = 0; j < cols; j += SF_LANES) {
      const int64_t left = cols - j;
      const sf_ivec is_target = sf_vec_lane_numbers() == (int32_t)(local >= j && local < j + SF_LANES ? local - j : -1);
      const sf_vec p = sf_vec_exp(sf_vec_load(logits + j, left) - max[r]) / sum[r];
      const sf_vec shares = other_share + (sf_vec)(is_target & (sf_ivec)sf_vec_all(label_share));
      sf_vec_store(dlogits + j, left, sf_vec_round((p - shares) * weight[r], store));
    }
  }
}

void sf_cpu_fill_cross_entropy(struct sf_device_ops *ops) {
  ops->ce_row_max = cpu_ce_row_max;
  ops->ce_sum_exp = cpu_ce_sum_exp;
  ops->ce_sum_shifted = cpu_ce_sum_shifted;
  ops->ce_grad = cpu_ce_grad;
}
