/* Template: rotary positions and causal self-attention with grouped heads. */
#ifndef SF_ORACLES_REFERENCE_ATTENTION_H
#define SF_ORACLES_REFERENCE_ATTENTION_H

#include "oracles/reference/reference_softmax.h"

#include <string.h>

/* Columns of the interleaved QKV layout: per key/value head its query heads, the key head, the value head. */
struct head_columns {
  int64_t query, key, value;
};

/* head: of the query; its key and value are its group's. */
static inline struct head_columns head_columns(const struct sf_model *model, int64_t head) {
  const int64_t per_group = model->heads / model->kv_heads, group = head / per_group;
  const int64_t first = group * (per_group + 2);
  return (struct head_columns){(first + head % per_group) * model->head_dim, (first + per_group) * model->head_dim,
                               (first + per_group + 1) * model->head_dim};
}

/* The query head whose group's key and value this one takes: its own, but for a supposed mistake. */
static inline int64_t grouped_with(const struct run *run, int64_t head) {
  const struct sf_model *model = &run->c->model;
  const bool by_turn = has_slip(run, SF_SLIP_GROUPS_BY_TURN);
  if (!by_turn && !has_slip(run, SF_SLIP_FIRST_GROUP)) return head;
  const int64_t parts = run->options->supposed->head_parts > 0 ? run->options->supposed->head_parts : 1;
  const int64_t heads = model->heads / parts, groups = model->kv_heads / parts, first = head / heads * heads;
  return first + (by_turn ? (head - first) % groups * (heads / groups) : 0);
}

/* Angles in double, whatever the build: only their cosine and sine are rounded. */
static inline void rotary_tables(struct run *run) {
  const struct sf_model *model = &run->c->model;
  const int64_t half = (model->kv_lora_rank > 0 ? model->qk_rope_dim : model->head_dim) / 2;
  const double way = has_slip(run, SF_SLIP_NO_ROTATION) ? 0 : has_slip(run, SF_SLIP_ROTATION_BACKWARD) ? -1 : 1;
  for (int64_t position = 0; position < run->c->model.seq; position++)
    for (int64_t i = 0; i < half; i++) {
      const double turns = (double)(position + has_slip(run, SF_SLIP_NEXT_POSITION)),
                   angle = turns * pow(10000.0, -(double)i / (double)half);
      run->acts.cosines[position * half + i] = (real)(has_slip(run, SF_SLIP_NO_ROTATION) ? 1 : cos(angle));
      run->acts.sines[position * half + i] = (real)(way * sin(angle));
    }
}

/* Column i of the pair (i, i + half), at an angle of the position; direction -1: back. */
static inline void rotate_pairs(const struct run *run, real *restrict to, const real *restrict from, int64_t half, int64_t position,
                                real direction) {
  const real *restrict cosines = run->acts.cosines + position * half, *restrict sines = run->acts.sines + position * half;
  const bool is_interleaved = has_slip(run, SF_SLIP_INTERLEAVED);
  for (int64_t i = 0; i < half && is_interleaved; i++) {
    const real sine = direction * sines[i];
    to[2 * i] = from[2 * i] * cosines[i] - from[2 * i + 1] * sine;
    to[2 * i + 1] = from[2 * i + 1] * cosines[i] + from[2 * i] * sine;
  }
  for (int64_t i = 0; i < half && !is_interleaved; i++) {
    const real sine = direction * sines[i];
    to[i] = from[i] * cosines[i] - from[i + half] * sine;
    to[i + half] = from[i + half] * cosines[i] + from[i] * sine;
  }
}

/* One token: query and key heads rotated by its position (direction -1: back), value heads copied. */
static inline void rotate_row(const struct run *run, real *restrict out, const real *restrict x, int64_t position, real direction) {
  const struct sf_model *model = &run->c->model;
  const int64_t d = model->head_dim, block = model->heads / model->kv_heads + 2;
  for (int64_t head = 0; head < model->kv_heads * block; head++) {
    const real *restrict from = x + head * d;
    real *restrict to = out + head * d;
    if (head % block == block - 1) {
      for (int64_t i = 0; i < d; i++) to[i] = from[i];
      continue;
    }
    rotate_pairs(run, to, from, d / 2, position, direction);
  }
}

/* x, out [tokens x qkv_width]; values are copied. */
static inline void rotary_forward(struct run *run, int32_t layer, real *out, const real *x) {
  for (int64_t t = 0; t < run->tokens; t++) rotate_row(run, out + t * run->qkv_width, x + t * run->qkv_width, position_of(run, t), 1);
  finish_act(run, SF_MODULE_ROTARY, layer, out, run->qkv_width);
}

/* Turns back by the same angles. */
static inline void rotary_backward(struct run *run, int32_t layer, real *x_grad, const real *g) {
  for (int64_t t = 0; t < run->tokens; t++) rotate_row(run, x_grad + t * run->qkv_width, g + t * run->qkv_width, position_of(run, t), -1);
  finish_act_grad(run, SF_MODULE_ROTARY, layer, x_grad, run->qkv_width);
}

/* out [tokens x context_width] = round(round(softmax(q k^T / sqrt(d))) v), per sequence and head; fills acts->probs and sink_probs. */
static inline void attention_forward(struct run *run, int32_t layer, real *out, const struct layer_acts *acts, const real *qkv) {
  const struct sf_model *model = &run->c->model;
  const int32_t sinks = sf_catalog_param(run->catalog, SF_MODULE_CORE_ATTENTION, layer, 0);
  const int64_t b = run->c->train.microbatch_size, s = model->seq, d = model->head_dim;
  const int64_t ld = b * run->qkv_width, ld_out = b * run->context_width;
  const struct sf_trace_id id = act_id(run, SF_MODULE_CORE_ATTENTION, layer, SF_KIND_ACT);
  for (int64_t n = 0; n < b; n++)
    for (int64_t head = 0; head < model->heads; head++) {
      const struct head_columns at = head_columns(model, head), group = head_columns(model, grouped_with(run, head));
      const int64_t number = n * model->heads + head;
      const real *row = qkv + n * run->qkv_width;
      const struct softmax softmax = softmax_of(run, sinks, head, n);
      real *p = acts->probs + number * s * s;
      multiply(&run->noise, SF_F32, p, s, straight(row + at.query, s, d, ld), turned(row + group.key, d, s, ld));
      softmax_causal(inner_of(run, id, (uint64_t)number), &softmax, p, sinks < 0 ? NULL : acts->sink_probs + number * s);
      store_probs(run, id, (uint64_t)number + 1, p, s * s);
      multiply(&run->noise, run->format, out + n * run->context_width + head * d, ld_out, straight(p, s, s, s),
               straight(row + group.value, s, d, ld));
    }
  finish_act(run, SF_MODULE_CORE_ATTENTION, layer, out, run->context_width);
}

/* The sink's dS of each query, -P_sink rowsum(P dP), in the head's column of sink_terms; sequence: of the microbatch. */
static inline void sink_backward(struct run *run, struct inner inner, const real *sink_probs, const real *means, int64_t sequence,
                                 int64_t head) {
  const int64_t s = run->c->model.seq, b = run->c->train.microbatch_size, heads = run->c->model.heads;
  for (int64_t i = 0; i < s; i++) {
    const real term = inner_number(inner, s * s + s + i, -sink_probs[i] * means[i]);
    run->attention.sink_terms[(i * b + sequence) * heads + head] = term;
  }
}

/* to [rows x cols], stride ld, = scale * from [rows x cols]. */
static inline void put_scaled(real *to, int64_t ld, const real *from, int64_t rows, int64_t cols, real scale) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++) to[i * ld + j] = scale * from[i * cols + j];
}

/* Packs rows of cols numbers that are ld apart. */
static inline void copy_rows(real *restrict to, const real *restrict from, int64_t ld, int64_t rows, int64_t cols) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++) to[i * cols + j] = from[i * ld + j];
}

/* One sequence of a microbatch, and where its rows begin; ld: from one position to the next. */
struct attention_grad {
  const real *qkv, *out_grad, *probs; /* probs: [heads][seq x seq] */
  const real *sink_probs;             /* [heads][seq]; NULL without sinks */
  real *qkv_grad;
  int64_t ld, ld_out, number; /* number of its first head, of all heads of the microbatch */
  int64_t sequence;
};

/* Where a supposed mistake keeps queries from keys: a copy of from [seq x seq] with zeros there; else from. */
static inline const real *met_keys(struct run *run, const real *from) {
  const int64_t s = run->c->model.seq;
  real *to = sets_within(run, SF_WITHIN_SLOPES) > 1 ? take(run, s * s) : NULL;
  if (to == NULL) return from;
  for (int64_t at = 0; at < s * s; at++) to[at] = do_meet(run, SF_WITHIN_SLOPES, at / s, at % s) ? from[at] : 0;
  return to;
}

/* The query heads of a group: scores of each become dS, then dq = dS k. */
static inline void query_grads(struct run *run, struct sf_trace_id id, const struct attention_grad *at, int64_t first, int64_t group) {
  const int64_t s = run->c->model.seq, d = run->c->model.head_dim;
  for (int64_t head = first; head < first + group; head++) {
    const struct head_columns columns = head_columns(&run->c->model, head), grouped = head_columns(&run->c->model, grouped_with(run, head));
    const uint64_t number = (uint64_t)(at->number + head);
    real *ds = run->attention.scores + (head - first) * s * s;
    multiply(&run->noise, SF_F32, ds, s, straight(at->out_grad + head * d, s, d, at->ld_out),
             turned(at->qkv + grouped.value, d, s, at->ld));
    const struct inner inner = inner_of(run, id, number);
    const struct softmax softmax = softmax_of(run, -1, head, at->sequence);
    softmax_backward(inner, &softmax, ds, run->attention.row_means, at->probs + head * s * s);
    if (at->sink_probs != NULL) sink_backward(run, inner, at->sink_probs + head * s, run->attention.row_means, at->sequence, head);
    store(run, id, number + 1, ds, s * s, run->format);
    const real *slopes = met_keys(run, ds);
    multiply(&run->noise, run->format, run->attention.head_grad, d, straight(slopes, s, s, s),
             straight(at->qkv + grouped.key, s, d, at->ld));
    put_scaled(at->qkv_grad + columns.query, at->ld, run->attention.head_grad, s, d, 1 / real_sqrt((real)d));
  }
}

/* Whether a query head of its group, of so many, gives the key and value gradients; but for a supposed mistake each does. */
static inline bool gives_grads(const struct run *run, int64_t number, int64_t group) {
  if (has_slip(run, SF_SLIP_LAST_HEAD_ALONE)) return number == group - 1;
  return !has_slip(run, SF_SLIP_FIRST_HEAD_ALONE) || number == 0;
}

/* The same of the heads of a group, for the gradients of keys and values. */
static inline const real *met_queries(const struct run *run, real *to, const real *from, int64_t heads) {
  const int64_t s = run->c->model.seq;
  const bool of_all = !has_slip(run, SF_SLIP_LAST_HEAD_ALONE) && !has_slip(run, SF_SLIP_FIRST_HEAD_ALONE);
  if (sets_within(run, SF_WITHIN_QUERIES) == 1 && of_all) return from;
  for (int64_t at = 0; at < heads * s * s; at++)
    to[at] = do_meet(run, SF_WITHIN_QUERIES, at / s % s, at % s) && gives_grads(run, at / s / s, heads) ? from[at] : 0;
  return to;
}

/* dk = dS^T q and dv = P^T g, each one product over the rows of all query heads of the group. */
static inline void key_value_grads(struct run *run, const struct attention_grad *at, int64_t first, int64_t group) {
  const int64_t s = run->c->model.seq, d = run->c->model.head_dim;
  const struct head_columns columns = head_columns(&run->c->model, first);
  for (int64_t i = 0; i < group; i++) copy_rows(run->attention.group_rows + i * s * d, at->qkv + columns.query + i * d, at->ld, s, d);
  multiply(&run->noise, run->format, run->attention.head_grad, d,
           turned(met_queries(run, run->attention.scores, run->attention.scores, group), s, group * s, s),
           straight(run->attention.group_rows, group * s, d, d));
  const real scale = score_scale(run);
  real *key = at->qkv_grad + columns.key, *value = at->qkv_grad + columns.value;
  put_scaled(key, at->ld, run->attention.head_grad, s, d, scale);
  for (int64_t i = 0; i < group; i++) copy_rows(run->attention.group_rows + i * s * d, at->out_grad + (first + i) * d, at->ld_out, s, d);
  multiply(&run->noise, run->format, run->attention.head_grad, d,
           turned(met_queries(run, run->attention.scores, at->probs + first * s * s, group), s, group * s, s),
           straight(run->attention.group_rows, group * s, d, d));
  put_scaled(value, at->ld, run->attention.head_grad, s, d, 1);
}

/* g [tokens x context_width] to qkv_grad [tokens x qkv_width]; sinks' gradients too. */
static inline void attention_backward(struct run *run, int32_t layer, real *qkv_grad, const real *g, const real *qkv,
                                      const struct layer_acts *acts) {
  const struct sf_model *model = &run->c->model;
  const int64_t b = run->c->train.microbatch_size, s = model->seq, group = model->heads / model->kv_heads;
  const struct sf_trace_id id = act_id(run, SF_MODULE_CORE_ATTENTION, layer, SF_KIND_ACT_GRAD);
  for (int64_t n = 0; n < b; n++) {
    const struct attention_grad at = {.qkv = qkv + n * run->qkv_width,
                                      .out_grad = g + n * run->context_width,
                                      .probs = acts->probs + n * model->heads * s * s,
                                      .sink_probs = model->sinks ? acts->sink_probs + n * model->heads * s : NULL,
                                      .qkv_grad = qkv_grad + n * run->qkv_width,
                                      .ld = b * run->qkv_width,
                                      .ld_out = b * run->context_width,
                                      .number = n * model->heads,
                                      .sequence = n};
    for (int64_t first = 0; first < model->heads; first += group) {
      query_grads(run, id, &at, first, group);
      key_value_grads(run, &at, first, group);
    }
  }
  finish_act_grad(run, SF_MODULE_CORE_ATTENTION, layer, qkv_grad, run->qkv_width);
  const int32_t sinks = sf_catalog_param(run->catalog, SF_MODULE_CORE_ATTENTION, layer, 0);
  if (!is_trained(run, sinks)) return;
  sum_rows(&run->noise, run->scratch.wgrad, run->attention.sink_terms, run->tokens, model->heads);
  finish_wgrad(run, sinks, 0);
}

#endif
