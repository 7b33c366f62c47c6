/* What the sample layers share: tensors as floats, the products of a linear layer, reductions over tp. Written for clearness. BUG is one of
 * the numbers below; each stands in the one line that it changes. */
#ifndef SF_TESTS_PLUGINS_LAYER_H
#define SF_TESTS_PLUGINS_LAYER_H

#include "tests/plugins/kernel.h"

enum {
  SOUND,
  NO_ALL_REDUCE,
  BIAS_GRAD_TWICE,
  WRONG_SCALE,
  BIAS_ON_EVERY_RANK,
  LEAVES_RANK_OUT,
  OTHER_COUNT,
  NO_SUCH_GROUP,
  OTHER_ORDER,
  CRASHES,
  FORKS,
  HANGS,
  FREES_INPUT,
  CHANGES_WEIGHT,
  WRITES_BEHIND,
  RETURNS_ERROR,
  NO_GRAD_SUM,
  STALE_SAVED,
  NO_TRACE,
  READS_EARLY,
  NEVER_WAITS,
  UNIT_FORGOTTEN,
  GRAD_IN_E4M3,
  SEES_NEXT_KEY,
  NO_RESCALE,
  WINDOW_TOO_WIDE,
  ACROSS_DOCUMENTS,
  ONE_HEADS_GRAD,
  CONTIGUOUS_CHUNKS,
  NEIGHBOURS_ROWS,
  GATE_UP_SWAPPED,
  EMPTY_UNWRITTEN,
  LAST_ROW_MASKED,
  DUPLICATES_LOST,
  LEAVES_ROUNDING,
  ROUNDS_INSIDE,
  WRITES_FAR,
  WRITES_BEHIND_SCRATCH
};
/* Whether sums over tp are started and waited for, rather than blocking. */
#ifndef ASYNC
#define ASYNC 0
#endif
#ifndef BUG
#define BUG SOUND
#endif

typedef const struct shardfuzz_layer_call *layer_call;
typedef const struct shardfuzz_tensor *tensor;

static inline int64_t rows_of(tensor t) { return t->shape[0]; }
static inline int64_t cols_of(tensor t) { return t->shape[1]; }
static inline struct shardfuzz_member tp_of(layer_call call) { return call->comm->groups[SHARDFUZZ_GROUP_TP]; }
static inline int64_t layer_attribute(layer_call call, const char *name) {
  for (int32_t i = 0; i < call->attribute_count; i++)
    if (strcmp(call->attributes[i].name, name) == 0) return call->attributes[i].integer;
  return -1;
}
static inline int is_sp(layer_call call) { return layer_attribute(call, "sequence_parallel") == 1; }

/* NULL: the model has none of that name. */
static inline const struct shardfuzz_parameter *parameter(layer_call call, const char *name) {
  for (int32_t i = 0; i < call->parameter_count; i++)
    if (strcmp(call->parameters[i].name, name) == 0) return &call->parameters[i];
  return NULL;
}

static inline size_t element_bytes(uint32_t dtype) { return dtype == SHARDFUZZ_F32 ? 4 : 2; }
static inline uint32_t dtype_of(tensor t) {
  return t->dtype.bits == 32 ? SHARDFUZZ_F32 : t->dtype.code == SHARDFUZZ_CODE_BFLOAT ? SHARDFUZZ_BF16 : SHARDFUZZ_F16;
}
static inline float *floats(layer_call call, int64_t count) { return call->scratch(call, (uint64_t)count * sizeof(float)); }

/* A tensor with another one's format in memory of the caller's. */
struct wire {
  struct shardfuzz_tensor t;
  int64_t shape[2], strides[2];
};
static inline tensor wire_at(struct wire *w, tensor like, void *data, int64_t rows, int64_t cols) {
  w->shape[0] = rows, w->shape[1] = cols;
  w->strides[0] = cols, w->strides[1] = 1;
  w->t = (struct shardfuzz_tensor){.data = data, .ndim = 2, .dtype = like->dtype, .shape = w->shape, .strides = w->strides};
  return &w->t;
}

/* x in the case's format. */
static inline float stored(layer_call call, float x) {
  return call->dtype == SHARDFUZZ_BF16 ? bf16_round(x) : call->dtype == SHARDFUZZ_F16 ? (float)(_Float16)x : x;
}

static inline float *read_floats(layer_call call, tensor t) {
  float *out = floats(call, rows_of(t) * cols_of(t));
  for (int64_t i = 0; i < rows_of(t); i++)
    for (int64_t j = 0; j < cols_of(t); j++) out[i * cols_of(t) + j] = get(t, i, j);
  return out;
}
static inline void write_floats(tensor t, const float *values) {
  for (int64_t i = 0; i < rows_of(t); i++)
    for (int64_t j = 0; j < cols_of(t); j++) put(t, i, j, values[i * cols_of(t) + j]);
}

/* y [rows x out] = x [rows x in] w^T, w [out x in] */
static inline void multiply(float *y, const float *x, const float *w, int64_t rows, int64_t in, int64_t out) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < out; j++) {
      float sum = 0;
      for (int64_t k = 0; k < in; k++) sum += x[i * in + k] * w[j * in + k];
      y[i * out + j] = sum;
    }
}
/* dx [rows x in] = g [rows x out] w */
static inline void multiply_back(float *dx, const float *g, const float *w, int64_t rows, int64_t in, int64_t out) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t k = 0; k < in; k++) {
      float sum = 0;
      for (int64_t j = 0; j < out; j++) sum += g[i * out + j] * w[j * in + k];
      dx[i * in + k] = sum;
    }
}
/* The gradients of weight and bias, those that are wanted. */
static inline void parameter_grads(const struct shardfuzz_parameter *weight, const struct shardfuzz_parameter *bias, const float *g,
                                   const float *x, int64_t rows, const float *own_g, int64_t own_rows) {
  const int64_t out = weight->value.shape[0], in = weight->value.shape[1];
  float *dw = weight->grad.data, *db = bias ? bias->grad.data : NULL;
  for (int64_t j = 0; dw && j < out; j++)
    for (int64_t k = 0; k < in; k++) {
      float sum = 0;
      for (int64_t i = 0; i < rows; i++) sum += g[i * out + j] * x[i * in + k];
      dw[j * in + k] = sum;
    }
  for (int64_t j = 0; db && j < out; j++) {
    db[j] = 0;
    for (int64_t i = 0; i < own_rows; i++) db[j] += own_g[i * out + j];
  }
}

/* All tokens of the tp group, as floats. own: this rank's, all of them without sequence parallelism. */
static inline float *gather_tokens(layer_call call, tensor own, int64_t *rows) {
  const int64_t parts = is_sp(call) ? tp_of(call).size : 1;
  struct wire w;
  *rows = rows_of(own) * parts;
  if (parts == 1) return read_floats(call, own);
  void *all = call->scratch(call, (uint64_t)(*rows * cols_of(own)) * element_bytes(dtype_of(own)));
  call->comm->all_gather(call->comm, SHARDFUZZ_GROUP_TP, all, own->data, rows_of(own) * cols_of(own), dtype_of(own));
  return read_floats(call, wire_at(&w, own, all, *rows, cols_of(own)));
}

/* out = the sum over tp of `partial`, all tokens; with sequence parallelism of this rank's tokens. */
static inline void sum_over_tp(layer_call call, tensor out, const float *partial, int64_t rows) {
  struct wire w;
  const int64_t cols = cols_of(out);
  const uint32_t dtype = dtype_of(out);
  tensor whole = wire_at(&w, out, call->scratch(call, (uint64_t)(rows * cols) * element_bytes(dtype)), rows, cols);
  const struct shardfuzz_comm *comm = call->comm;
  write_floats(whole, partial);
  if (is_sp(call)) {
    if (!ASYNC) comm->reduce_scatter(comm, SHARDFUZZ_GROUP_TP, out->data, whole->data, rows_of(out) * cols, dtype, SHARDFUZZ_SUM);
    if (ASYNC)
      comm->wait(comm,
                 comm->start_reduce_scatter(comm, SHARDFUZZ_GROUP_TP, out->data, whole->data, rows_of(out) * cols, dtype, SHARDFUZZ_SUM));
    return;
  }
  const int64_t summed = rows * cols - (BUG == OTHER_COUNT && comm->groups[SHARDFUZZ_GROUP_TP].index == 0);
  if (!ASYNC)
    comm->all_reduce(comm, BUG == NO_SUCH_GROUP ? SHARDFUZZ_GROUPS : SHARDFUZZ_GROUP_TP, whole->data, summed, dtype, SHARDFUZZ_SUM);
  const uint64_t request = ASYNC ? comm->start_all_reduce(comm, SHARDFUZZ_GROUP_TP, whole->data, rows * cols, dtype, SHARDFUZZ_SUM) : 0;
  if (BUG != READS_EARLY && BUG != NEVER_WAITS) comm->wait(comm, request);
  memcpy(out->data, whole->data, (size_t)(rows * cols) * element_bytes(dtype));
  if (BUG == READS_EARLY) comm->wait(comm, request);
}

#define LAYERS(list)                                                                                                                       \
  const struct shardfuzz_plugin *shardfuzz_plugin_get(void) {                                                                              \
    static const struct shardfuzz_plugin plugin = {.abi = SHARDFUZZ_PLUGIN_ABI,                                                            \
                                                   .size_bytes = sizeof plugin,                                                            \
                                                   .kind = SHARDFUZZ_KIND_LAYERS,                                                          \
                                                   .entry_count = sizeof list / sizeof list[0],                                            \
                                                   .name = "sample",                                                                       \
                                                   .entries = list,                                                                        \
                                                   .entry_bytes = sizeof list[0]};                                                         \
    return &plugin;                                                                                                                        \
  }

#endif
