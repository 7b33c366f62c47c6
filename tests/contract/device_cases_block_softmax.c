/* The device contract: softmax of rows whose columns come in blocks, in any order. */
#include "tests/contract/device_fixture.h"

#include <math.h>

enum { BLOCKS_MAX = 4, ROWS_MAX = 40 };

/* Scores of a whole matrix, cut into blocks of columns that are computed in random order. */
struct layout {
  int64_t rows, cols, visible, window; /* row i sees columns up to visible + i - 1, with a window only the last `window` of them */
  bool has_begins;                     /* and none before begins[i] - shift */
  int32_t begins[ROWS_MAX];
  int64_t shift;
  int count;
  int64_t begin[BLOCKS_MAX + 1];
  int order[BLOCKS_MAX];
};

static struct layout any_layout(struct fixture *f) {
  struct layout l = {.rows = 1 + below(f, ROWS_MAX), .cols = 1 + below(f, 70), .count = 1 + (int)below(f, BLOCKS_MAX)};
  l.visible = 1 + below(f, l.cols + 5);
  l.window = below(f, 2) ? 0 : 1 + below(f, l.cols + 3);
  l.has_begins = below(f, 2);
  l.shift = below(f, 50);
  for (int64_t r = 0; r < l.rows; r++) l.begins[r] = (int32_t)below(f, l.shift + l.visible + r);
  for (int i = 1; i < l.count; i++) {
    l.begin[i] = below(f, l.cols + 1);
    for (int k = i; k > 1 && l.begin[k] < l.begin[k - 1]; k--) {
      const int64_t swap = l.begin[k];
      l.begin[k] = l.begin[k - 1], l.begin[k - 1] = swap;
    }
  }
  l.begin[l.count] = l.cols;
  for (int i = 0; i < l.count; i++) {
    const int at = (int)below(f, i + 1);
    l.order[i] = l.order[at], l.order[at] = i;
  }
  return l;
}

static int64_t end_of(const struct layout *l, int64_t row) { return l->visible + row < l->cols ? l->visible + row : l->cols; }
static int64_t first_of(const struct layout *l, int64_t row) {
  int64_t first = l->window > 0 && l->visible + row > l->window ? l->visible + row - l->window : 0;
  if (l->has_begins && l->begins[row] - l->shift > first) first = l->begins[row] - l->shift;
  return first < l->cols ? first : l->cols;
}
static struct sf_block block_at(const struct layout *l, int64_t from, int64_t cols) {
  return (struct sf_block){.rows = l->rows,
                           .cols = cols,
                           .visible = l->visible - from,
                           .window = l->window,
                           .begins = l->has_begins ? l->begins : NULL,
                           .column = l->shift + from};
}

/* As for a whole row, and per merge an exponential, a product and a sum. */
static void expect_probs_row(struct fixture *f, const struct layout *l, const float *p, const float *s, int64_t row,
                             const struct sf_sink *sink, enum sf_dtype store) {
  const int64_t first = first_of(l, row), end = end_of(l, row);
  const double merges = l->count;
  double top = sink ? (double)sink->logit : -INFINITY, sum = 0, sum_bound = 0;
  for (int64_t j = first; j < end; j++) top = fmax(top, (double)s[j]);
  for (int64_t j = first - 1; j < end; j++) {
    if (j < first && !sink) continue;
    const double distance = (j < first ? (double)sink->logit : (double)s[j]) - top, e = exp(distance);
    sum += e;
    if (e > 0) sum_bound += e * (3 * (merges + 1) - distance) * u;
  }
  const double sum_error = (10 + (double)(end - first) / 16 + 2 * merges) * u + sum_bound / sum;
  for (int64_t j = 0; j < l->cols; j++) {
    const double distance = (double)s[j] - top, want = j >= first && j < end ? exp(distance) / sum : 0.0;
    expect(f, p[j], want, want > 0 ? want * (sum_error - distance * u) : 0.0, store);
  }
  if (!sink) return;
  const double distance = (double)sink->logit - top, want = exp(distance) / sum;
  expect(f, sink->probs[row], want, want > 0 ? want * (sum_error - distance * u) : 0.0, SF_F32);
}

/* Scores with masked ones among them, but for each row's first seen one. */
static float *scores_of(struct fixture *f, const struct layout *l, int64_t ld) {
  float *s = filled(f, l->rows * ld, any_values(f));
  for (int64_t k = 0; k < l->rows * ld; k++)
    if (below(f, 4) == 0) s[k] = below(f, 2) ? -10000.0f : -INFINITY;
  for (int64_t r = 0; r < l->rows; r++)
    if (first_of(l, r) < l->cols) s[r * ld + first_of(l, r)] = normal(f);
  return s;
}

static void run_forward(struct fixture *f, const struct layout *l, float *p, int64_t ld, const struct sf_sink *sink, enum sf_dtype store) {
  float *max = buffer(l->rows), *sum = buffer(l->rows);
  for (int64_t r = 0; r < l->rows; r++) max[r] = sink ? sink->logit : -INFINITY, sum[r] = sink ? 1.0f : 0.0f;
  for (int pass = 0; pass < 2; pass++)
    for (int k = 0; k < l->count; k++) {
      const int64_t from = l->begin[l->order[k]];
      const struct sf_block block = block_at(l, from, l->begin[l->order[k] + 1] - from);
      if (pass == 0)
        f->dev->ops->block_softmax_stats(f->dev, max, sum, p + from, ld, &block);
      else
        f->dev->ops->block_softmax_probs(f->dev, p + from, ld, max, sum, &block, store);
    }
  if (sink) f->dev->ops->block_softmax_sink(f->dev, sink, max, sum, l->rows);
  release(max, l->rows), release(sum, l->rows);
}

void test_block_softmax_fwd_random_within_bound(void **state) {
  struct fixture *f = *state;
  begin(state, "block_softmax_fwd");
  for (int i = 0; i < SF_ROUNDS(300); i++) {
    const struct layout l = any_layout(f);
    const enum sf_dtype store = any_store(f);
    const int64_t ld = l.cols + below(f, 5), total = l.rows * ld;
    float *s = scores_of(f, &l, ld), *p = copy(s, total), *sink_probs = buffer(l.rows);
    const struct sf_sink sink = {.logit = any_value(f, any_values(f)), .probs = sink_probs}, *used = below(f, 2) ? &sink : NULL;
    run_forward(f, &l, p, ld, used, store);
    for (int64_t r = 0; r < l.rows; r++) {
      expect_probs_row(f, &l, p + r * ld, s + r * ld, r, used, store);
      assert_true(same_bits(p + r * ld + l.cols, s + r * ld + l.cols, ld - l.cols)); /* beside the block */
    }
    release(s, total), release(p, total), release(sink_probs, l.rows);
  }
  end(state);
}

/* A block that holds nothing but NaN (or masked scores beside it) has no maximum; the row is NaN all the same. */
void test_block_softmax_fwd_nan_alone_in_a_block_fills_the_row(void **state) {
  struct fixture *f = *state;
  begin(state, "block_softmax_fwd nan");
  for (int at = 0; at < 3; at++)
    for (int masked = 0; masked < 2; masked++) {
      const struct layout l = {.rows = 1, .cols = 6, .visible = 6, .count = 3, .begin = {0, 2, 4, 6}, .order = {1, 0, 2}};
      float p[6] = {0, 1, 2, 3, 4, 5};
      p[2 * at] = NAN, p[2 * at + 1] = masked ? -INFINITY : NAN;
      run_forward(f, &l, p, 6, NULL, SF_F32);
      for (int j = 0; j < 6; j++) assert_true(isnan(p[j]));
    }
  end(state);
}

void test_block_softmax_bwd_random_within_bound(void **state) {
  struct fixture *f = *state;
  begin(state, "block_softmax_bwd");
  for (int i = 0; i < SF_ROUNDS(300); i++) {
    const struct layout l = any_layout(f);
    const struct sf_block block = block_at(&l, 0, l.cols);
    const enum sf_dtype store = any_store(f);
    const int64_t total = l.rows * l.cols;
    float *p = filled(f, total, NORMAL), *dp = filled(f, total, any_values(f)), *ds = copy(dp, total);
    float *sink_probs = filled(f, l.rows, NORMAL), before = normal(f), sink_grad = before;
    const struct sf_sink sink = {.probs = sink_probs, .grad = &sink_grad}, *used = below(f, 2) ? &sink : NULL;
    double want_grad = (double)before, grad_size = fabs(want_grad), row_size = 0;
    f->dev->ops->block_softmax_bwd(f->dev, ds, p, &block, used, store);
    for (int64_t r = 0; r < l.rows; r++) {
      const int64_t first = first_of(&l, r), end = end_of(&l, r), count = end - first;
      double dot = 0, size = 0;
      for (int64_t j = first; j < end; j++) {
        const double product = (double)p[r * l.cols + j] * (double)dp[r * l.cols + j];
        dot += product, size += fabs(product);
      }
      for (int64_t j = 0; j < l.cols; j++) {
        const bool seen = j >= first && j < end;
        const double weight = (double)p[r * l.cols + j], grad = (double)dp[r * l.cols + j];
        const double bound =
            fabs(weight) * (u * (((double)count / 16 + 7) * size + 2 * (fabs(grad) + fabs(dot))) + (double)count * 0x1p-149);
        expect(f, ds[r * l.cols + j], seen ? weight * (grad - dot) : 0.0, seen ? bound : 0.0, store);
      }
      const double term = -(double)sink_probs[r] * dot;
      want_grad += term, grad_size += fabs(term), row_size += fabs((double)sink_probs[r]) * size;
    }
    const double bound = u * (((double)l.cols / 16 + 8) * row_size + (double)(l.rows + 1) * grad_size) + (double)l.rows * 0x1p-148;
    expect(f, sink_grad, used ? want_grad : (double)before, used ? bound : 0.0, SF_F32);
    release(p, total), release(dp, total), release(ds, total), release(sink_probs, l.rows);
  }
  end(state);
}
