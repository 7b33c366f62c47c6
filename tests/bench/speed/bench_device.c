/* Speed of the device operations: one JSON line per (operation, variant, shape), GFLOP/s of GEMM and GB/s of the others.
 * Each figure is the best of several rounds of at least ROUND_SECONDS. bench_device [gemm|rest] */
#include "harness/base/alloc.h"
#include "harness/device/device.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static const double round_seconds = 0.004;
enum { ROUNDS = 5, FLOATS = 1 << 19 };

struct bench {
  struct sf_device *dev;
  float *memory[6]; /* FLOATS each */
  int32_t *ids;
};

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef void work(struct bench *b, const struct sf_gemm *g, int64_t rows, int64_t cols);

/* Seconds of one call. */
static double time_of(struct bench *b, work *call, const struct sf_gemm *g, int64_t rows, int64_t cols) {
  double best = 1e30;
  for (int warm = 0; warm < 300; warm++) call(b, g, rows, cols);
  for (int round = 0; round < ROUNDS; round++) {
    int64_t calls = 0;
    const double start = now_s();
    double passed = 0;
    while (passed < round_seconds) {
      for (int i = 0; i < 8; i++) call(b, g, rows, cols);
      calls += 8;
      passed = now_s() - start;
    }
    if (passed / (double)calls < best) best = passed / (double)calls;
  }
  return best;
}

static void run_gemm(struct bench *b, const struct sf_gemm *g, int64_t rows, int64_t cols) {
  (void)rows, (void)cols;
  b->dev->ops->gemm(b->dev, g, SF_F32);
}

static void bench_gemm(struct bench *b, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k) {
  const struct sf_gemm g = {trans_a,         trans_b,      m, n,    k,    b->memory[0], trans_a ? m : k, b->memory[1],
                            trans_b ? k : n, b->memory[2], n, 1.0f, false};
  const double seconds = time_of(b, run_gemm, &g, 0, 0);
  printf("{\"op\":\"gemm_%c%c\",\"variant\":\"%s\",\"m\":%lld,\"n\":%lld,\"k\":%lld,\"ns\":%.1f,\"gflops\":%.1f}\n", trans_a ? 't' : 'n',
         trans_b ? 't' : 'n', b->dev->ops->name, (long long)m, (long long)n, (long long)k, seconds * 1e9,
         2e-9 * (double)(m * n * k) / seconds);
}

static void bench_gemms(struct bench *b) {
  static const int64_t squares[] = {16, 24, 32, 48, 64, 80, 96, 128, 192, 256, 384, 512, 640};
  static const int64_t layers[][3] = {{32, 16, 64},  {32, 48, 64},  {32, 64, 16},   {32, 32, 16},
                                      {32, 256, 64}, {64, 64, 256}, {32, 1024, 64}, {17, 33, 65}};
  for (int trans = 0; trans < 3; trans++) {
    for (size_t i = 0; i < sizeof squares / sizeof *squares; i++) bench_gemm(b, trans == 2, trans == 1, squares[i], squares[i], squares[i]);
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
      bench_gemm(b, trans == 2, trans == 1, layers[i][0], layers[i][1], layers[i][2]);
  }
}

#define WORK(name, call)                                                                                                                   \
  static void name(struct bench *b, const struct sf_gemm *g, int64_t rows, int64_t cols) {                                                 \
    float *const *x = b->memory;                                                                                                           \
    const struct sf_device_ops *ops = b->dev->ops;                                                                                         \
    struct sf_device *dev = b->dev;                                                                                                        \
    (void)g, (void)x;                                                                                                                      \
    call;                                                                                                                                  \
  }
static const struct sf_adam adam_options = {1e-6f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.1f, 0.05f, 1.0f};
WORK(run_bias_add, ops->bias_add(dev, x[0], x[1], x[2], rows, cols, SF_F32))
WORK(run_bias_add_bf16, ops->bias_add(dev, x[0], x[1], x[2], rows, cols, SF_BF16))
WORK(run_col_sum, ops->col_sum(dev, x[5], x[1], rows, cols))
WORK(run_add, ops->add(dev, x[0], x[1], x[2], rows *cols, SF_F32))
WORK(run_axpy, ops->axpy(dev, x[5], x[1], 1e-3f, rows *cols))
WORK(run_round, ops->round(dev, x[0], x[1], rows *cols, SF_BF16))
WORK(run_sum_squares, (void)ops->sum_squares(dev, x[1], rows *cols))
WORK(run_norm_fwd, ops->norm_fwd(dev, x[0], x[3], x[1], x[2], NULL, rows, cols, SF_NORM_LAYER, SF_F32))
WORK(run_norm_bwd, ops->norm_bwd(dev, x[0], x[5], x[5] + cols, x[1], x[4], x[3], x[2], rows, cols, SF_NORM_LAYER, SF_F32))
WORK(run_softmax_fwd, ops->causal_softmax_fwd(dev, x[0], x[1], cols, 0, NULL, SF_F32); (void)rows)
WORK(run_softmax_bwd, ops->causal_softmax_bwd(dev, x[0], x[1], x[2], cols, 0, NULL, SF_F32); (void)rows)
WORK(run_rotate, ops->rotate(dev, x[0], cols, x[1], cols, x[2], rows, 1, 0, cols, false, SF_F32))
WORK(run_gelu_fwd, ops->activation_fwd[SF_ACT_GELU](dev, x[0], x[1], rows, cols, SF_F32))
WORK(run_gelu_bwd, ops->activation_bwd[SF_ACT_GELU](dev, x[0], x[1], x[2], rows, cols, SF_F32))
WORK(run_swiglu_fwd, ops->activation_fwd[SF_ACT_SWIGLU](dev, x[0], x[1], rows, cols, SF_F32))
WORK(run_swiglu_bwd, ops->activation_bwd[SF_ACT_SWIGLU](dev, x[0], x[1], x[2], rows, cols, SF_F32))
WORK(run_embedding_fwd, ops->embedding_fwd(dev, x[0], x[1], b->ids, rows, cols, 0, 64))
WORK(run_embedding_bwd, ops->embedding_bwd(dev, x[5], x[1], b->ids, rows, cols, 0, 64))
WORK(run_ce_row_max, ops->ce_row_max(dev, x[0], x[1], rows, cols))
WORK(run_ce_sum_exp, ops->ce_sum_exp(dev, x[0], x[3], x[1], x[2], b->ids, rows, cols, 0))
WORK(run_ce_grad, ops->ce_grad(dev, x[0], x[1], x[2], x[4], b->ids, x[3], rows, cols, 0, 1.0f, 0.0f, SF_F32))
WORK(run_adam, ops->adam(dev, x[5], x[0], x[3], x[4], x[1], rows *cols, &adam_options))

/* floats: how many are read and written per element. */
static const struct {
  const char *name;
  work *call;
  int floats;
} element_ops[] = {{"bias_add", run_bias_add, 2},
                   {"bias_add_bf16", run_bias_add_bf16, 2},
                   {"col_sum", run_col_sum, 1},
                   {"add", run_add, 3},
                   {"axpy", run_axpy, 3},
                   {"round_bf16", run_round, 2},
                   {"sum_squares", run_sum_squares, 1},
                   {"norm_fwd", run_norm_fwd, 2},
                   {"norm_bwd", run_norm_bwd, 3},
                   {"rotate", run_rotate, 3},
                   {"gelu_fwd", run_gelu_fwd, 2},
                   {"gelu_bwd", run_gelu_bwd, 3},
                   {"swiglu_fwd", run_swiglu_fwd, 3},
                   {"swiglu_bwd", run_swiglu_bwd, 5},
                   {"embedding_fwd", run_embedding_fwd, 2},
                   {"embedding_bwd", run_embedding_bwd, 3},
                   {"ce_row_max", run_ce_row_max, 1},
                   {"ce_sum_exp", run_ce_sum_exp, 1},
                   {"ce_grad", run_ce_grad, 2},
                   {"adam", run_adam, 8},
                   {"causal_softmax_fwd", run_softmax_fwd, 2},
                   {"causal_softmax_bwd", run_softmax_bwd, 3}};

static void fill(struct bench *b) {
  for (int i = 0; i < 6; i++)
    for (int j = 0; j < FLOATS; j++) b->memory[i][j] = (float)((j * 37 + i) % 101) * 0.01f + 0.1f;
  for (int j = 0; j < 1024; j++) b->ids[j] = j * 31 % 64;
}

static void bench_elements(struct bench *b) {
  static const int64_t shapes[][2] = {{32, 16}, {32, 64}, {32, 100}, {128, 128}, {256, 256}};
  for (size_t i = 0; i < sizeof element_ops / sizeof *element_ops; i++)
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
      const bool square = strncmp(element_ops[i].name, "causal", 6) == 0;
      const int64_t cols = shapes[s][1], rows = square ? cols : shapes[s][0];
      fill(b);
      const double seconds = time_of(b, element_ops[i].call, NULL, rows, cols);
      printf("{\"op\":\"%s\",\"rows\":%lld,\"cols\":%lld,\"ns\":%.1f,\"ns_per_element\":%.3f,\"gb_s\":%.1f}\n", element_ops[i].name,
             (long long)rows, (long long)cols, seconds * 1e9, seconds * 1e9 / (double)(rows * cols),
             4e-9 * element_ops[i].floats * (double)(rows * cols) / seconds);
    }
}

static int bench_variant(struct bench *b, enum sf_cpu_gemm gemm, const char *what) {
  const enum sf_status status = sf_cpu_device_create(&b->dev, gemm);
  if (status == SF_ENOTSUP) return 0;
  if (status != SF_OK) return 3;
  fill(b);
  if (!what || strcmp(what, "gemm") == 0) bench_gemms(b);
  if (gemm == sf_cpu_gemm_default() && (!what || strcmp(what, "rest") == 0)) bench_elements(b);
  sf_device_destroy(b->dev);
  return 0;
}

int main(int argc, char **argv) {
  struct bench b = {0};
  int result = 0;
  b.ids = sf_alloc(1024 * sizeof *b.ids);
  for (int i = 0; i < 6; i++) result |= (b.memory[i] = sf_alloc(FLOATS * sizeof(float))) ? 0 : 3;
  for (int gemm = SF_CPU_GEMM_XSMM; b.ids && !result && gemm <= SF_CPU_GEMM_LOOPS; gemm++)
    result = bench_variant(&b, (enum sf_cpu_gemm)gemm, argc > 1 ? argv[1] : NULL);
  for (int i = 0; i < 6; i++) sf_free(b.memory[i]);
  sf_free(b.ids);
  return b.ids ? result : 3;
}
