#include "harness/run/opfuzz/op_device.h"

#include <string.h>

/* The operands' memory as the device takes it. */
struct args {
  struct sf_device *dev;
  const struct sf_op_memory *m;
  const int64_t *dims, *attrs;
  enum sf_dtype store;
};
static float *f(const struct args *a, int i) { return (float *)(void *)a->m->places[i].at; }
static const int32_t *ints(const struct args *a, int i) { return (const int32_t *)(const void *)a->m->places[i].at; }
static int64_t ld(const struct args *a, int i) { return a->m->places[i].ld; }
static float real(const struct args *a, int attr) { return (float)sf_op_real(&a->m->view, attr); }
#define DEV a->dev->ops
#define CALL(name) static void call_##name(const struct args *a)

CALL(gemm) {
  const struct sf_gemm g = {.trans_a = a->attrs[0],
                            .trans_b = a->attrs[1],
                            .m = a->dims[0],
                            .n = a->dims[1],
                            .k = a->dims[2],
                            .a = f(a, 0),
                            .lda = ld(a, 0),
                            .b = f(a, 1),
                            .ldb = ld(a, 1),
                            .c = f(a, 2),
                            .ldc = ld(a, 2),
                            .alpha = real(a, 3),
                            .accumulate = a->attrs[2]};
  DEV->gemm(a->dev, &g, a->store);
}
CALL(bias_add) { DEV->bias_add(a->dev, f(a, 2), f(a, 0), f(a, 1), a->dims[0], a->dims[1], a->store); }
CALL(col_sum) { DEV->col_sum(a->dev, f(a, 1), f(a, 0), a->dims[0], a->dims[1]); }
CALL(add) { DEV->add(a->dev, f(a, 2), f(a, 0), f(a, 1), a->dims[0], a->store); }
CALL(drop) { DEV->drop(a->dev, f(a, 2), f(a, 0), f(a, 1), real(a, 0), a->dims[0], a->store); }
CALL(drop_add) { DEV->drop_add(a->dev, f(a, 3), f(a, 0), f(a, 1), f(a, 2), real(a, 0), a->dims[0], a->store); }
CALL(axpy) { DEV->axpy(a->dev, f(a, 1), f(a, 0), real(a, 0), a->dims[0]); }
CALL(scale) { DEV->scale(a->dev, f(a, 0), real(a, 0), a->dims[0]); }
CALL(round) { DEV->round(a->dev, f(a, 1), f(a, 0), a->dims[0], a->store); }
CALL(amax) { *f(a, 1) = DEV->amax(a->dev, f(a, 0), a->dims[0]); }
CALL(cast_f8) { DEV->cast_f8(a->dev, f(a, 1), f(a, 0), real(a, 0), a->dims[0], a->store); }
CALL(sum_squares) { *(double *)(void *)a->m->places[1].at = DEV->sum_squares(a->dev, f(a, 0), a->dims[0]); }
CALL(norm_fwd) {
  DEV->norm_fwd(a->dev, f(a, 3), f(a, 4), f(a, 0), f(a, 1), f(a, 2), a->dims[0], a->dims[1], (enum sf_norm)a->attrs[0], a->store);
}
CALL(norm_bwd) {
  DEV->norm_bwd(a->dev, f(a, 4), f(a, 5), f(a, 6), f(a, 0), f(a, 1), f(a, 2), f(a, 3), a->dims[0], a->dims[1], (enum sf_norm)a->attrs[0],
                a->store);
}
CALL(causal_softmax_fwd) {
  const struct sf_sink sink = {.logit = a->attrs[1] ? *f(a, 1) : 0, .probs = f(a, 3)};
  DEV->causal_softmax_fwd(a->dev, f(a, 2), f(a, 0), a->dims[0], a->attrs[0], a->attrs[1] ? &sink : NULL, a->store);
}
CALL(causal_softmax_bwd) {
  const struct sf_sink sink = {.probs = f(a, 2), .grad = f(a, 4)};
  DEV->causal_softmax_bwd(a->dev, f(a, 3), f(a, 0), f(a, 1), a->dims[0], a->attrs[0], a->attrs[1] ? &sink : NULL, a->store);
}

static struct sf_block block_of(const struct args *a, int begins) {
  return (struct sf_block){.rows = a->dims[0], .cols = a->dims[1], .visible = a->attrs[0] - a->attrs[1], .window = a->attrs[2],
                           .begins = a->attrs[3] ? ints(a, begins) : NULL, .column = a->attrs[4]};
}
CALL(block_softmax_stats) {
  const struct sf_block block = block_of(a, 1);
  DEV->block_softmax_stats(a->dev, f(a, 2), f(a, 3), f(a, 0), ld(a, 0), &block);
}
CALL(block_softmax_probs) {
  const struct sf_block block = block_of(a, 2);
  DEV->block_softmax_probs(a->dev, f(a, 3), ld(a, 3), f(a, 0), f(a, 1), &block, a->store);
}
CALL(block_softmax_sink) {
  const struct sf_sink sink = {.logit = *f(a, 0), .probs = f(a, 3)};
  DEV->block_softmax_sink(a->dev, &sink, f(a, 1), f(a, 2), a->dims[0]);
}
CALL(block_softmax_bwd) {
  const struct sf_block block = block_of(a, 1);
  const struct sf_sink sink = {.probs = f(a, 2), .grad = f(a, 4)};
  DEV->block_softmax_bwd(a->dev, f(a, 3), f(a, 0), &block, a->attrs[5] ? &sink : NULL, a->store);
}
CALL(rotate) {
  DEV->rotate(a->dev, f(a, 2), ld(a, 2), f(a, 0), ld(a, 0), f(a, 1), a->dims[0], a->attrs[0] + 1, a->attrs[1], 2 * a->dims[1], a->attrs[2],
              a->store);
}
/* Runs an activation; one that is not gated has only the dimension count. */
static void activate(const struct args *a, enum sf_activation activation, bool gated) {
  DEV->activation_fwd[activation](a->dev, f(a, 1), f(a, 0), gated ? a->dims[0] : 1, a->dims[gated], a->store);
}
static void activate_back(const struct args *a, enum sf_activation activation, bool gated) {
  DEV->activation_bwd[activation](a->dev, f(a, 2), f(a, 0), f(a, 1), gated ? a->dims[0] : 1, a->dims[gated], a->store);
}
#define ACTIVATION(constant, text, name, parts)                                                                                            \
  CALL(name##_fwd) { activate(a, constant, parts > 1); }                                                                                   \
  CALL(name##_bwd) { activate_back(a, constant, parts > 1); }
SF_ACTIVATION_MAP(ACTIVATION)
CALL(embedding_fwd) { DEV->embedding_fwd(a->dev, f(a, 2), f(a, 0), ints(a, 1), a->dims[0], a->dims[1], a->attrs[0], a->dims[2]); }
CALL(embedding_bwd) { DEV->embedding_bwd(a->dev, f(a, 2), f(a, 0), ints(a, 1), a->dims[0], a->dims[1], a->attrs[0], a->dims[2]); }
CALL(ce_row_max) { DEV->ce_row_max(a->dev, f(a, 1), f(a, 0), a->dims[0], a->dims[1]); }
CALL(ce_sum_exp) { DEV->ce_sum_exp(a->dev, f(a, 3), f(a, 4), f(a, 0), f(a, 1), ints(a, 2), a->dims[0], a->dims[1], a->attrs[0]); }
CALL(ce_sum_shifted) { DEV->ce_sum_shifted(a->dev, f(a, 2), f(a, 0), f(a, 1), a->dims[0], a->dims[1]); }
CALL(ce_grad) {
  DEV->ce_grad(a->dev, f(a, 5), f(a, 0), f(a, 1), f(a, 2), ints(a, 3), f(a, 4), a->dims[0], a->dims[1], a->attrs[0], real(a, 1), real(a, 2),
               a->store);
}
CALL(adam) {
  const struct sf_op_adam o = sf_op_adam_of(a->attrs);
  const struct sf_adam options = {.lr = o.lr,
                                  .beta1 = o.beta1,
                                  .beta2 = o.beta2,
                                  .epsilon = o.epsilon,
                                  .weight_decay = o.weight_decay,
                                  .bias1 = o.bias1,
                                  .bias2 = o.bias2,
                                  .grad_scale = o.grad_scale};
  DEV->adam(a->dev, f(a, 1), f(a, 2), f(a, 3), f(a, 4), f(a, 0), a->dims[0], &options);
}
CALL(round_stochastic) {
  DEV->round_stochastic(a->dev, f(a, 2), f(a, 3), f(a, 0), (const uint16_t *)(const void *)a->m->places[1].at, a->dims[0]);
}

#define OP(member, name) {#name, call_##name},
static const struct {
  const char *name;
  void (*call)(const struct args *a);
} calls[] = {
#include "harness/device/operations.def"
};
#undef OP
enum { CALLS = sizeof calls / sizeof calls[0] };
/* A new operation of the device needs a row in operations.def. */
_Static_assert(CALLS == (sizeof(struct sf_device_ops) - sizeof(const char *)) / sizeof(void (*)(void)),
               "every operation of the device is fuzzed");

static int find(const struct sf_op *op) {
  for (int i = 0; i < CALLS; i++)
    if (strcmp(calls[i].name, op->name) == 0) return i;
  return -1;
}

bool sf_op_device_has(const struct sf_op *op) { return find(op) >= 0; }
int32_t sf_op_device_count(void) { return CALLS; }

int sf_op_device_call(void *context, const struct sf_op_entry *entry, struct sf_op_memory *memory, const struct sf_op_case *c) {
  const struct args a = {.dev = context,
                         .m = memory,
                         .dims = c->field + SF_OP_DIM,
                         .attrs = c->field + SF_OP_ATTR,
                         .store = (enum sf_dtype)c->field[SF_OP_STORE]};
  calls[find(entry->op)].call(&a);
  return 0;
}
