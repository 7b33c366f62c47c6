/* Softmax of one head, causal, and of keys that come in blocks of columns: a block of threads per row. */
#include "harness/device/cuda/math.cuh"

struct columns {
  int64_t first, end;
};

__device__ static inline int64_t within(int64_t column, int64_t cols) { return column < 0 ? 0 : column < cols ? column : cols; }

/* The part of the block that a row sees. */
__device__ static inline struct columns seen(const struct sf_block &block, int64_t row) {
  const int64_t end = block.visible + row, last = within(end, block.cols);
  int64_t first = block.window > 0 && end > block.window ? end - block.window : 0;
  if (block.begins != NULL && block.begins[row] - block.column > first) first = block.begins[row] - block.column;
  return {first < last ? first : last, last};
}

/* A head's queries and keys as one block. */
static struct sf_block causal_block(int64_t n, int64_t window) {
  struct sf_block block = {};
  block.rows = block.cols = n, block.visible = 1, block.window = window;
  return block;
}

static struct sf_block place_block(struct sf_cuda_call *call, const struct sf_block *block) {
  struct sf_block placed = *block;
  placed.begins = sf_cuda_in(call, block->begins, block->rows);
  return placed;
}

__global__ static void stats_kernel(float *max, float *sum, const float *s, int64_t lds, struct sf_block block) {
  const float lowest = __uint_as_float(0xff800000u), nan = __uint_as_float(0x7fc00000u);
  SF_CUDA_FOR_ROWS(i, block.rows) {
    const struct columns columns = seen(block, i);
    const float *row = s + i * lds;
    if (columns.first == columns.end) continue; /* the same for all threads */
    const float before = max[i], block_top = sf_cuda_row_max(row, columns.first, columns.end),
                top = before > block_top ? before : block_top;
    float part = 0.0f;
    bool has_nan = false;
    SF_CUDA_FOR_COLUMNS(j, columns.first, columns.end) {
      part += sf_cuda_exp(row[j] - top);
      has_nan = has_nan || row[j] != row[j];
    }
    const float block_sum = sf_cuda_block_sum(part);
    has_nan = sf_cuda_block_any(has_nan); /* after which every thread has read max[i] */
    if (threadIdx.x != 0) continue;
    if (top == lowest) {
      if (has_nan) max[i] = sum[i] = nan;
      continue;
    }
    sum[i] = (before == lowest ? 0.0f : sum[i] * sf_cuda_exp(before - top)) + block_sum;
    max[i] = top;
  }
}

void sf_cuda_block_softmax_stats(struct sf_device *dev, float *max, float *sum, const float *s, int64_t lds,
                                 const struct sf_block *block) {
  struct sf_cuda_call call(dev);
  const struct sf_block placed = place_block(&call, block);
  const float *from = sf_cuda_in(&call, s, sf_cuda_span(block->rows, block->cols, lds));
  float *tops = sf_cuda_inout(&call, max, block->rows), *sums = sf_cuda_inout(&call, sum, block->rows);
  SF_CUDA_ROWS(&call, stats_kernel, block->rows, tops, sums, from, lds, placed);
}

__global__ static void probs_kernel(float *p, int64_t ldp, const float *max, const float *sum, struct sf_block block, enum sf_dtype store) {
  SF_CUDA_FOR_ROWS(i, block.rows) {
    const struct columns columns = seen(block, i);
    float *row = p + i * ldp;
    SF_CUDA_FOR_COLUMNS(j, 0, block.cols)
      row[j] = j >= columns.first && j < columns.end ? sf_round(sf_cuda_exp(row[j] - max[i]) / sum[i], store) : 0.0f;
  }
}

void sf_cuda_block_softmax_probs(struct sf_device *dev, float *p, int64_t ldp, const float *max, const float *sum,
                                 const struct sf_block *block, enum sf_dtype store) {
  struct sf_cuda_call call(dev);
  const struct sf_block placed = place_block(&call, block);
  const float *tops = sf_cuda_in(&call, max, block->rows), *sums = sf_cuda_in(&call, sum, block->rows);
  float *to = sf_cuda_inout(&call, p, sf_cuda_span(block->rows, block->cols, ldp));
  SF_CUDA_ROWS(&call, probs_kernel, block->rows, to, ldp, tops, sums, placed, store);
}

__global__ static void sink_kernel(float *probs, float logit, const float *max, const float *sum, int64_t rows) {
  SF_CUDA_FOR_EACH(i, rows) probs[i] = sf_cuda_exp(logit - max[i]) / sum[i];
}

void sf_cuda_block_softmax_sink(struct sf_device *dev, const struct sf_sink *sink, const float *max, const float *sum, int64_t rows) {
  struct sf_cuda_call call(dev);
  const float *tops = sf_cuda_in(&call, max, rows), *sums = sf_cuda_in(&call, sum, rows);
  float *probs = sf_cuda_out(&call, sink->probs, rows);
  SF_CUDA_EACH(&call, sink_kernel, rows, probs, sink->logit, tops, sums, rows);
}

struct fwd_args {
  float *p;
  const float *s;
  struct sf_block block;
  float *sink_probs; /* NULL: no sink */
  float sink_logit;
  enum sf_dtype store;
};

__global__ static void fwd_kernel(struct fwd_args a) {
  const int64_t n = a.block.cols;
  SF_CUDA_FOR_ROWS(i, n) {
    const struct columns columns = seen(a.block, i);
    const float *s = a.s + i * n;
    float *p = a.p + i * n;
    const float scores_top = sf_cuda_row_max(s, columns.first, columns.end);
    const float top = a.sink_probs && a.sink_logit > scores_top ? a.sink_logit : scores_top;
    float part = 0.0f;
    SF_CUDA_FOR_COLUMNS(j, columns.first, columns.end) part += sf_cuda_exp(s[j] - top);
    const float sink_exp = a.sink_probs ? sf_cuda_exp(a.sink_logit - top) : 0.0f, sum = sf_cuda_block_sum(part) + sink_exp;
    SF_CUDA_FOR_COLUMNS(j, 0, n)
      p[j] = j >= columns.first && j < columns.end ? sf_round(sf_cuda_exp(s[j] - top) / sum, a.store) : 0.0f;
    if (a.sink_probs && threadIdx.x == 0) a.sink_probs[i] = sink_exp / sum;
  }
}

void sf_cuda_causal_softmax_fwd(struct sf_device *dev, float *p, const float *s, int64_t n, int64_t window, const struct sf_sink *sink,
                                enum sf_dtype store) {
  struct fwd_args a = {};
  struct sf_cuda_call call(dev);
  a.s = sf_cuda_in(&call, s, n * n);
  a.p = sf_cuda_out(&call, p, n * n);
  a.sink_probs = sink && n > 0 ? sf_cuda_out(&call, sink->probs, n) : NULL;
  a.sink_logit = sink ? sink->logit : 0.0f;
  a.block = causal_block(n, window), a.store = store;
  SF_CUDA_ROWS(&call, fwd_kernel, n, a);
}

/* ds = round(p (dp - sum_j p dp)) in columns first..end of a row, 0 in the others up to cols; returns the sum. All of the block must call.
 */
__device__ static inline float bwd_row(float *ds, const float *dp, const float *p, int64_t first, int64_t end, int64_t cols,
                                                       enum sf_dtype store) {
  float part = 0.0f;
  SF_CUDA_FOR_COLUMNS(j, first, end) part += p[j] * dp[j];
  const float dot = sf_cuda_block_sum(part);
  SF_CUDA_FOR_COLUMNS(j, 0, cols) ds[j] = j >= first && j < end ? sf_round(p[j] * (dp[j] - dot), store) : 0.0f;
  return dot;
}

/* *grad -= sum over rows of probs dots; one block. */
__global__ static void sink_grad_kernel(float *grad, const float *probs, const float *dots, int64_t rows) {
  float part = 0.0f;
  SF_CUDA_FOR_COLUMNS(i, 0, rows) part += probs[i] * dots[i];
  const float sum = sf_cuda_block_sum(part);
  if (threadIdx.x == 0) *grad -= sum;
}

/* A sink where kernels find it, and room for every row's sum. All NULL: there is none. */
struct placed_sink {
  const float *probs;
  float *grad, *dots;
};

/* sink NULL: there is none. */
static struct placed_sink place_sink(struct sf_cuda_call *call, const struct sf_sink *sink, int64_t rows) {
  if (!sink) return {};
  return {sf_cuda_in(call, sink->probs, rows), sf_cuda_inout(call, sink->grad, 1),
          (float *)sf_cuda_scratch(call, (size_t)rows * sizeof(float))};
}

/* Once kernels have filled dots: adds the sink's gradient to sink->grad. Does nothing where there is no sink. */
static void add_sink_grad(struct sf_cuda_call *call, const struct placed_sink *sink, int64_t rows) {
  if (sink->dots)
    SF_CUDA_LAUNCH(sink_grad_kernel, 1, SF_CUDA_ROW_THREADS, call->cuda->stream, sink->grad, sink->probs, sink->dots, rows);
}

struct bwd_args {
  float *ds, *dots; /* dots NULL: not wanted */
  const float *dp, *p;
  struct sf_block block;
  enum sf_dtype store;
};

__global__ static void bwd_kernel(struct bwd_args a) {
  SF_CUDA_FOR_ROWS(i, a.block.rows) {
    const struct columns columns = seen(a.block, i);
    const int64_t at = i * a.block.cols;
    const float dot = bwd_row(a.ds + at, a.dp + at, a.p + at, columns.first, columns.end, a.block.cols, a.store);
    if (a.dots && threadIdx.x == 0) a.dots[i] = dot;
  }
}

/* dp NULL: ds holds it. */
static void softmax_bwd(struct sf_device *dev, float *ds, const float *dp, const float *p, const struct sf_block *block,
                        const struct sf_sink *sink, enum sf_dtype store) {
  const int64_t count = block->rows * block->cols;
  struct bwd_args a = {};
  if (block->rows == 0) return;
  struct sf_cuda_call call(dev);
  a.block = place_block(&call, block), a.store = store;
  a.p = sf_cuda_in(&call, p, count);
  a.dp = sf_cuda_in(&call, dp, count);
  a.ds = dp ? sf_cuda_out(&call, ds, count) : sf_cuda_inout(&call, ds, count);
  if (!dp) a.dp = a.ds;
  const struct placed_sink placed = place_sink(&call, sink, block->rows);
  a.dots = placed.dots;
  SF_CUDA_ROWS(&call, bwd_kernel, block->rows, a);
  add_sink_grad(&call, &placed, block->rows);
}

void sf_cuda_block_softmax_bwd(struct sf_device *dev, float *ds, const float *p, const struct sf_block *block, const struct sf_sink *sink,
                               enum sf_dtype store) {
  softmax_bwd(dev, ds, NULL, p, block, sink, store);
}

void sf_cuda_causal_softmax_bwd(struct sf_device *dev, float *ds, const float *dp, const float *p, int64_t n, int64_t window,
                                const struct sf_sink *sink, enum sf_dtype store) {
  const struct sf_block block = causal_block(n, window);
  softmax_bwd(dev, ds, dp, p, &block, sink, store);
}
