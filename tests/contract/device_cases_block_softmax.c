/* The device contract: softmax of rows whose columns come in blocks, in any order. */
#include "tests/contract/device_fixture.h"

#include <math.h>

enum { BLOCKS_MAX = 4 };

/* Scores of a whole matrix, cut into blocks of columns that are computed in random order. */
struct layout {
  int64_t rows, cols, visible; /* row i sees its first visible + i columns, at least one */
  int count;
  int64_t begin[BLOCKS_MAX + 1];
  int order[BLOCKS_MAX];
};

static struct layout any_layout(struct fixture *f) {
  struct layout l = {.rows = 1 + below(f, 40), .cols = 1 + below(f, 70), .count = 1 + (int)below(f, BLOCKS_MAX)};
  l.visible = 1 + below(f, l.cols + 5);
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

static int64_t seen_by(const struct layout *l, int64_t row) { return l->visible + row < l->cols ? l->visible + row : l->cols; }

/* As for a whole row, and per merge an exponential, a product and a sum. */
static void expect_probs_row(struct fixture *f, const struct layout *l, const float *p, const float *s, int64_t count,
                             enum sf_dtype store) {
  const double merges = l->count;
  double top = -INFINITY, sum = 0, sum_bound = 0;
  for (int64_t j = 0; j < count; j++) top = fmax(top, (double)s[j]);
  for (int64_t j = 0; j < count; j++) {
    const double distance = (double)s[j] - top, e = exp(distance);
    sum += e;
    if (e > 0) sum_bound += e * (3 * (merges + 1) - distance) * u;
  }
  for (int64_t j = 0; j < l->cols; j++) {
    const double distance = (double)s[j] - top, want = j < count ? exp(distance) / sum : 0.0;
    const double relative = (10 - distance + (double)count / 16 + 2 * merges) * u + sum_bound / sum;
    expect(f, p[j], want, want > 0 ? want * relative : 0.0, store);
  }
}

void test_block_softmax_fwd_random_within_bound(void **state) {
  struct fixture *f = *state;
  begin(state, "block_softmax_fwd");
  for (int i = 0; i < 200; i++) {
    const struct layout l = any_layout(f);
    const enum sf_dtype store = any_store(f);
    const int64_t ld = l.cols + below(f, 5), total = l.rows * ld;
    float *s = filled(f, total, any_values(f)), *max = buffer(l.rows), *sum = buffer(l.rows);
    for (int64_t k = 0; k < total; k++)
      if (k % ld != 0 && below(f, 4) == 0) s[k] = below(f, 2) ? -10000.0f : -INFINITY;
    float *p = copy(s, total);
    for (int64_t r = 0; r < l.rows; r++) max[r] = -INFINITY, sum[r] = 0.0f;
    for (int pass = 0; pass < 2; pass++)
      for (int k = 0; k < l.count; k++) {
        const int64_t from = l.begin[l.order[k]], cols = l.begin[l.order[k] + 1] - from;
        if (pass == 0)
          f->dev->ops->block_softmax_stats(f->dev, max, sum, p + from, ld, l.rows, cols, l.visible - from);
        else
          f->dev->ops->block_softmax_probs(f->dev, p + from, ld, max, sum, l.rows, cols, l.visible - from, store);
      }
    for (int64_t r = 0; r < l.rows; r++) {
      expect_probs_row(f, &l, p + r * ld, s + r * ld, seen_by(&l, r), store);
      assert_true(same_bits(p + r * ld + l.cols, s + r * ld + l.cols, ld - l.cols)); /* beside the block */
    }
    release(s, total), release(p, total), release(max, l.rows), release(sum, l.rows);
  }
  end(state);
}

void test_block_softmax_bwd_random_within_bound(void **state) {
  struct fixture *f = *state;
  begin(state, "block_softmax_bwd");
  for (int i = 0; i < 200; i++) {
    const struct layout l = any_layout(f);
    const enum sf_dtype store = any_store(f);
    const int64_t total = l.rows * l.cols;
    float *p = filled(f, total, NORMAL), *dp = filled(f, total, any_values(f)), *ds = copy(dp, total);
    f->dev->ops->block_softmax_bwd(f->dev, ds, p, l.rows, l.cols, l.visible, store);
    for (int64_t r = 0; r < l.rows; r++) {
      const int64_t count = seen_by(&l, r);
      double dot = 0, size = 0;
      for (int64_t j = 0; j < count; j++) {
        const double product = (double)p[r * l.cols + j] * (double)dp[r * l.cols + j];
        dot += product, size += fabs(product);
      }
      for (int64_t j = 0; j < l.cols; j++) {
        const double weight = (double)p[r * l.cols + j], grad = (double)dp[r * l.cols + j];
        const double bound = fabs(weight) * (u * (((double)count / 16 + 7) * size + 2 * (fabs(grad) + fabs(dot))) + (double)count * 0x1p-149);
        expect(f, ds[r * l.cols + j], j < count ? weight * (grad - dot) : 0.0, j < count ? bound : 0.0, store);
      }
    }
    release(p, total), release(dp, total), release(ds, total);
  }
  end(state);
}
