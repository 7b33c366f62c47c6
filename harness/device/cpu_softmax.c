/* Causal softmax of one head, over all keys before a query or a window of them, with or without a sink, of whole rows and of blocks of
 * columns. Exponentials stand in p, unrounded, between the two passes; sums run in 16 lanes.
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

static bool has_nan(const float *s, int64_t count) {
  for (int64_t j = 0; j < count; j++)
    if (isnan(s[j])) return true;
  return false;
}

static void clear_columns(float *row, int64_t from, int64_t end) { memset(row + from, 0, (size_t)(end - from) * sizeof(float)); }

struct columns {
  int64_t first, end;
};

static int64_t within(int64_t column, int64_t cols) { return column < 0 ? 0 : column < cols ? column : cols; }

static struct columns seen(const struct sf_block *block, int64_t row) {
  const int64_t end = block->visible + row;
  int64_t first = block->window > 0 && end > block->window ? end - block->window : 0;
  if (block->begins != NULL && block->begins[row] - block->column > first) first = block->begins[row] - block->column;
  const int64_t last = within(end, block->cols);
  return (struct columns){first < last ? first : last, last};
}

/* A head's queries and keys as one block. */
static struct sf_block causal_block(int64_t n, int64_t window) {
  return (struct sf_block){.rows = n, .cols = n, .visible = 1, .window = window};
}

/* The row's `count` scores; returns what exponentials, the sink's among them, are divided by. */
static float exp_row(float *p, const float *s, int64_t count, const struct sf_sink *sink, float *sink_exp) {
  const float scores_top = row_max(s, count), top = sink && sink->logit > scores_top ? sink->logit : scores_top;
  struct sf_sums sums = {0};
  SF_EACH_PART(q, j, 0, count) {
    const sf_vec e = sf_vec_keep_first(sf_vec_exp(sf_vec_load(s + j, count - j) - top), count - j, 0.0f);
    sf_vec_store(p + j, count - j, e);
    sums.part[q] += e;
  }
  *sink_exp = sink ? sf_vec_exp(sf_vec_all(sink->logit - top))[0] : 0.0f;
  return sf_sums_total(&sums) + *sink_exp;
}

static void cpu_causal_softmax_fwd(struct sf_device *dev, float *p, const float *s, int64_t n, int64_t window, const struct sf_sink *sink,
                                   enum sf_dtype store) {
  const struct sf_block block = causal_block(n, window);
  (void)dev;
  for (int64_t i = 0; i < n; i++, p += n, s += n) {
    const struct columns columns = seen(&block, i);
    const int64_t count = columns.end - columns.first;
    float *row = p + columns.first, sink_exp;
    const float sum = exp_row(row, s + columns.first, count, sink, &sink_exp);
    for (int64_t j = 0; j < count; j += SF_LANES)
      sf_vec_store(row + j, count - j, sf_vec_round(sf_vec_load(row + j, count - j) / sum, store));
    if (sink) sink->probs[i] = sink_exp / sum;
    clear_columns(p, 0, columns.first);
    clear_columns(p, columns.end, n);
  }
}

static void cpu_block_softmax_stats(struct sf_device *dev, float *max, float *sum, const float *s, int64_t lds,
                                    const struct sf_block *block) {
  (void)dev;
  for (int64_t i = 0; i < block->rows; i++, s += lds) {
    const struct columns columns = seen(block, i);
    const int64_t count = columns.end - columns.first;
    const float *row = s + columns.first;
    if (count == 0) continue;
    const float block_top = row_max(row, count), top = max[i] > block_top ? max[i] : block_top;
    if (top == -INFINITY) {
      if (has_nan(row, count)) max[i] = sum[i] = NAN;
      continue;
    }
    struct sf_sums sums = {0};
    SF_EACH_PART(p, j, 0, count)
      sums.part[p] += sf_vec_keep_first(sf_vec_exp(sf_vec_load(row + j, count - j) - top), count - j, 0.0f);
    const float before = max[i] == -INFINITY ? 0.0f : sum[i] * sf_vec_exp(sf_vec_all(max[i] - top))[0];
    sum[i] = before + sf_sums_total(&sums);
    max[i] = top;
  }
}

static void cpu_block_softmax_probs(struct sf_device *dev, float *p, int64_t ldp, const float *max, const float *sum,
                                    const struct sf_block *block, enum sf_dtype store) {
  (void)dev;
  for (int64_t i = 0; i < block->rows; i++, p += ldp) {
    const struct columns columns = seen(block, i);
    for (int64_t j = columns.first; j < columns.end; j += SF_LANES) {
      const sf_vec e = sf_vec_exp(sf_vec_load(p + j, columns.end - j) - max[i]);
      sf_vec_store(p + j, columns.end - j, sf_vec_round(e / sum[i], store));
    }
    clear_columns(p, 0, columns.first);
    clear_columns(p, columns.end, block->cols);
  }
}

static void cpu_block_softmax_sink(struct sf_device *dev, const struct sf_sink *sink, const float *max, const float *sum, int64_t rows) {
  (void)dev;
  for (int64_t i = 0; i < rows; i++) sink->probs[i] = sf_vec_exp(sf_vec_all(sink->logit - max[i]))[0] / sum[i];
}

/* ds = round(p (dp - sum_j p dp)) of `count` columns of a row; returns the sum. */
static float row_bwd(float *ds, const float *dp, const float *p, int64_t count, enum sf_dtype store) {
  struct sf_sums sums = {0};
  SF_EACH_PART(q, j, 0, count) sums.part[q] += sf_vec_load(p + j, count - j) * sf_vec_load(dp + j, count - j);
  const float dot = sf_sums_total(&sums);
  for (int64_t j = 0; j < count; j += SF_LANES) {
    const sf_vec grad = sf_vec_load(p + j, count - j) * (sf_vec_load(dp + j, count - j) - dot);
    sf_vec_store(ds + j, count - j, sf_vec_round(grad, store));
  }
  return dot;
}

/* ds, dp and p: rows of block->cols numbers; dp may be ds. */
static void softmax_bwd(float *ds, const float *dp, const float *p, const struct sf_block *block, const struct sf_sink *sink,
                        enum sf_dtype store) {
  for (int64_t i = 0; i < block->rows; i++, ds += block->cols, dp += block->cols, p += block->cols) {
    const int64_t first = seen(block, i).first, end = seen(block, i).end;
    const float dot = row_bwd(ds + first, dp + first, p + first, end - first, store);
    if (sink) *sink->grad -= sink->probs[i] * dot;
    clear_columns(ds, 0, first);
    clear_columns(ds, end, block->cols);
  }
}

static void cpu_block_softmax_bwd(struct sf_device *dev, float *ds, const float *p, const struct sf_block *block,
                                  const struct sf_sink *sink, enum sf_dtype store) {
  (void)dev;
  softmax_bwd(ds, ds, p, block, sink, store);
}

static void cpu_causal_softmax_bwd(struct sf_device *dev, float *ds, const float *dp, const float *p, int64_t n, int64_t window,
                                   const struct sf_sink *sink, enum sf_dtype store) {
  const struct sf_block block = causal_block(n, window);
  (void)dev;
  softmax_bwd(ds, dp, p, &block, sink, store);
}

void sf_cpu_fill_softmax(struct sf_device_ops *ops) {
  ops->causal_softmax_fwd = cpu_causal_softmax_fwd;
  ops->causal_softmax_bwd = cpu_causal_softmax_bwd;
  ops->block_softmax_stats = cpu_block_softmax_stats;
  ops->block_softmax_probs = cpu_block_softmax_probs;
  ops->block_softmax_sink = cpu_block_softmax_sink;
  ops->block_softmax_bwd = cpu_block_softmax_bwd;
}
