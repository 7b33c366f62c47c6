/* The device contract: every operation of every variant against a model in fp64, on random shapes, formats and distributions.
 * A bound is written beside each model; u is the unit roundoff of fp32. A result stored in bf16 or fp16 may be off by half an ulp of that
 * more.
 *   test_device_contract [DEVICE [SEED [SKIP [ONLY]]]]
 * DEVICE: the beginning of a variant's name. SKIP, ONLY: patterns of tests' names, with * and ?; an empty SKIP leaves out none. */
#include "tests/contract/device_fixture.h"

#include <ctype.h>
#include <stdlib.h>

/* --- elementwise ------------------------------------------------------------------------------------------------- */

static void test_bias_add_random_within_bound(void **state) {
  struct fixture *f = *state;
  begin(state, "bias_add");
  for (int i = 0; i < SF_ROUNDS(200); i++) {
    const int64_t rows = any_size(f), cols = any_size(f);
    const enum sf_dtype store = any_store(f);
    float *x = filled(f, rows * cols, any_values(f)), *bias = filled(f, cols, any_values(f)), *y = copy(x, rows * cols);
    f->dev->ops->bias_add(f->dev, y, below(f, 2) ? y : x, bias, rows, cols, store);
    for (int64_t j = 0; j < rows * cols; j++) {
      const double want = (double)x[j] + (double)bias[j % cols];
      expect(f, y[j], want, u * fabs(want), store);
    }
    release(x, rows * cols), release(bias, cols), release(y, rows * cols);
  }
  end(state);
}

static void test_col_sum_random_within_bound(void **state) {
  struct fixture *f = *state;
  begin(state, "col_sum");
  for (int i = 0; i < SF_ROUNDS(200); i++) {
    const int64_t rows = any_size(f), cols = any_size(f);
    float *x = filled(f, rows * cols, any_values(f)), *before = filled(f, cols, NORMAL), *out = copy(before, cols);
    f->dev->ops->col_sum(f->dev, out, x, rows, cols);
    for (int64_t j = 0; j < cols; j++) {
      double sum = (double)before[j], size = fabs(sum);
      for (int64_t r = 0; r < rows; r++) sum += (double)x[r * cols + j], size += fabs((double)x[r * cols + j]);
      expect(f, out[j], sum, (double)(rows + 2) * u * size, SF_F32);
    }
    release(x, rows * cols), release(before, cols), release(out, cols);
  }
  end(state);
}

static void test_add_axpy_scale_round_random_within_bound(void **state) {
  struct fixture *f = *state;
  begin(state, "add axpy scale round");
  for (int i = 0; i < SF_ROUNDS(200); i++) {
    const int64_t count = any_size(f) * (1 + below(f, 3));
    const enum sf_dtype store = any_store(f);
    const float factor = normal(f);
    float *a = filled(f, count, any_values(f)), *b = filled(f, count, any_values(f));
    float *sum = copy(a, count), *moved = copy(a, count), *scaled = copy(a, count), *rounded = buffer(count);
    f->dev->ops->add(f->dev, sum, below(f, 2) ? sum : a, b, count, store);
    f->dev->ops->axpy(f->dev, moved, b, factor, count);
    f->dev->ops->scale(f->dev, scaled, factor, count);
    f->dev->ops->round(f->dev, rounded, a, count, store);
    for (int64_t j = 0; j < count; j++) {
      const double total = (double)a[j] + (double)b[j], product = (double)factor * (double)b[j], axpy = (double)a[j] + product;
      expect(f, sum[j], total, u * fabs(total), store);
      expect(f, moved[j], axpy, 1.01 * u * (fabs(product) + fabs(axpy)), SF_F32);
      expect(f, scaled[j], (double)factor * (double)a[j], u * fabs((double)factor * (double)a[j]), SF_F32);
      const float stored = sf_round(a[j], store);
      assert_memory_equal(&rounded[j], &stored, sizeof stored);
    }
    release(a, count), release(b, count), release(sum, count), release(moved, count), release(scaled, count), release(rounded, count);
  }
  end(state);
}

static void test_sum_squares_random_within_bound(void **state) {
  struct fixture *f = *state;
  begin(state, "sum_squares");
  for (int i = 0; i < SF_ROUNDS(200); i++) {
    const int64_t count = any_size(f) * (1 + below(f, 3));
    float *x = filled(f, count, any_values(f));
    const double got = f->dev->ops->sum_squares(f->dev, x, count);
    long double want = 0;
    for (int64_t j = 0; j < count; j++) want += (long double)x[j] * (long double)x[j];
    if (isnan(want))
      assert_true(isnan(got));
    else if (isinf(want))
      assert_true(isinf(got));
    else
      assert_true(fabsl((long double)got - want) <= (long double)(count + 2) * 0x1p-53L * want);
    release(x, count);
  }
  end(state);
}

/* --- norms --------------------------------------------------------------------------------------------------------- */

struct row_stats {
  double mean, rstd, mean_bound, rstd_bound;
};

/* mean: (cols + 1) u mean |x|. rstd: relative half of the variance's, which is (cols + 4) u, plus what a wrong mean adds. */
static struct row_stats model_stats(const float *x, int64_t cols, enum sf_norm norm) {
  struct row_stats s = {0, 0, 0, 0};
  double size = 0, squares = 0;
  if (norm == SF_NORM_LAYER)
    for (int64_t j = 0; j < cols; j++) s.mean += (double)x[j] / (double)cols, size += fabs((double)x[j]) / (double)cols;
  for (int64_t j = 0; j < cols; j++) squares += ((double)x[j] - s.mean) * ((double)x[j] - s.mean) / (double)cols;
  s.rstd = 1.0 / sqrt(squares + (double)1e-5f);
  s.mean_bound = ((double)cols / 16 + 8) * u * size;
  s.rstd_bound = s.rstd * (((double)cols / 32 + 8) * u + s.mean_bound * s.mean_bound * s.rstd * s.rstd + 2 * u * s.mean_bound * s.rstd);
  return s;
}

static void expect_norm_fwd_row(struct fixture *f, const float *y, const float *stats, const float *x, const float *w, const float *b,
                                int64_t cols, enum sf_norm norm, enum sf_dtype store) {
  const struct row_stats s = model_stats(x, cols, norm);
  expect(f, stats[0], s.mean, s.mean_bound, SF_F32);
  expect(f, stats[1], s.rstd, s.rstd_bound, SF_F32);
  for (int64_t j = 0; j < cols; j++) {
    const double d = (double)x[j] - s.mean, scaled = d * s.rstd * (double)w[j];
    const double shift = norm == SF_NORM_LAYER && b ? (double)b[j] : 0.0;
    const double bound =
        fabs((double)w[j]) * (s.rstd * s.mean_bound + fabs(d) * s.rstd_bound + 0x1p-149) + 4 * u * (fabs(scaled) + fabs(shift));
    expect(f, y[j], scaled + shift, bound, store);
  }
}

static void test_norm_fwd_random_within_bound(void **state) {
  struct fixture *f = *state;
  begin(state, "norm_fwd");
  for (int i = 0; i < SF_ROUNDS(200); i++) {
    const int64_t rows = any_size(f), cols = any_positive(f);
    const enum sf_norm norm = below(f, 2) ? SF_NORM_LAYER : SF_NORM_RMS;
    const enum sf_dtype store = any_store(f);
    float *x = filled(f, rows * cols, any_values(f)), *w = filled(f, cols, NORMAL), *b = filled(f, cols, NORMAL);
    float *y = buffer(rows * cols), *stats = buffer(rows * 2);
    f->dev->ops->norm_fwd(f->dev, y, stats, x, w, norm == SF_NORM_LAYER ? b : NULL, rows, cols, norm, store);
    for (int64_t r = 0; r < rows; r++) expect_norm_fwd_row(f, y + r * cols, stats + 2 * r, x + r * cols, w, b, cols, norm, store);
    release(x, rows * cols), release(w, cols), release(b, cols), release(y, rows * cols), release(stats, rows * 2);
  }
  end(state);
}

static void expect_norm_bwd_row(struct fixture *f, const float *dx, const float *dy, const float *x, const float *stats, const float *w,
                                int64_t cols, enum sf_norm norm, enum sf_dtype store) {
  const double mean = (double)stats[0], rstd = (double)stats[1], n = (double)cols;
  double sum = 0, dot = 0, sum_size = 0, dot_size = 0;
  for (int64_t j = 0; j < cols; j++) {
    const double g = (double)dy[j] * (double)w[j], x_hat = ((double)x[j] - mean) * rstd;
    sum += g / n, sum_size += fabs(g) / n, dot += g * x_hat / n, dot_size += fabs(g * x_hat) / n;
  }
  if (norm == SF_NORM_RMS) sum = sum_size = 0;
  for (int64_t j = 0; j < cols; j++) {
    const double g = (double)dy[j] * (double)w[j], x_hat = ((double)x[j] - mean) * rstd;
    const double bound = rstd * u * ((n / 16 + 8) * (sum_size + fabs(x_hat) * dot_size) + 6 * (fabs(g) + fabs(sum) + fabs(x_hat * dot)));
    expect(f, dx[j], (g - sum - x_hat * dot) * rstd, bound + rstd * (1 + fabs(x_hat)) * 0x1p-147, store);
  }
}

static void test_norm_bwd_random_within_bound(void **state) {
  struct fixture *f = *state;
  begin(state, "norm_bwd");
  for (int i = 0; i < SF_ROUNDS(200); i++) {
    const int64_t rows = any_size(f), cols = any_positive(f), count = rows * cols;
    const enum sf_norm norm = below(f, 2) ? SF_NORM_LAYER : SF_NORM_RMS;
    const enum sf_dtype store = any_store(f);
    const bool want_dw = below(f, 3) > 0, want_db = below(f, 3) > 0;
    float *x = filled(f, count, any_values(f)), *dy = filled(f, count, any_values(f)), *w = filled(f, cols, NORMAL);
    float *y = buffer(count), *stats = buffer(rows * 2), *dx = buffer(count);
    float *before = filled(f, cols, NORMAL), *dw = copy(before, cols), *db = copy(before, cols);
    f->dev->ops->norm_fwd(f->dev, y, stats, x, w, NULL, rows, cols, norm, SF_F32);
    f->dev->ops->norm_bwd(f->dev, dx, want_dw ? dw : NULL, want_db ? db : NULL, dy, x, stats, w, rows, cols, norm, store);
    for (int64_t r = 0; r < rows; r++)
      expect_norm_bwd_row(f, dx + r * cols, dy + r * cols, x + r * cols, stats + 2 * r, w, cols, norm, store);
    for (int64_t j = 0; j < cols; j++) {
      double weight = (double)before[j], bias = weight, weight_size = fabs(weight), bias_size = weight_size;
      for (int64_t r = 0; r < rows; r++) {
        const double g = (double)dy[r * cols + j],
                     product = g * (((double)x[r * cols + j] - (double)stats[2 * r]) * (double)stats[2 * r + 1]);
        weight += product, weight_size += fabs(product), bias += g, bias_size += fabs(g);
      }
      expect(f, dw[j], want_dw ? weight : (double)before[j], want_dw ? (double)(rows + 6) * u * weight_size + (double)rows * 0x1p-149 : 0.0,
             SF_F32);
      expect(f, db[j], want_db ? bias : (double)before[j], want_db ? (double)(rows + 2) * u * bias_size : 0.0, SF_F32);
    }
    release(x, count), release(dy, count), release(w, cols), release(y, count), release(stats, rows * 2);
    release(dx, count), release(before, cols), release(dw, cols), release(db, cols);
  }
  end(state);
}

/* --- softmax, rotary, activations ---------------------------------------------------------------------------- */

/* Scores: some very negative, some minus infinity, never a whole row. */
static float *any_scores(struct fixture *f, int64_t n) {
  float *s = filled(f, n * n, any_values(f));
  for (int64_t i = 0; i < n * n; i++)
    if (i % n != 0 && below(f, 4) == 0) s[i] = below(f, 2) ? -10000.0f : -INFINITY;
  return s;
}

/* Row r's first column that is seen. */
static int64_t first_seen(int64_t r, int64_t window) { return window > 0 && r + 1 > window ? r + 1 - window : 0; }

static int64_t any_window(struct fixture *f, int64_t n) { return below(f, 2) ? 0 : 1 + below(f, n + 3); }

/* Relative: the rounding of s - max (its size times u), exp, the row sum, the division; the first also for what the sum is made of.
 * p, s: the row's n columns, of which [first, end) are seen. */
static void expect_softmax_row(struct fixture *f, const float *p, const float *s, int64_t first, int64_t end, int64_t n,
                               const struct sf_sink *sink, float sink_prob, enum sf_dtype store) {
  double top = sink ? (double)sink->logit : -INFINITY, sum = 0, sum_bound = 0;
  for (int64_t j = first; j < end; j++) top = fmax(top, (double)s[j]);
  for (int64_t j = first - 1; j < end; j++) {
    if (j < first && !sink) continue;
    const double distance = (j < first ? (double)sink->logit : (double)s[j]) - top, e = exp(distance);
    sum += e;
    if (e > 0) sum_bound += e * (3 - distance) * u;
  }
  const double sum_error = ((double)(end - first) / 16 + 10) * u + sum_bound / sum;
  for (int64_t j = 0; j < n; j++) {
    const bool seen = j >= first && j < end;
    const double distance = (double)s[j] - top, want = seen ? exp(distance) / sum : 0.0;
    expect(f, p[j], want, want > 0 ? want * (sum_error - distance * u) : 0.0, store);
  }
  if (!sink) return;
  const double distance = (double)sink->logit - top, want = exp(distance) / sum;
  expect(f, sink_prob, want, want > 0 ? want * (sum_error - distance * u) : 0.0, SF_F32);
}

static void test_causal_softmax_fwd_random_within_bound(void **state) {
  struct fixture *f = *state;
  begin(state, "causal_softmax_fwd");
  for (int i = 0; i < SF_ROUNDS(200); i++) {
    const int64_t n = any_size(f), window = any_window(f, n);
    const enum sf_dtype store = any_store(f);
    float *s = any_scores(f, n), *p = copy(s, n * n), *sink_probs = buffer(n);
    const struct sf_sink sink = {.logit = any_value(f, any_values(f)), .probs = sink_probs}, *used = below(f, 2) ? &sink : NULL;
    for (int64_t r = 0; r < n; r++) s[r * n + first_seen(r, window)] = p[r * n + first_seen(r, window)] = normal(f); /* never a whole row */
    f->dev->ops->causal_softmax_fwd(f->dev, p, below(f, 2) ? p : s, n, window, used, store);
    for (int64_t r = 0; r < n; r++)
      expect_softmax_row(f, p + r * n, s + r * n, first_seen(r, window), r + 1, n, used, sink_probs[r], store);
    release(s, n * n), release(p, n * n), release(sink_probs, n);
  }
  end(state);
}

static void test_causal_softmax_bwd_random_within_bound(void **state) {
  struct fixture *f = *state;
  begin(state, "causal_softmax_bwd");
  for (int i = 0; i < SF_ROUNDS(200); i++) {
    const int64_t n = any_size(f), window = any_window(f, n);
    const enum sf_dtype store = any_store(f);
    float *s = any_scores(f, n), *p = buffer(n * n), *dp = filled(f, n * n, any_values(f)), *ds = copy(dp, n * n);
    float *sink_probs = buffer(n), before = normal(f), sink_grad = before;
    const struct sf_sink sink = {.logit = normal(f), .probs = sink_probs, .grad = &sink_grad}, *used = below(f, 2) ? &sink : NULL;
    double want_grad = (double)before, grad_size = fabs(want_grad), row_size = 0;
    f->dev->ops->causal_softmax_fwd(f->dev, p, s, n, window, used, SF_F32);
    f->dev->ops->causal_softmax_bwd(f->dev, ds, below(f, 2) ? ds : dp, p, n, window, used, store);
    for (int64_t r = 0; r < n; r++) {
      const int64_t first = first_seen(r, window);
      double dot = 0, size = 0;
      for (int64_t j = first; j <= r; j++) {
        const double product = (double)p[r * n + j] * (double)dp[r * n + j];
        dot += product, size += fabs(product);
      }
      for (int64_t j = 0; j < n; j++) {
        const bool seen = j >= first && j <= r;
        const double weight = seen ? (double)p[r * n + j] : 0.0, grad = (double)dp[r * n + j];
        const double bound =
            fabs(weight) * u * (((double)r / 16 + 7) * size + 2 * (fabs(grad) + fabs(dot))) + (double)r * 0x1p-149 * fabs(weight);
        expect(f, ds[r * n + j], seen ? weight * (grad - dot) : 0.0, seen ? bound : 0.0, store);
      }
      if (!used) continue;
      const double term = -(double)sink_probs[r] * dot;
      want_grad += term, grad_size += fabs(term), row_size += (double)sink_probs[r] * size;
    }
    expect(f, sink_grad, want_grad, u * (((double)n / 16 + 8) * row_size + (double)(n + 1) * grad_size) + (double)n * 0x1p-148, SF_F32);
    release(s, n * n), release(p, n * n), release(dp, n * n), release(ds, n * n), release(sink_probs, n);
  }
  end(state);
}

/* 2 u (|a cos| + |b sin|); the inverse undoes the rotation. */
static void test_rotate_random_within_bound(void **state) {
  struct fixture *f = *state;
  begin(state, "rotate");
  for (int i = 0; i < SF_ROUNDS(200); i++) {
    const int64_t half = any_positive(f), dim = 2 * half, rows = any_size(f), repeat = 1 + below(f, 4), first = below(f, 50);
    const int64_t ldx = dim + below(f, 9), ldy = dim + below(f, 9), positions = first + (rows + repeat - 1) / repeat;
    const bool inverse = below(f, 2);
    const enum sf_dtype store = any_store(f);
    float *table = buffer(positions * dim), *x = filled(f, rows * ldx, any_values(f)), *y = buffer(rows * ldy);
    sf_rotary_table(table, positions, dim);
    f->dev->ops->rotate(f->dev, y, ldy, x, ldx, table, rows, repeat, first, dim, inverse, store);
    for (int64_t r = 0; r < rows; r++)
      for (int64_t j = 0; j < ldy; j++) {
        if (j >= dim) {
          assert_true(y[r * ldy + j] == -7777.0f);
          continue;
        }
        const int64_t position = first + r / repeat, pair = j % half;
        const double angle = (double)position * pow(10000.0, -2.0 * (double)pair / (double)dim);
        const double c = (double)(float)cos(angle), s = (double)(float)sin(angle) * (inverse ? -1 : 1);
        const double a = (double)x[r * ldx + pair], b = (double)x[r * ldx + half + pair];
        const double want = j < half ? a * c - b * s : b * c + a * s;
        const double size = j < half ? fabs(a * c) + fabs(b * s) : fabs(b * c) + fabs(a * s);
        expect(f, y[r * ldy + j], want, 2 * u * size, store);
      }
    release(table, positions * dim), release(x, rows * ldx), release(y, rows * ldy);
  }
  end(state);
}

static void test_gelu_random_within_bound(void **state) {
  struct fixture *f = *state;
  begin(state, "gelu");
  for (int i = 0; i < SF_ROUNDS(200); i++) {
    const int64_t count = any_size(f) * 3;
    const enum sf_dtype store = any_store(f);
    float *x = filled(f, count, any_values(f)), *dy = filled(f, count, any_values(f)), *y = buffer(count), *dx = buffer(count);
    for (int64_t j = 0; j < count; j++) {
      x[j] *= below(f, 2) ? 4.0f : 1.0f;
      if (x[j] < -12.0f) dy[j] = normal(f); /* the slope ends among the subnormals: infinity times it is anything */
    }
    f->dev->ops->activation_fwd[SF_ACT_GELU](f->dev, y, x, 1, count, store);
    f->dev->ops->activation_bwd[SF_ACT_GELU](f->dev, dx, dy, x, 1, count, store);
    for (int64_t j = 0; j < count; j++) {
      const double v = (double)x[j], cumulative = 0.5 * erfc(-v / sqrt(2.0)), density = exp(-v * v / 2) / sqrt(2 * M_PI);
      /* Below x = -13 parts of the product are subnormal: an absolute error of a few 2^-149. */
      const double slope = cumulative + v * density;
      expect(f, y[j], v * cumulative, 10 * u * fabs(v * cumulative) + fabs(v) * 0x1p-146, store);
      expect(f, dx[j], (double)dy[j] * slope, fabs((double)dy[j]) * (10 * u * (cumulative + fabs(v * density)) + (1 + fabs(v)) * 0x1p-146),
             store);
    }
    release(x, count), release(dy, count), release(y, count), release(dx, count);
  }
  end(state);
}

static void test_swiglu_random_within_bound(void **state) {
  struct fixture *f = *state;
  begin(state, "swiglu");
  for (int i = 0; i < SF_ROUNDS(200); i++) {
    const int64_t rows = any_size(f), cols = any_size(f), count = rows * cols;
    const enum sf_dtype store = any_store(f);
    float *x = filled(f, 2 * count, any_values(f)), *dy = filled(f, count, any_values(f)), *y = buffer(count), *dx = buffer(2 * count);
    f->dev->ops->activation_fwd[SF_ACT_SWIGLU](f->dev, y, x, rows, cols, store);
    f->dev->ops->activation_bwd[SF_ACT_SWIGLU](f->dev, dx, dy, x, rows, cols, store);
    for (int64_t j = 0; j < count; j++) {
      const int64_t gate_at = j / cols * 2 * cols + j % cols, up_at = gate_at + cols;
      const double gate = (double)x[gate_at], up = (double)x[up_at], grad = (double)dy[j], near_one = 1 / (1 + exp(-fabs(gate)));
      const double near_zero = exp(-fabs(gate)) * near_one, value = flushed(gate < 0 ? near_zero : near_one),
                   rest = gate < 0 ? near_one : near_zero;
      const double slope = value * (1 + gate * rest), slope_size = value * (1 + fabs(gate * rest));
      expect(f, y[j], gate * value * up, 9 * u * fabs(gate * value * up) + fabs(gate * up) * 0x1p-146, store);
      expect(f, dx[gate_at], grad * up * slope, fabs(grad * up) * (13 * u * slope_size + fabs(gate) * 0x1p-146) + slope_size * 0x1p-149,
             store);
      expect(f, dx[up_at], grad * (gate * value), 9 * u * fabs(grad * (gate * value)) + fabs(gate * grad) * 0x1p-146, store);
    }
    release(x, 2 * count), release(dy, count), release(y, count), release(dx, 2 * count);
  }
  end(state);
}

/* A square; twice a number times another. */
static void test_relu2_random_within_bound(void **state) {
  struct fixture *f = *state;
  begin(state, "relu2");
  for (int i = 0; i < SF_ROUNDS(200); i++) {
    const int64_t count = any_size(f) * 3;
    const enum sf_dtype store = any_store(f);
    float *x = filled(f, count, any_values(f)), *dy = filled(f, count, any_values(f)), *y = buffer(count), *dx = buffer(count);
    f->dev->ops->activation_fwd[SF_ACT_RELU2](f->dev, y, x, 1, count, store);
    f->dev->ops->activation_bwd[SF_ACT_RELU2](f->dev, dx, dy, x, 1, count, store);
    for (int64_t j = 0; j < count; j++) {
      const double positive = x[j] < 0.0f ? 0.0 : (double)x[j], slope = (double)dy[j] * (2 * positive);
      expect(f, y[j], positive * positive, u * positive * positive, store);
      expect(f, dx[j], slope, u * fabs(slope), store);
    }
    release(x, count), release(dy, count), release(y, count), release(dx, count);
  }
  end(state);
}

/* Where an element is dropped, not even an infinity or a NaN goes through. */
static void test_drop_random_within_bound(void **state) {
  struct fixture *f = *state;
  begin(state, "drop");
  for (int i = 0; i < SF_ROUNDS(200); i++) {
    const int64_t count = any_size(f) * 3;
    const enum sf_dtype store = any_store(f);
    const float factor = 1000.0f / (float)(1000 - below(f, 999));
    float *x = filled(f, count, any_values(f)), *branch = filled(f, count, any_values(f)), *kept = buffer(count);
    for (int64_t j = 0; j < count; j++) kept[j] = (float)below(f, 2);
    for (int64_t j = 0; j < count; j++)
      if (kept[j] == 0.0f && below(f, 4) == 0) branch[j] = j % 2 ? NAN : INFINITY;
    float *y = buffer(count), *sum = copy(branch, count);
    f->dev->ops->drop(f->dev, y, branch, kept, factor, count, store);
    f->dev->ops->drop_add(f->dev, sum, x, sum, kept, factor, count, store);
    for (int64_t j = 0; j < count; j++) {
      const double product = kept[j] > 0.0f ? (double)factor * (double)branch[j] : 0.0, exact = (double)x[j] + product;
      expect(f, y[j], product, u * fabs(product), store);
      expect(f, sum[j], exact, u * (fabs(product) + fabs(exact)), store);
    }
    release(x, count), release(branch, count), release(kept, count), release(y, count), release(sum, count);
  }
  end(state);
}

/* --- embedding, cross-entropy, Adam ------------------------------------------------------------------------------ */

static void test_embedding_random_exact_and_within_bound(void **state) {
  struct fixture *f = *state;
  begin(state, "embedding");
  for (int i = 0; i < SF_ROUNDS(200); i++) {
    const int64_t rows = any_size(f), cols = any_size(f), vocab = any_positive(f), first = below(f, 100);
    int32_t ids[129];
    for (int64_t r = 0; r < rows; r++) ids[r] = (int32_t)(first - 5 + below(f, vocab + 10));
    float *w = filled(f, vocab * cols, any_values(f)), *y = buffer(rows * cols), *dy = filled(f, rows * cols, any_values(f));
    float *dw = copy(w, vocab * cols);
    f->dev->ops->embedding_fwd(f->dev, y, w, ids, rows, cols, first, vocab);
    f->dev->ops->embedding_bwd(f->dev, dw, dy, ids, rows, cols, first, vocab);
    for (int64_t v = -5; v < vocab + 5; v++)
      for (int64_t j = 0; j < cols; j++) {
        const bool held = v >= 0 && v < vocab;
        double sum = held ? (double)w[v * cols + j] : 0.0, size = fabs(sum);
        for (int64_t r = 0; r < rows; r++) {
          if (ids[r] - first != v) continue;
          const float want = held ? w[v * cols + j] : 0.0f;
          assert_memory_equal(&y[r * cols + j], &want, sizeof want);
          sum += (double)dy[r * cols + j], size += fabs((double)dy[r * cols + j]);
        }
        if (held) expect(f, dw[v * cols + j], sum, (double)rows * u * size, SF_F32);
      }
    release(w, vocab * cols), release(y, rows * cols), release(dy, rows * cols), release(dw, vocab * cols);
  }
  end(state);
}

/* Each distance from the maximum is rounded, then their sum. */
static void expect_ce_shifted(struct fixture *f, float shifted, float top, const float *x, int64_t cols) {
  double total = 0, size = 0;
  for (int64_t j = 0; j < cols; j++) total += (double)x[j] - (double)top, size += fabs((double)x[j] - (double)top);
  expect(f, shifted, total, ((double)cols / 16 + 6) * u * size, SF_F32);
}

struct ce_shares {
  float label, other;
};

static void expect_ce_row(struct fixture *f, const float *grad, float top, float sum, float target, const float *x, float weight,
                          int64_t local, int64_t cols, struct ce_shares shares, enum sf_dtype store) {
  double max = -INFINITY, total = 0, bound = 0;
  bool nan = false;
  for (int64_t j = 0; j < cols; j++) max = fmax(max, (double)x[j]), nan |= isnan(x[j]);
  if (nan) max = (double)NAN;
  expect(f, top, max, 0.0, SF_F32);
  for (int64_t j = 0; j < cols; j++) {
    const double distance = (double)x[j] - max, e = exp(distance);
    total += e;
    if (e > 0) bound += e * (3 - distance + (double)cols / 32 + 6) * u;
  }
  expect(f, sum, total, bound, SF_F32);
  const bool held = local >= 0 && local < cols;
  expect(f, target, held ? (double)x[local] - max : 0.0, held ? u * fabs((double)x[local] - max) : 0.0, SF_F32);
  for (int64_t j = 0; j < cols; j++) {
    const double distance = (double)x[j] - max, p = exp(distance) / (double)sum, label = j == local ? (double)shares.label : 0;
    const double want = (p - (double)shares.other - label) * (double)weight;
    const double size = (p > 0 ? p * (4 - distance) : 0) + (shares.other > 0 ? fabs((double)shares.other + label) : 0);
    expect(f, grad[j], want, fabs((double)weight) * u * size + 2 * u * fabs(want) + 0x1p-148, store);
  }
}

static void test_cross_entropy_random_within_bound(void **state) {
  struct fixture *f = *state;
  begin(state, "cross_entropy");
  for (int i = 0; i < SF_ROUNDS(200); i++) {
    const int64_t rows = any_size(f), cols = any_positive(f), first = below(f, 100);
    const enum sf_dtype store = any_store(f);
    int32_t labels[129];
    for (int64_t r = 0; r < rows; r++) labels[r] = (int32_t)(first - 5 + below(f, cols + 10));
    float *x = filled(f, rows * cols, any_values(f)), *weight = filled(f, rows, NORMAL), *grad = buffer(rows * cols);
    float *max = buffer(rows), *sum = buffer(rows), *target = buffer(rows), *shifted = buffer(rows);
    const struct ce_shares shares = below(f, 2) ? (struct ce_shares){1.0f, 0.0f} : (struct ce_shares){uniform(f), fabsf(uniform(f))};
    f->dev->ops->ce_row_max(f->dev, max, x, rows, cols);
    f->dev->ops->ce_sum_exp(f->dev, sum, target, x, max, labels, rows, cols, first);
    f->dev->ops->ce_grad(f->dev, grad, x, max, sum, labels, weight, rows, cols, first, shares.label, shares.other, store);
    f->dev->ops->ce_sum_shifted(f->dev, shifted, x, max, rows, cols);
    for (int64_t r = 0; r < rows; r++) {
      expect_ce_row(f, grad + r * cols, max[r], sum[r], target[r], x + r * cols, weight[r], labels[r] - first, cols, shares, store);
      expect_ce_shifted(f, shifted[r], max[r], x + r * cols, cols);
    }
    release(x, rows * cols), release(weight, rows), release(grad, rows * cols), release(max, rows), release(sum, rows),
        release(target, rows), release(shifted, rows);
  }
  end(state);
}

/* --- the variants --------------------------------------------------------------------------------------------------- */

/* Creation and destruction hold when any one allocation fails. */
static void test_create_allocation_fails_reported(void **state) {
  struct fixture *f = *state;
  begin(state, "create");
  for (int64_t k = 1; k < 20; k++) {
    struct sf_device *dev = NULL;
    sf_alloc_fail_at(k);
    const enum sf_status status = sf_device_create(&dev, f->kind, f->gemm, NULL);
    const bool failed = sf_alloc_did_fail();
    sf_alloc_fail_at(0);
    assert_int_equal(status, failed ? SF_ENOMEM : SF_OK);
    assert_true((dev == NULL) == failed);
    sf_device_destroy(dev);
    if (!failed) break;
    assert_true(k < 19);
  }
  sf_device_destroy(NULL);
  end(state);
}

/* wanted: asked for by its name, and then its absence is a failure. */
static int run_variant(struct fixture *f, bool wanted, uint64_t seed) {
  struct sf_error error = {SF_OK, ""};
  const enum sf_status status = sf_device_create(&f->dev, f->kind, f->gemm, &error);
  const bool absent = status == SF_ENOTSUP || status == SF_ENODEVICE, failed_to_start = status != SF_OK && (wanted || !absent);
  if (status != SF_OK) print_message("%s: %s: %s\n", f->name, failed_to_start ? "failed" : "skipped", error.text);
  if (failed_to_start) return 1;
  f->repeats = f->kind == SF_DEVICE_CPU ? REPEATS : 5;
  f->pcg = sf_pcg_create(seed, (uint64_t)f->gemm);
#define T(name)                                                                                                                            \
  { #name, name, NULL, NULL, f }
  const struct CMUnitTest tests[] = {T(test_gemm_random_within_bound),
                                     T(test_gemm_repeated_same_bits),
                                     T(test_gemm_chain_exact_bits),
                                     T(test_gemm_large_within_bound),
                                     T(test_gemm_reduced_formats_within_bound),
                                     T(test_gemm_one_number_fits_no_reduced_format_is_kept),
                                     T(test_product_random_within_bound),
                                     T(test_product_in_order_random_same_bits),
                                     T(test_product_large_within_bound),
                                     T(test_bias_add_random_within_bound),
                                     T(test_col_sum_random_within_bound),
                                     T(test_add_axpy_scale_round_random_within_bound),
                                     T(test_sum_squares_random_within_bound),
                                     T(test_norm_fwd_random_within_bound),
                                     T(test_norm_bwd_random_within_bound),
                                     T(test_causal_softmax_fwd_random_within_bound),
                                     T(test_causal_softmax_bwd_random_within_bound),
                                     T(test_block_softmax_fwd_random_within_bound),
                                     T(test_block_softmax_fwd_nan_alone_in_a_block_fills_the_row),
                                     T(test_block_softmax_bwd_random_within_bound),
                                     T(test_rotate_random_within_bound),
                                     T(test_gelu_random_within_bound),
                                     T(test_swiglu_random_within_bound),
                                     T(test_relu2_random_within_bound),
                                     T(test_drop_random_within_bound),
                                     T(test_embedding_random_exact_and_within_bound),
                                     T(test_cross_entropy_random_within_bound),
                                     T(test_adam_random_within_bound),
                                     T(test_round_stochastic_random_is_the_specified_number),
                                     T(test_fp8_cast_random_same_bits_as_single_values),
                                     T(test_create_allocation_fails_reported)};
#undef T
  const int failed = cmocka_run_group_tests_name(f->name, tests, NULL, NULL);
  sf_device_destroy(f->dev);
  print_message("%s: %d passed, %d skipped, %d failed\n", f->name, f->passed, f->skipped, failed);
  return failed;
}

/* test_device_contract [cpu|cpu-loops|cpu-blas|cpu-xsmm|cuda] [seed [tests to leave out, with * and ?]] */
int main(int argc, char **argv) {
  const char *kind = argc > 1 && isalpha((unsigned char)*argv[1]) ? argv[1] : "";
  const int next = 1 + (*kind != '\0');
  const char *number = argc > next ? argv[next] : "20240607";
  if (argc > next + 1 && *argv[next + 1]) cmocka_set_skip_filter(argv[next + 1]);
  if (argc > next + 2) cmocka_set_test_filter(argv[next + 2]);
  const uint64_t seed = strtoull(number, NULL, 10);
  struct fixture variants[] = {{.name = "cpu-loops", .gemm = SF_CPU_GEMM_LOOPS},
                               {.name = "cpu-blas", .gemm = SF_CPU_GEMM_BLAS},
                               {.name = "cpu-xsmm", .gemm = SF_CPU_GEMM_XSMM},
                               {.name = "cuda", .kind = SF_DEVICE_CUDA}};
  int failed = 0, asked = 0;
  for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
    if (strncmp(variants[i].name, kind, strlen(kind)) != 0) continue;
    asked++;
    failed += run_variant(&variants[i], strcmp(variants[i].name, kind) == 0, seed);
  }
  if (asked == 0) print_message("there is no device %s\n", kind);
  if (failed) print_message("replay: test_device_contract %s %llu\n", kind, (unsigned long long)seed);
  return failed != 0 || asked == 0;
}
