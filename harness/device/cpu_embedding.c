/* Word embedding on a shard of the vocabulary. Rows that occur several times are added in row order. */
#include "harness/device/cpu.h"
#include "harness/device/vec.h"

static void cpu_embedding_fwd(struct sf_device *dev, float *y, const float *w, const int32_t *ids, int64_t rows, int64_t cols,
                              int64_t first, int64_t vocab) {
  (void)dev;
  const size_t row_bytes = (size_t)cols * sizeof(float);
  for (int64_t r = 0; r < rows; r++, y += cols) {
    const int64_t local = ids[r] - first;
    if (local >= 0 && local < vocab)
      memcpy(y, w + local * cols, row_bytes);
    else
      memset(y, 0, row_bytes);
  }
}

static void cpu_embedding_bwd(struct sf_device *dev, float *dw, const float *dy, const int32_t *ids, int64_t rows, int64_t cols,
                              int64_t first, int64_t vocab) {
  (void)dev;
  for (int64_t r = 0; r < rows; r++, dy += cols) {
    const int64_t local = ids[r] - first;
    if (local < 0 || local >= vocab) continue;
    float *to = dw + local * cols;
    for (int64_t j = 0; j < cols; j += SF_LANES)
      sf_vec_store(to + j, cols - j, sf_vec_load(to + j, cols - j) + sf_vec_load(dy + j, cols - j));
  }
}

void sf_cpu_fill_embedding(struct sf_device_ops *ops) {
  ops->embedding_fwd = cpu_embedding_fwd;
  ops->embedding_bwd = cpu_embedding_bwd;
}
