/* Causal softmax of one head, a block per row. */
#include "harness/device/cuda/softmax.cuh"

struct fwd_args {
  float *p;
  const float *s;
  int64_t n, window;
  float *sink_probs; /* NULL: no sink */
  float sink_logit;
  enum sf_dtype store;
};

/* The first column that row i sees. */
__device__ static inline int64_t first_seen(int64_t i, int64_t window) { return window > 0 && i >= window ? i + 1 - window : 0; }

__global__ static void fwd_kernel(struct fwd_args a) {
  SF_CUDA_FOR_ROWS(i, a.n) {
    const float *s = a.s + i * a.n;
    float *p = a.p + i * a.n;
    const int64_t first = first_seen(i, a.window), end = i + 1;
    const float scores_top = sf_cuda_row_max(s, first, end);
    const float top = a.sink_probs && a.sink_logit > scores_top ? a.sink_logit : scores_top;
    float part = 0.0f;
    SF_CUDA_FOR_COLUMNS(j, first, end) part += sf_cuda_exp(s[j] - top);
    const float sink_exp = a.sink_probs ? sf_cuda_exp(a.sink_logit - top) : 0.0f, sum = sf_cuda_block_sum(part) + sink_exp;
    SF_CUDA_FOR_COLUMNS(j, 0, a.n) p[j] = j >= first && j < end ? sf_round(sf_cuda_exp(s[j] - top) / sum, a.store) : 0.0f;
    if (a.sink_probs && threadIdx.x == 0) a.sink_probs[i] = sink_exp / sum;
  }
}

static void causal_softmax_fwd(struct sf_device *dev, float *p, const float *s, int64_t n, int64_t window, const struct sf_sink *sink,
                               enum sf_dtype store) {
  struct sf_cuda_call call;
  struct fwd_args a = {};
  sf_cuda_begin(&call, dev);
  a.s = sf_cuda_in(&call, s, n * n);
  a.p = sf_cuda_out(&call, p, n * n);
  a.sink_probs = sink && n > 0 ? sf_cuda_out(&call, sink->probs, n) : NULL;
  a.sink_logit = sink ? sink->logit : 0.0f;
  a.n = n, a.window = window, a.store = store;
  SF_CUDA_ROWS(&call, fwd_kernel, n, a);
  sf_cuda_end(&call);
}

struct bwd_args {
  float *ds, *dots; /* dots NULL: not wanted */
  const float *dp, *p;
  int64_t n, window;
  enum sf_dtype store;
};

__global__ static void bwd_kernel(struct bwd_args a) {
  SF_CUDA_FOR_ROWS(i, a.n) {
    const int64_t at = i * a.n;
    const float dot = sf_cuda_softmax_bwd_row(a.ds + at, a.dp + at, a.p + at, first_seen(i, a.window), i + 1, a.n, a.store);
    if (a.dots && threadIdx.x == 0) a.dots[i] = dot;
  }
}

static void causal_softmax_bwd(struct sf_device *dev, float *ds, const float *dp, const float *p, int64_t n, int64_t window,
                               const struct sf_sink *sink, enum sf_dtype store) {
  struct sf_cuda_call call;
  struct bwd_args a = {};
  if (n == 0) return;
  sf_cuda_begin(&call, dev);
  a.dp = sf_cuda_in(&call, dp, n * n);
  a.p = sf_cuda_in(&call, p, n * n);
  a.ds = sf_cuda_out(&call, ds, n * n);
  const struct sf_cuda_sink placed = sf_cuda_softmax_sink_place(&call, sink, n);
  a.dots = placed.dots;
  a.n = n, a.window = window, a.store = store;
  SF_CUDA_ROWS(&call, bwd_kernel, n, a);
  sf_cuda_softmax_sink_grad(&call, &placed, n);
  sf_cuda_end(&call);
}

void sf_cuda_fill_softmax(struct sf_device_ops *ops) {
  ops->causal_softmax_fwd = causal_softmax_fwd;
  ops->causal_softmax_bwd = causal_softmax_bwd;
}
