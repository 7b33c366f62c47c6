/* LayerNorm and RMSNorm. Two passes: the mean first, then squares of the distances from it. Row sums run in 32 lanes, their tree in a
 * fixed order; sums over rows (dw, db) in ascending row order.
 * Error: worst seen in the contract suite, of the bounds written there: y 0.99 (mean and rstd to cols / 16 + 8 roundoffs), dx, dw, db 0.56.
 */
#include "harness/device/cpu.h"
#include "harness/device/vec.h"

#include <math.h>

static const float epsilon = 1e-5f;

static float row_sum(const float *x, int64_t cols) {
  struct sf_sums even = {0}, odd = {0};
  int64_t j = 0;
  for (; j + 2 * SF_SUM_LANES <= cols; j += 2 * SF_SUM_LANES) {
    sf_sums_add_whole(&even, x + j);
    sf_sums_add_whole(&odd, x + j + SF_SUM_LANES);
  }
  SF_EACH_PART(p, at, j, cols) even.part[p] += sf_vec_load(x + at, cols - at);
  sf_sums_merge(&even, &odd);
  return sf_sums_total(&even);
}

static float row_square_distance(const float *x, float mean, int64_t cols) {
  struct sf_sums even = {0}, odd = {0};
  int64_t j = 0;
  for (; j + 2 * SF_SUM_LANES <= cols; j += 2 * SF_SUM_LANES)
    for (int p = 0; p < SF_PARTS; p++) {
      const float *at = x + j + p * SF_LANES;
      const sf_vec a = sf_vec_load_whole(at) - mean, b = sf_vec_load_whole(at + SF_SUM_LANES) - mean;
      even.part[p] += a * a;
      odd.part[p] += b * b;
    }
  SF_EACH_PART(p, at, j, cols) {
    const sf_vec a = sf_vec_keep_first(sf_vec_load(x + at, cols - at) - mean, cols - at, 0.0f);
    even.part[p] += a * a;
  }
  sf_sums_merge(&even, &odd);
  return sf_sums_total(&even);
}

static void cpu_norm_fwd(struct sf_device *dev, float *y, float *stats, const float *x, const float *w, const float *b, int64_t rows,
                         int64_t cols, enum sf_norm norm, enum sf_dtype store) {
  (void)dev;
  const bool layer = norm == SF_NORM_LAYER;
  for (int64_t r = 0; r < rows; r++, x += cols, y += cols) {
    const float mean = layer ? row_sum(x, cols) / (float)cols : 0.0f;
    const float rstd = 1.0f / sqrtf(row_square_distance(x, mean, cols) / (float)cols + epsilon);
    stats[2 * r] = mean;
    stats[2 * r + 1] = rstd;
    for (int64_t j = 0; j < cols; j += SF_LANES) {
      const int64_t left = cols - j;
      sf_vec v = (sf_vec_load(x + j, left) - mean) * rstd * sf_vec_load(w + j, left);
      if (layer && b) v += sf_vec_load(b + j, left);
      sf_vec_store(y + j, left, sf_vec_round(v, store));
    }
  }
}

/* dw and db of one block of columns. */
SF_VEC_INLINE void norm_bwd_vectors(float *dw, float *db, const float *dy, const float *x, const float *stats, int64_t rows, int64_t cols,
                                    int64_t left) {
  sf_vec dw_sum = {0}, db_sum = {0};
  for (int64_t r = 0; r < rows; r++) {
    const sf_vec grad = sf_vec_load(dy + r * cols, left);
    dw_sum += grad * ((sf_vec_load(x + r * cols, left) - stats[2 * r]) * stats[2 * r + 1]);
    db_sum += grad;
  }
  if (dw) sf_vec_store(dw, left, sf_vec_load(dw, left) + dw_sum);
  if (db) sf_vec_store(db, left, sf_vec_load(db, left) + db_sum);
}

static void norm_bwd_row(float *dx, const float *dy, const float *x, float mean, float rstd, const float *w, int64_t cols, bool layer,
                         enum sf_dtype store) {
  struct sf_sums sum = {0}, dot = {0};
  SF_EACH_PART(p, j, 0, cols) {
    const int64_t left = cols - j;
    const sf_vec g = sf_vec_load(dy + j, left) * sf_vec_load(w + j, left);
    sum.part[p] += g;
    dot.part[p] += sf_vec_keep_first(g * ((sf_vec_load(x + j, left) - mean) * rstd), left, 0.0f);
  }
  const float g_mean = layer ? sf_sums_total(&sum) / (float)cols : 0.0f, g_dot = sf_sums_total(&dot) / (float)cols;
  for (int64_t j = 0; j < cols; j += SF_LANES) {
    const int64_t left = cols - j;
    const sf_vec g = sf_vec_load(dy + j, left) * sf_vec_load(w + j, left);
    const sf_vec x_hat = (sf_vec_load(x + j, left) - mean) * rstd;
    sf_vec_store(dx + j, left, sf_vec_round((g - g_mean - x_hat * g_dot) * rstd, store));
  }
}

static void cpu_norm_bwd(struct sf_device *dev, float *dx, float *dw, float *db, const float *dy, const float *x, const float *stats,
                         const float *w, int64_t rows, int64_t cols, enum sf_norm norm, enum sf_dtype store) {
  (void)dev;
  if (dw || db)
    for (int64_t j = 0; j < cols; j += SF_LANES)
      norm_bwd_vectors(dw ? dw + j : NULL, db ? db + j : NULL, dy + j, x + j, stats, rows, cols, cols - j);
  if (!dx) return;
  for (int64_t r = 0; r < rows; r++)
    norm_bwd_row(dx + r * cols, dy + r * cols, x + r * cols, stats[2 * r], stats[2 * r + 1], w, cols, norm == SF_NORM_LAYER, store);
}

void sf_cpu_fill_norm(struct sf_device_ops *ops) {
  ops->norm_fwd = cpu_norm_fwd;
  ops->norm_bwd = cpu_norm_bwd;
}
