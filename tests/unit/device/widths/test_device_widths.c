/* The kernels give the same bits however wide the machine's vectors are. They are compiled once more for 4, 8 and 16 lanes (CMakeLists.txt
 * beside this), and each set that this machine can run is compared with the first. */
#include "harness/base/pcg.h"
#include "harness/device/cpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define WIDTHS(X) X(4) X(8) X(16)
#define DECLARE(lanes)                                                                                                                     \
  void elementwise_##lanes(struct sf_device_ops *ops);                                                                                     \
  void norm_##lanes(struct sf_device_ops *ops);                                                                                            \
  void softmax_##lanes(struct sf_device_ops *ops);                                                                                         \
  void activation_##lanes(struct sf_device_ops *ops);                                                                                      \
  void cross_entropy_##lanes(struct sf_device_ops *ops);                                                                                   \
  void adam_##lanes(struct sf_device_ops *ops);                                                                                            \
  void loops_##lanes(struct sf_cpu *cpu, const struct sf_gemm *g);
WIDTHS(DECLARE)

struct width {
  struct sf_device_ops ops;
  sf_gemm_core *loops;
};

static void fill(struct width *width, int lanes) {
#define FILL(n)                                                                                                                            \
  if (lanes == n) {                                                                                                                        \
    elementwise_##n(&width->ops), norm_##n(&width->ops), softmax_##n(&width->ops);                                                         \
    activation_##n(&width->ops), cross_entropy_##n(&width->ops), adam_##n(&width->ops);                                                    \
    width->loops = loops_##n;                                                                                                              \
  }
  WIDTHS(FILL)
}

static bool runs_here(int lanes) {
  if (lanes == 16)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
  return __builtin_cpu_supports("fma") && (lanes == 4 || __builtin_cpu_supports("avx2"));
}

/* --- what each operation makes of the same numbers ------------------------------------------------------------------- */

enum { ROWS = 5, COLS_MAX = 101, COUNT = COLS_MAX * COLS_MAX };

struct workspace {
  struct sf_device *dev;
  const struct sf_device_ops *ops;
  sf_gemm_core *loops;
  struct sf_cpu *cpu;
  int64_t cols;
  enum sf_dtype store;
  float x[COUNT], y[COUNT], w[COUNT], out[COUNT], more[COUNT], stats[2 * COLS_MAX], sum[COLS_MAX], target[COLS_MAX];
};

static void run_sums(struct workspace *t) {
  t->out[0] = t->ops->amax(t->dev, t->x, ROWS * t->cols);
  const double squares = t->ops->sum_squares(t->dev, t->x, ROWS * t->cols);
  memcpy(t->out + 1, &squares, sizeof squares);
  t->ops->col_sum(t->dev, t->more, t->x, ROWS, t->cols);
}

static void run_elements(struct workspace *t) {
  t->ops->bias_add(t->dev, t->out, t->x, t->w, ROWS, t->cols, t->store);
  t->ops->axpy(t->dev, t->more, t->x, 0.7f, ROWS * t->cols);
  t->ops->cast_f8(t->dev, t->more + COUNT / 2, t->x, 1.7f, ROWS * t->cols, SF_F8E4M3);
}

static void run_layer_norm(struct workspace *t) {
  t->ops->norm_fwd(t->dev, t->out, t->stats, t->x, t->w, t->y, ROWS, t->cols, SF_NORM_LAYER, t->store);
  t->ops->norm_bwd(t->dev, t->more, t->sum, t->target, t->y, t->x, t->stats, t->w, ROWS, t->cols, SF_NORM_LAYER, t->store);
}

static void run_rms_norm(struct workspace *t) {
  t->ops->norm_fwd(t->dev, t->out, t->stats, t->x, t->w, NULL, ROWS, t->cols, SF_NORM_RMS, t->store);
  t->ops->norm_bwd(t->dev, t->more, t->sum, NULL, t->y, t->x, t->stats, t->w, ROWS, t->cols, SF_NORM_RMS, t->store);
}

static void run_causal_softmax(struct workspace *t) {
  const struct sf_sink sink = {.logit = 0.3f, .probs = t->sum, .grad = t->target};
  t->ops->causal_softmax_fwd(t->dev, t->out, t->x, t->cols, 0, &sink, t->store);
  t->ops->causal_softmax_bwd(t->dev, t->more, t->y, t->out, t->cols, 0, &sink, t->store);
}

static void run_block_softmax(struct workspace *t) {
  const struct sf_block block = {.rows = ROWS, .cols = t->cols, .visible = t->cols / 2, .window = t->cols / 3};
  for (int i = 0; i < ROWS; i++) t->sum[i] = -__builtin_inff();
  t->ops->block_softmax_stats(t->dev, t->sum, t->target, t->x, t->cols, &block);
  memcpy(t->out, t->x, sizeof t->out);
  t->ops->block_softmax_probs(t->dev, t->out, t->cols, t->sum, t->target, &block, t->store);
  memcpy(t->more, t->y, sizeof t->more);
  t->ops->block_softmax_bwd(t->dev, t->more, t->out, &block, NULL, t->store);
}

static void run_cross_entropy(struct workspace *t) {
  int32_t labels[ROWS];
  for (int i = 0; i < ROWS; i++) labels[i] = (int32_t)((i * 37) % t->cols);
  t->ops->ce_row_max(t->dev, t->sum, t->x, ROWS, t->cols);
  t->ops->ce_sum_exp(t->dev, t->stats, t->target, t->x, t->sum, labels, ROWS, t->cols, 0);
  t->ops->ce_grad(t->dev, t->out, t->x, t->sum, t->stats, labels, t->w, ROWS, t->cols, 0, 0.9f, 0.001f, t->store);
  t->ops->ce_sum_shifted(t->dev, t->more, t->x, t->sum, ROWS, t->cols);
}

static void run_activations(struct workspace *t) {
  const int64_t count = ROWS * t->cols, half = t->cols / 2;
  t->ops->activation_fwd[SF_ACT_GELU](t->dev, t->out, t->x, 1, count, t->store);
  t->ops->activation_bwd[SF_ACT_GELU](t->dev, t->out + COUNT / 2, t->y, t->x, 1, count, t->store);
  if (half > 0) t->ops->activation_fwd[SF_ACT_SWIGLU](t->dev, t->more, t->x, ROWS, half, t->store);
  if (half > 0) t->ops->activation_bwd[SF_ACT_SWIGLU](t->dev, t->more + COUNT / 2, t->y, t->x, ROWS, half, t->store);
}

static void run_adam(struct workspace *t) {
  const struct sf_adam o = {.lr = 1e-3f,
                            .beta1 = 0.9,
                            .beta2 = 0.999,
                            .epsilon = 1e-8f,
                            .weight_decay = 0.1f,
                            .bias1 = 0.1f,
                            .bias2 = 0.001f,
                            .grad_scale = 0.5f};
  memcpy(t->out, t->w, sizeof t->out);
  t->ops->adam(t->dev, t->out, t->more, t->more + COUNT / 2, t->y, t->x, ROWS * t->cols, &o);
}

/* Tiles of all heights and widths, with B as it is and transposed. */
static void run_gemm(struct workspace *t) {
  const int64_t n = t->cols, m = 1 + t->cols % 19, k = 1 + (t->cols * 7) % 40;
  const struct sf_gemm g = {.m = m, .n = n, .k = k, .a = t->x, .lda = k, .b = t->y, .ldb = n, .c = t->out, .ldc = n, .alpha = 1.0f};
  t->loops(t->cpu, &g);
  const struct sf_gemm turned = {.m = m,
                                 .n = n,
                                 .k = k,
                                 .trans_a = true,
                                 .trans_b = true,
                                 .a = t->x,
                                 .lda = m,
                                 .b = t->y,
                                 .ldb = k,
                                 .c = t->more,
                                 .ldc = n,
                                 .alpha = 1.0f,
                                 .accumulate = true};
  t->loops(t->cpu, &turned);
}

typedef void run_of(struct workspace *t);
static run_of *const runs[] = {run_sums,          run_elements,      run_layer_norm,  run_rms_norm, run_causal_softmax,
                               run_block_softmax, run_cross_entropy, run_activations, run_adam,     run_gemm};

static void draw(float *out, int64_t count, uint64_t seed) {
  struct sf_pcg pcg = sf_pcg_create(seed, 0);
  for (int64_t i = 0; i < count; i++) out[i] = (float)(int32_t)(uint32_t)sf_pcg_next(&pcg) * 0x1p-29f;
}

static void make(struct workspace *t, const struct width *width, run_of *run, int64_t cols, enum sf_dtype store) {
  t->ops = &width->ops;
  t->loops = width->loops;
  t->cols = cols;
  t->store = store;
  draw(t->x, COUNT, 1), draw(t->y, COUNT, 2), draw(t->w, COUNT, 3);
  memset(t->out, 0, sizeof t->out), memset(t->more, 0, sizeof t->more);
  memset(t->stats, 0, sizeof t->stats), memset(t->sum, 0, sizeof t->sum), memset(t->target, 0, sizeof t->target);
  run(t);
}

static void test_kernels_any_width_same_bits(void **state) {
  (void)state;
  static struct workspace first, other;
  static float pack[SF_GEMM_PACK_FLOATS];
  static struct sf_cpu cpu = {.pack = pack};
  struct width widths[3] = {0};
  int count = 0;
  for (int lanes = 4; lanes <= 16; lanes *= 2)
    if (runs_here(lanes)) fill(&widths[count++], lanes);
  if (count < 2) skip();
  first.cpu = other.cpu = &cpu;
  for (size_t r = 0; r < sizeof runs / sizeof *runs; r++)
    for (int64_t cols = 1; cols <= COLS_MAX; cols++) {
      const enum sf_dtype store = cols % 2 ? SF_F32 : SF_BF16;
      make(&first, &widths[0], runs[r], cols, store);
      for (int i = 1; i < count; i++) {
        make(&other, &widths[i], runs[r], cols, store);
        if (memcmp(first.x, other.x, sizeof first - offsetof(struct workspace, x)) != 0)
          fail_msg("run %zu, %d columns: width %d differs", r, (int)cols, i);
      }
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_kernels_any_width_same_bits)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
