/* Template: cross-attention over a memory that every layer reads, without mask; each query head has a key and a value head of its own. */
#ifndef SF_ORACLES_REFERENCE_CROSS_ATTENTION_H
#define SF_ORACLES_REFERENCE_CROSS_ATTENTION_H

#include "oracles/reference/reference_linear.h"
#include "oracles/reference/reference_norm.h"

/* Sizes of one head's products: q [s x d], keys and values [n x d]; the strides go from one position to the next. */
struct cross_sizes {
  int64_t s, n, d, ld_q, ld_kv;
  real scale;
};

/* The same in every layer. */
static inline struct cross_sizes cross_sizes_of(const struct run *run) {
  const struct sf_model *model = &run->c->model;
  const int64_t b = run->c->train.microbatch_size;
  return (struct cross_sizes){.s = model->seq,
                              .n = model->memory_seq,
                              .d = model->head_dim,
                              .ld_q = b * run->context_width,
                              .ld_kv = 2 * b * run->context_width,
                              .scale = score_scale(run)};
}

/* Memory of one layer. */
static inline void take_cross(struct run *run, struct cross_acts *acts) {
  const int64_t t = run->tokens, h = run->hidden;
  acts->norm = take(run, t * h);
  acts->q = take(run, t * run->context_width);
  acts->kv = take(run, run->memory_rows * 2 * run->context_width);
  acts->probs = take(run, t * run->c->model.heads * run->c->model.memory_seq);
  acts->context = take(run, t * run->context_width);
  acts->proj = take(run, t * h);
  acts->bda = take(run, t * h);
}

/* The memory that all layers read, and their scratch. */
static inline void take_memory(struct run *run) {
  run->acts.memory = take(run, run->memory_rows * run->hidden);
  run->cross.memory_grad = take(run, run->memory_rows * run->hidden);
  run->cross.kv_grad = take(run, run->memory_rows * 2 * run->context_width);
  run->cross.scores = take(run, run->c->model.seq * run->c->model.memory_seq);
}

/* The largest factor or result of a product here, whatever the parameters are; 0 without a memory. */
static inline int64_t cross_product_most(const struct run *run) {
  const struct sf_model *model = &run->c->model;
  const int64_t rows = run->memory_rows > model->seq ? run->memory_rows : model->seq, width = 2 * run->context_width;
  const int64_t cols = width > run->hidden ? width : run->hidden;
  return model->memory_seq == 0 ? 0 : rows * (cols > model->memory_seq ? cols : model->memory_seq);
}

/* The residual stream that the MLP's output is added to. */
static inline const real *after_attention(const struct run *run, const struct layer_acts *acts) {
  return run->c->model.memory_seq > 0 ? acts->cross.bda : acts->attn_bda;
}

/* Fills run->acts.memory for the microbatch at hand. */
static inline void memory_load(struct run *run) {
  const struct moment of = moment_of(run, SF_DATA_MEMORY);
  const struct sf_fill how = sf_fill_for_memory(run->catalog, of.step, of.microbatch);
  fill(run->acts.memory, &how, run->memory_rows * run->hidden);
}

/* In place: scores [s x n] -> softmax of scale * score. */
static inline void softmax_whole(struct inner inner, const struct cross_sizes *at, real *scores) {
  for (int64_t i = 0; i < at->s; i++) {
    real *row = scores + i * at->n;
    for (int64_t j = 0; j < at->n; j++) row[j] *= at->scale;
    inner_perturb(inner, i * at->n, row, at->n);
    const real top = row_max(row, at->n);
    for (int64_t j = 0; j < at->n; j++) row[j] = real_exp(row[j] - top);
    const real sum = inner_number(inner, at->s * at->n + i, row_sum(row, at->n));
    for (int64_t j = 0; j < at->n; j++) row[j] /= sum;
  }
}

/* In place: dP -> P (dP - rowsum(P dP)). */
static inline void softmax_whole_backward(struct inner inner, const struct cross_sizes *at, real *grad, const real *probs) {
  for (int64_t i = 0; i < at->s; i++) {
    real *restrict row = grad + i * at->n;
    const real *restrict p = probs + i * at->n;
    inner_perturb(inner, i * at->n, row, at->n);
    const real mean = inner_number(inner, at->s * at->n + i, row_dot(row, p, at->n));
    for (int64_t j = 0; j < at->n; j++) row[j] = p[j] * (row[j] - mean);
  }
}

/* acts->q, acts->kv to acts->probs and acts->context; every query sees all of the memory. */
static inline void cross_core_forward(struct run *run, int32_t layer, struct cross_acts *acts) {
  const struct cross_sizes at = cross_sizes_of(run);
  const struct sf_trace_id id = act_id(run, SF_MODULE_CROSS_CORE_ATTENTION, layer, SF_KIND_ACT);
  const int64_t heads = run->c->model.heads, width = run->context_width;
  for (int64_t number = 0; number < run->c->train.microbatch_size * heads; number++) {
    const int64_t sequence = number / heads, head = number % heads;
    const real *q = acts->q + sequence * width + head * at.d, *k = acts->kv + 2 * (sequence * width + head * at.d);
    real *p = acts->probs + number * at.s * at.n;
    multiply(&run->noise, SF_F32, p, at.n, straight(q, at.s, at.d, at.ld_q), turned(k, at.d, at.n, at.ld_kv));
    for (int64_t i = 0; has_slip(run, SF_SLIP_CAUSAL_MEMORY) && i < at.s * at.n; i++)
      if (i % at.n > i / at.n) p[i] = -(real)INFINITY;
    softmax_whole(inner_of(run, id, (uint64_t)number), &at, p);
    store_probs(run, id, (uint64_t)number + 1, p, at.s * at.n);
    real *out = acts->context + sequence * width + head * at.d;
    multiply(&run->noise, run->format, out, at.ld_q, straight(p, at.s, at.n, at.n), straight(k + at.d, at.n, at.d, at.ld_kv));
  }
  finish_act(run, SF_MODULE_CROSS_CORE_ATTENTION, layer, acts->context, width);
}

/* q_grad [tokens x heads d] and run->cross.kv_grad [memory rows x 2 heads d] from g, the gradient of the context. */
static inline void cross_core_backward(struct run *run, int32_t layer, real *q_grad, const real *g, const struct cross_acts *acts) {
  const struct cross_sizes at = cross_sizes_of(run);
  const struct sf_trace_id id = act_id(run, SF_MODULE_CROSS_CORE_ATTENTION, layer, SF_KIND_ACT_GRAD);
  const int64_t heads = run->c->model.heads, width = run->context_width;
  real *ds = run->cross.scores;
  for (int64_t number = 0; number < run->c->train.microbatch_size * heads; number++) {
    const int64_t sequence = number / heads, head = number % heads, q_at = sequence * width + head * at.d;
    const real *q = acts->q + q_at, *k = acts->kv + 2 * q_at, *p = acts->probs + number * at.s * at.n;
    real *dq = q_grad + q_at, *dk = run->cross.kv_grad + 2 * q_at;
    multiply(&run->noise, SF_F32, ds, at.n, straight(g + q_at, at.s, at.d, at.ld_q), turned(k + at.d, at.d, at.n, at.ld_kv));
    softmax_whole_backward(inner_of(run, id, (uint64_t)number), &at, ds, p);
    store(run, id, (uint64_t)number + 1, ds, at.s * at.n, run->format);
    multiply(&run->noise, run->format, dq, at.ld_q, straight(ds, at.s, at.n, at.n), straight(k, at.n, at.d, at.ld_kv));
    multiply(&run->noise, run->format, dk, at.ld_kv, turned(ds, at.n, at.s, at.n), straight(q, at.s, at.d, at.ld_q));
    multiply(&run->noise, run->format, dk + at.d, at.ld_kv, turned(p, at.n, at.s, at.n), straight(g + q_at, at.s, at.d, at.ld_q));
    for (int64_t i = 0; i < at.s; i++)
      for (int64_t j = 0; j < at.d; j++) dq[i * at.ld_q + j] *= at.scale;
    for (int64_t i = 0; i < at.n; i++)
      for (int64_t j = 0; j < at.d; j++) dk[i * at.ld_kv + j] *= at.scale;
  }
  finish_act_grad(run, SF_MODULE_CROSS_CORE_ATTENTION, layer, q_grad, width);
  finish_act_grad(run, SF_MODULE_CROSS_KEY_VALUE, layer, run->cross.kv_grad, 2 * width);
}

/* x: the residual stream; acts->proj is what joins it. */
static inline void cross_attention_forward(struct run *run, int32_t layer, struct cross_acts *acts, const real *x) {
  norm_forward(run, SF_MODULE_PRE_CROSS_ATTN_LAYERNORM, layer, acts->norm, x);
  linear_forward(run, SF_MODULE_CROSS_LINEAR_Q, layer, acts->q, acts->norm, false);
  linear_forward(run, SF_MODULE_CROSS_LINEAR_KV, layer, acts->kv, run->acts.memory, false);
  cross_core_forward(run, layer, acts);
  linear_forward(run, SF_MODULE_CROSS_LINEAR_PROJ, layer, acts->proj, acts->context, true);
}

/* run->scratch.stream goes from the gradient after the residual add to the gradient of x. */
static inline void cross_attention_backward(struct run *run, int32_t layer, const struct cross_acts *acts, const real *x) {
  const real *proj_grad = branch_grad(run, SF_MODULE_CROSS_ATTN_BDA, SF_MODULE_CROSS_LINEAR_PROJ, layer, run->scratch.stream);
  linear_backward(run, SF_MODULE_CROSS_LINEAR_PROJ, layer, run->scratch.wide_a, proj_grad, acts->context);
  cross_core_backward(run, layer, run->scratch.wide_b, run->scratch.wide_a, acts);
  linear_backward(run, SF_MODULE_CROSS_LINEAR_Q, layer, run->scratch.branch_a, run->scratch.wide_b, acts->norm);
  linear_backward(run, SF_MODULE_CROSS_LINEAR_KV, layer, run->cross.memory_grad, run->cross.kv_grad, run->acts.memory);
  norm_backward(run, SF_MODULE_PRE_CROSS_ATTN_LAYERNORM, layer, run->scratch.branch_b, run->scratch.branch_a, x);
  residual_backward(run, SF_MODULE_CROSS_ATTN_BDA, layer, run->scratch.branch_b);
}

#endif
