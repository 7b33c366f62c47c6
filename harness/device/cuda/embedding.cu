/* Word embedding on a shard of the vocabulary. Backward each number of dw belongs to one thread, which adds rows in their order, so that
 * words which occur several times need no atomic sum. */
#include "harness/device/cuda/cuda.cuh"

enum { WORD_GROUPS = 64 }; /* of the vocabulary, worked on at once */

__global__ static void embedding_fwd_kernel(float *y, const float *w, const int32_t *ids, int64_t rows, int64_t cols, int64_t first,
                                            int64_t vocab) {
  SF_CUDA_FOR_EACH(i, rows * cols) {
    const int64_t local = ids[i / cols] - first;
    y[i] = local >= 0 && local < vocab ? w[local * cols + i % cols] : 0.0f;
  }
}

void sf_cuda_embedding_fwd(struct sf_device *dev, float *y, const float *w, const int32_t *ids, int64_t rows, int64_t cols, int64_t first,
                           int64_t vocab) {
  struct sf_cuda_call call(dev);
  const float *words = sf_cuda_in(&call, w, vocab * cols);
  const int32_t *wanted = sf_cuda_in(&call, ids, rows);
  float *to = sf_cuda_out(&call, y, rows * cols);
  SF_CUDA_EACH(&call, embedding_fwd_kernel, rows * cols, to, words, wanted, rows, cols, first, vocab);
}

/* Thread i: column i % cols of the words whose number leaves i / cols when it is divided by WORD_GROUPS. */
__global__ static void embedding_bwd_kernel(float *dw, const float *dy, const int32_t *ids, int64_t rows, int64_t cols, int64_t first,
                                            int64_t vocab) {
  SF_CUDA_FOR_EACH(i, cols * WORD_GROUPS) {
    const int64_t j = i % cols, group = i / cols;
    for (int64_t r = 0; r < rows; r++) {
      const int64_t local = ids[r] - first;
      if (local >= 0 && local < vocab && local % WORD_GROUPS == group) dw[local * cols + j] += dy[r * cols + j];
    }
  }
}

void sf_cuda_embedding_bwd(struct sf_device *dev, float *dw, const float *dy, const int32_t *ids, int64_t rows, int64_t cols, int64_t first,
                           int64_t vocab) {
  struct sf_cuda_call call(dev);
  const float *grad = sf_cuda_in(&call, dy, rows * cols);
  const int32_t *wanted = sf_cuda_in(&call, ids, rows);
  float *to = sf_cuda_inout(&call, dw, vocab * cols);
  SF_CUDA_EACH(&call, embedding_bwd_kernel, cols * WORD_GROUPS, to, grad, wanted, rows, cols, first, vocab);
}
