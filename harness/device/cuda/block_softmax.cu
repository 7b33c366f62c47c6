/* Softmax for keys that come in blocks of columns, a block of threads per row. */
#include "harness/device/cuda/softmax.cuh"

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

static void block_softmax_stats(struct sf_device *dev, float *max, float *sum, const float *s, int64_t lds, const struct sf_block *block) {
  struct sf_cuda_call call;
  sf_cuda_begin(&call, dev);
  const struct sf_block placed = place_block(&call, block);
  const float *from = sf_cuda_in(&call, s, sf_cuda_span(block->rows, block->cols, lds));
  float *tops = sf_cuda_inout(&call, max, block->rows), *sums = sf_cuda_inout(&call, sum, block->rows);
  SF_CUDA_ROWS(&call, stats_kernel, block->rows, tops, sums, from, lds, placed);
  sf_cuda_end(&call);
}

__global__ static void probs_kernel(float *p, int64_t ldp, const float *max, const float *sum, struct sf_block block, enum sf_dtype store) {
  SF_CUDA_FOR_ROWS(i, block.rows) {
    const struct columns columns = seen(block, i);
    float *row = p + i * ldp;
    SF_CUDA_FOR_COLUMNS(j, 0, block.cols)
      row[j] = j >= columns.first && j < columns.end ? sf_round(sf_cuda_exp(row[j] - max[i]) / sum[i], store) : 0.0f;
  }
}

static void block_softmax_probs(struct sf_device *dev, float *p, int64_t ldp, const float *max, const float *sum,
                                const struct sf_block *block, enum sf_dtype store) {
  struct sf_cuda_call call;
  sf_cuda_begin(&call, dev);
  const struct sf_block placed = place_block(&call, block);
  const float *tops = sf_cuda_in(&call, max, block->rows), *sums = sf_cuda_in(&call, sum, block->rows);
  float *to = sf_cuda_inout(&call, p, sf_cuda_span(block->rows, block->cols, ldp));
  SF_CUDA_ROWS(&call, probs_kernel, block->rows, to, ldp, tops, sums, placed, store);
  sf_cuda_end(&call);
}

__global__ static void sink_kernel(float *probs, float logit, const float *max, const float *sum, int64_t rows) {
  SF_CUDA_FOR_EACH(i, rows) probs[i] = sf_cuda_exp(logit - max[i]) / sum[i];
}

static void block_softmax_sink(struct sf_device *dev, const struct sf_sink *sink, const float *max, const float *sum, int64_t rows) {
  struct sf_cuda_call call;
  sf_cuda_begin(&call, dev);
  const float *tops = sf_cuda_in(&call, max, rows), *sums = sf_cuda_in(&call, sum, rows);
  float *probs = sf_cuda_out(&call, sink->probs, rows);
  SF_CUDA_EACH(&call, sink_kernel, rows, probs, sink->logit, tops, sums, rows);
  sf_cuda_end(&call);
}

__global__ static void bwd_kernel(float *ds, float *dots, const float *p, struct sf_block block, enum sf_dtype store) {
  SF_CUDA_FOR_ROWS(i, block.rows) {
    const struct columns columns = seen(block, i);
    float *row = ds + i * block.cols;
    const float dot = sf_cuda_softmax_bwd_row(row, row, p + i * block.cols, columns.first, columns.end, block.cols, store);
    if (dots && threadIdx.x == 0) dots[i] = dot;
  }
}

static void block_softmax_bwd(struct sf_device *dev, float *ds, const float *p, const struct sf_block *block, const struct sf_sink *sink,
                              enum sf_dtype store) {
  struct sf_cuda_call call;
  const int64_t count = block->rows * block->cols;
  if (block->rows == 0) return;
  sf_cuda_begin(&call, dev);
  const struct sf_block placed = place_block(&call, block);
  const float *probs = sf_cuda_in(&call, p, count);
  float *to = sf_cuda_inout(&call, ds, count);
  const struct sf_cuda_sink placed_sink = sf_cuda_softmax_sink_place(&call, sink, block->rows);
  SF_CUDA_ROWS(&call, bwd_kernel, block->rows, to, placed_sink.dots, probs, placed, store);
  sf_cuda_softmax_sink_grad(&call, &placed_sink, block->rows);
  sf_cuda_end(&call);
}

void sf_cuda_fill_block_softmax(struct sf_device_ops *ops) {
  ops->block_softmax_stats = block_softmax_stats;
  ops->block_softmax_probs = block_softmax_probs;
  ops->block_softmax_sink = block_softmax_sink;
  ops->block_softmax_bwd = block_softmax_bwd;
}
