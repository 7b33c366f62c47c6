#include "tests/bench/bench_proxy.h"

#include "harness/base/alloc.h"
#include "harness/run/trial/engine_internal.h"
#include "tests/bench/bench_common.h"

#include <stddef.h>
#include <string.h>

struct sf_bench_proxy {
  struct sf_device device, *inner; /* device.impl is this object */
  struct sf_engine *engine;
  struct sf_gemm_table products; /* the engine's own */
  double gemm_seconds, other_seconds, gemm_flops, reference_gemm_seconds;
  int64_t calls;
};

/* One forwarding function per operation: proxy_NAME times inner NAME. */
#define FORWARD(name, parameters, arguments) FORWARD_TO(name, name, parameters, arguments)
#define FORWARD_TO(name, member, parameters, arguments)                                                                                    \
  static void proxy_##name parameters {                                                                                                    \
    struct sf_bench_proxy *proxy = dev->impl;                                                                                              \
    const double start = sf_engine_now();                                                                                                  \
    proxy->inner->ops->member arguments;                                                                                                   \
    proxy->other_seconds += sf_engine_now() - start;                                                                                       \
    proxy->calls++;                                                                                                                        \
  }
#define DEV struct sf_device *dev
#define IN proxy->inner

/* long: one line for each operation */
FORWARD(bias_add, (DEV, float *y, const float *x, const float *bias, int64_t rows, int64_t cols, enum sf_dtype store),
        (IN, y, x, bias, rows, cols, store))
FORWARD(col_sum, (DEV, float *out, const float *x, int64_t rows, int64_t cols), (IN, out, x, rows, cols))
FORWARD(add, (DEV, float *out, const float *a, const float *b, int64_t count, enum sf_dtype store), (IN, out, a, b, count, store))
FORWARD(drop, (DEV, float *y, const float *x, const float *kept, float factor, int64_t count, enum sf_dtype store),
        (IN, y, x, kept, factor, count, store))
FORWARD(drop_add,
        (DEV, float *out, const float *x, const float *branch, const float *kept, float factor, int64_t count, enum sf_dtype store),
        (IN, out, x, branch, kept, factor, count, store))
FORWARD(axpy, (DEV, float *out, const float *x, float factor, int64_t count), (IN, out, x, factor, count))
FORWARD(scale, (DEV, float *x, float factor, int64_t count), (IN, x, factor, count))
FORWARD(round, (DEV, float *out, const float *x, int64_t count, enum sf_dtype store), (IN, out, x, count, store))
FORWARD(cast_f8, (DEV, float *out, const float *x, float scale, int64_t count, enum sf_dtype format), (IN, out, x, scale, count, format))
FORWARD(norm_fwd,
        (DEV, float *y, float *stats, const float *x, const float *w, const float *b, int64_t rows, int64_t cols, enum sf_norm norm,
         enum sf_dtype store),
        (IN, y, stats, x, w, b, rows, cols, norm, store))
FORWARD(norm_bwd,
        (DEV, float *dx, float *dw, float *db, const float *dy, const float *x, const float *stats, const float *w, int64_t rows,
         int64_t cols, enum sf_norm norm, enum sf_dtype store),
        (IN, dx, dw, db, dy, x, stats, w, rows, cols, norm, store))
FORWARD(causal_softmax_fwd,
        (DEV, float *p, const float *s, int64_t n, int64_t window, const struct sf_sink *sink, enum sf_dtype store),
        (IN, p, s, n, window, sink, store))
FORWARD(causal_softmax_bwd,
        (DEV, float *ds, const float *dp, const float *p, int64_t n, int64_t window, const struct sf_sink *sink, enum sf_dtype store),
        (IN, ds, dp, p, n, window, sink, store))
FORWARD(block_softmax_stats, (DEV, float *max, float *sum, const float *s, int64_t lds, const struct sf_block *block),
        (IN, max, sum, s, lds, block))
FORWARD(block_softmax_probs,
        (DEV, float *p, int64_t ldp, const float *max, const float *sum, const struct sf_block *block, enum sf_dtype store),
        (IN, p, ldp, max, sum, block, store))
FORWARD(block_softmax_sink, (DEV, const struct sf_sink *sink, const float *max, const float *sum, int64_t rows), (IN, sink, max, sum, rows))
FORWARD(block_softmax_bwd, (DEV, float *ds, const float *p, const struct sf_block *block, const struct sf_sink *sink, enum sf_dtype store),
        (IN, ds, p, block, sink, store))
FORWARD(rotate,
        (DEV, float *y, int64_t ldy, const float *x, int64_t ldx, const float *cos_sin, int64_t rows, int64_t rows_per_position,
         int64_t position_first, int64_t head_dim, bool inverse, enum sf_dtype store),
        (IN, y, ldy, x, ldx, cos_sin, rows, rows_per_position, position_first, head_dim, inverse, store))
#define FORWARD_ACTIVATION(constant, text, name, parts)                                                                                    \
  FORWARD_TO(name##_fwd, activation_fwd[constant], (DEV, float *y, const float *x, int64_t rows, int64_t cols, enum sf_dtype store),       \
             (IN, y, x, rows, cols, store))                                                                                                \
  FORWARD_TO(name##_bwd, activation_bwd[constant],                                                                                         \
             (DEV, float *dx, const float *dy, const float *x, int64_t rows, int64_t cols, enum sf_dtype store),                           \
             (IN, dx, dy, x, rows, cols, store))
SF_ACTIVATION_MAP(FORWARD_ACTIVATION)
FORWARD(embedding_fwd, (DEV, float *y, const float *w, const int32_t *ids, int64_t rows, int64_t cols, int64_t first, int64_t vocab),
        (IN, y, w, ids, rows, cols, first, vocab))
FORWARD(embedding_bwd, (DEV, float *dw, const float *dy, const int32_t *ids, int64_t rows, int64_t cols, int64_t first, int64_t vocab),
        (IN, dw, dy, ids, rows, cols, first, vocab))
FORWARD(ce_row_max, (DEV, float *max, const float *logits, int64_t rows, int64_t cols), (IN, max, logits, rows, cols))
FORWARD(ce_sum_exp,
        (DEV, float *sum, float *target, const float *logits, const float *max, const int32_t *labels, int64_t rows, int64_t cols,
         int64_t first),
        (IN, sum, target, logits, max, labels, rows, cols, first))
FORWARD(ce_sum_shifted, (DEV, float *shifted, const float *logits, const float *max, int64_t rows, int64_t cols),
        (IN, shifted, logits, max, rows, cols))
FORWARD(ce_grad,
        (DEV, float *dlogits, const float *logits, const float *max, const float *sum, const int32_t *labels, const float *weight,
         int64_t rows, int64_t cols, int64_t first, float label_share, float other_share, enum sf_dtype store),
        (IN, dlogits, logits, max, sum, labels, weight, rows, cols, first, label_share, other_share, store))
FORWARD(adam, (DEV, float *master, float *m, float *v, float *delta, const float *grad, int64_t count, const struct sf_adam *o),
        (IN, master, m, v, delta, grad, count, o))
FORWARD(round_stochastic, (DEV, float *w, float *delta, const float *next, const uint16_t *random, int64_t count),
        (IN, w, delta, next, random, count))

static float proxy_amax(struct sf_device *dev, const float *x, int64_t count) {
  struct sf_bench_proxy *proxy = dev->impl;
  const double start = sf_engine_now();
  const float amax = IN->ops->amax(IN, x, count);
  proxy->other_seconds += sf_engine_now() - start;
  proxy->calls++;
  return amax;
}

static double proxy_sum_squares(struct sf_device *dev, const float *x, int64_t count) {
  struct sf_bench_proxy *proxy = dev->impl;
  const double start = sf_engine_now(), sum = IN->ops->sum_squares(IN, x, count);
  proxy->other_seconds += sf_engine_now() - start;
  proxy->calls++;
  return sum;
}

static void proxy_gemm(struct sf_device *dev, const struct sf_gemm *g, enum sf_dtype store) {
  struct sf_bench_proxy *proxy = dev->impl;
  const double start = sf_engine_now();
  IN->ops->gemm(IN, g, store);
  proxy->gemm_seconds += sf_engine_now() - start;
  proxy->gemm_flops += 2.0 * (double)g->m * (double)g->n * (double)g->k;
  proxy->calls++;
}

/* What the engine's table would do: what is faster if it takes the product, else the CPU's. */
static bool product_run(const struct sf_gemm_table *table, const struct sf_product *p) {
  if (table->faster != NULL && table->faster(table->ctx, p)) return true;
  if (p->in_order) return false;
  table->multiply(p);
  return true;
}

static bool proxy_product(void *ctx, const struct sf_product *p) {
  struct sf_bench_proxy *proxy = ctx;
  const double start = sf_engine_now();
  const bool computed = product_run(&proxy->products, p);
  proxy->reference_gemm_seconds += sf_engine_now() - start;
  return computed;
}

#define ENTRY(name) .name = proxy_##name
#define ENTRY_ACTIVATION(constant, text, name, parts)                                                                                      \
  .activation_fwd[constant] = proxy_##name##_fwd, .activation_bwd[constant] = proxy_##name##_bwd,
static const struct sf_device_ops ops = {
    .name = "timing proxy",
    ENTRY(gemm),
    ENTRY(bias_add),
    ENTRY(col_sum),
    ENTRY(add),
    ENTRY(drop),
    ENTRY(drop_add),
    ENTRY(axpy),
    ENTRY(scale),
    ENTRY(round),
    ENTRY(amax),
    ENTRY(cast_f8),
    ENTRY(sum_squares),
    ENTRY(norm_fwd),
    ENTRY(norm_bwd),
    ENTRY(causal_softmax_fwd),
    ENTRY(causal_softmax_bwd),
    ENTRY(block_softmax_stats),
    ENTRY(block_softmax_probs),
    ENTRY(block_softmax_sink),
    ENTRY(block_softmax_bwd),
    ENTRY(rotate),
    SF_ACTIVATION_MAP(ENTRY_ACTIVATION) ENTRY(embedding_fwd),
    ENTRY(embedding_bwd),
    ENTRY(ce_row_max),
    ENTRY(ce_sum_exp),
    ENTRY(ce_sum_shifted),
    ENTRY(ce_grad),
    ENTRY(adam),
    ENTRY(round_stochastic),
};

/* An operation that the device has and the table lacks would be a call of nothing, in whatever case first needs it. */
static void check_complete(void) {
  static const size_t first = offsetof(struct sf_device_ops, gemm);
  for (size_t at = first; at < sizeof ops; at += sizeof(void (*)(void))) {
    void (*operation)(void);
    memcpy(&operation, (const char *)&ops + at, sizeof operation);
    if (operation == NULL) sf_bench_die("the timing proxy lacks operation %zu of harness/device/device.h", (at - first) / sizeof operation);
  }
}

struct sf_bench_proxy *sf_bench_proxy_create(struct sf_engine *engine) {
  check_complete();
  struct sf_bench_proxy *proxy = sf_alloc(sizeof *proxy);
  if (!proxy) sf_bench_die("out of memory");
  proxy->device = (struct sf_device){.ops = &ops, .impl = proxy, .memory = engine->device->memory};
  proxy->inner = engine->device;
  proxy->engine = engine;
  engine->device = &proxy->device;
  proxy->products = engine->products;
  engine->products.faster = proxy_product, engine->products.ctx = proxy;
  return proxy;
}

void sf_bench_proxy_destroy(struct sf_bench_proxy *proxy) {
  proxy->engine->device = proxy->inner;
  proxy->engine->products = proxy->products;
  sf_free(proxy);
}

void sf_bench_proxy_reset(struct sf_bench_proxy *proxy) {
  proxy->gemm_seconds = proxy->other_seconds = proxy->gemm_flops = proxy->reference_gemm_seconds = 0;
  proxy->calls = 0;
}

double sf_bench_proxy_gemm_seconds(const struct sf_bench_proxy *proxy) { return proxy->gemm_seconds; }
double sf_bench_proxy_reference_gemm_seconds(const struct sf_bench_proxy *proxy) { return proxy->reference_gemm_seconds; }
double sf_bench_proxy_other_seconds(const struct sf_bench_proxy *proxy) { return proxy->other_seconds; }
double sf_bench_proxy_gemm_flops(const struct sf_bench_proxy *proxy) { return proxy->gemm_flops; }
int64_t sf_bench_proxy_calls(const struct sf_bench_proxy *proxy) { return proxy->calls; }
