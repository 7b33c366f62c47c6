/* The pieces of cross-entropy on a shard of the vocabulary, a block per row. A NaN in a row makes its maximum NaN. */
#include "harness/device/cuda/math.cuh"

__global__ static void row_max_kernel(float *max, const float *logits, int64_t rows, int64_t cols) {
  SF_CUDA_FOR_ROWS(r, rows) {
    const float *x = logits + r * cols;
    bool nan = false;
    SF_CUDA_FOR_COLUMNS(j, 0, cols) nan = nan || x[j] != x[j];
    nan = sf_cuda_block_any(nan);
    const float top = sf_cuda_row_max(x, 0, cols);
    if (threadIdx.x == 0) max[r] = nan ? __uint_as_float(0x7fc00000u) : top;
  }
}

void sf_cuda_ce_row_max(struct sf_device *dev, float *max, const float *logits, int64_t rows, int64_t cols) {
  struct sf_cuda_call call(dev);
  const float *from = sf_cuda_in(&call, logits, rows * cols);
  float *to = sf_cuda_out(&call, max, rows);
  SF_CUDA_ROWS(&call, row_max_kernel, rows, to, from, rows, cols);
}

struct sums_args {
  float *sum, *target; /* target NULL: the sum is that of x - max, else of exp(x - max) */
  const float *logits, *max;
  const int32_t *labels;
  int64_t rows, cols, first;
};

__global__ static void sums_kernel(struct sums_args a) {
  SF_CUDA_FOR_ROWS(r, a.rows) {
    const float *x = a.logits + r * a.cols, max = a.max[r];
    float part = 0.0f;
    SF_CUDA_FOR_COLUMNS(j, 0, a.cols) part += a.target ? sf_cuda_exp(x[j] - max) : x[j] - max;
    const float sum = sf_cuda_block_sum(part);
    if (threadIdx.x != 0) continue;
    a.sum[r] = sum;
    if (!a.target) continue;
    const int64_t local = a.labels[r] - a.first;
    a.target[r] = local >= 0 && local < a.cols ? x[local] - max : 0.0f;
  }
}

void sf_cuda_ce_sum_exp(struct sf_device *dev, float *sum, float *target, const float *logits, const float *max, const int32_t *labels,
                        int64_t rows, int64_t cols, int64_t first) {
  struct sums_args a = {};
  struct sf_cuda_call call(dev);
  a.logits = sf_cuda_in(&call, logits, rows * cols);
  a.max = sf_cuda_in(&call, max, rows);
  a.labels = sf_cuda_in(&call, labels, rows);
  a.sum = sf_cuda_out(&call, sum, rows);
  a.target = sf_cuda_out(&call, target, rows);
  a.rows = rows, a.cols = cols, a.first = first;
  SF_CUDA_ROWS(&call, sums_kernel, rows, a);
}

void sf_cuda_ce_sum_shifted(struct sf_device *dev, float *shifted, const float *logits, const float *max, int64_t rows, int64_t cols) {
  struct sums_args a = {};
  struct sf_cuda_call call(dev);
  a.logits = sf_cuda_in(&call, logits, rows * cols);
  a.max = sf_cuda_in(&call, max, rows);
  a.sum = sf_cuda_out(&call, shifted, rows);
  a.rows = rows, a.cols = cols;
  SF_CUDA_ROWS(&call, sums_kernel, rows, a);
}

struct grad_args {
  float *out;
  const float *logits, *max, *sum, *weight;
  const int32_t *labels;
  int64_t rows, cols, first;
  float label_share, other_share;
  enum sf_dtype store;
};

__global__ static void grad_kernel(struct grad_args a) {
  SF_CUDA_FOR_EACH(i, a.rows * a.cols) {
    const int64_t r = i / a.cols, j = i % a.cols;
    const float p = sf_cuda_exp(a.logits[i] - a.max[r]) / a.sum[r];
    const float shares = a.other_share + (a.labels[r] - a.first == j ? a.label_share : 0.0f);
    a.out[i] = sf_round((p - shares) * a.weight[r], a.store);
  }
}

void sf_cuda_ce_grad(struct sf_device *dev, float *dlogits, const float *logits, const float *max, const float *sum, const int32_t *labels,
                     const float *weight, int64_t rows, int64_t cols, int64_t first, float label_share, float other_share,
                     enum sf_dtype store) {
  struct grad_args a = {};
  struct sf_cuda_call call(dev);
  a.logits = sf_cuda_in(&call, logits, rows * cols);
  a.max = sf_cuda_in(&call, max, rows);
  a.sum = sf_cuda_in(&call, sum, rows);
  a.weight = sf_cuda_in(&call, weight, rows);
  a.labels = sf_cuda_in(&call, labels, rows);
  a.out = sf_cuda_out(&call, dlogits, rows * cols);
  a.rows = rows, a.cols = cols, a.first = first, a.label_share = label_share, a.other_share = other_share, a.store = store;
  SF_CUDA_EACH(&call, grad_kernel, rows * cols, a);
}
