/* Template: queries, keys and values of one projection, with the norms of queries and keys and the rotation. */
#ifndef SF_ORACLES_REFERENCE_QKV_H
#define SF_ORACLES_REFERENCE_QKV_H

#include "oracles/reference/reference_attention.h"
#include "oracles/reference/reference_linear.h"
#include "oracles/reference/reference_norm.h"

/* The query heads of all tokens, or the key heads: rows of head_dim. */
struct qk_part {
  int64_t per_token, rows;
  int64_t first; /* number of its first row, of queries and keys together */
  int32_t weight, bias;
};

/* Rows of queries, or of keys, that are normed one by one. */
static inline struct qk_part qk_part(const struct run *run, int32_t layer, bool keys) {
  const struct sf_model *model = &run->c->model;
  const int64_t per_token = keys ? model->kv_heads : model->heads;
  return (struct qk_part){.per_token = per_token,
                          .rows = run->tokens * per_token,
                          .first = keys ? run->tokens * model->heads : 0,
                          .weight = sf_catalog_param(run->catalog, SF_MODULE_QK_NORM, layer, keys ? 1 : 0),
                          .bias = sf_catalog_param(run->catalog, SF_MODULE_QK_NORM, layer, keys ? 3 : 2)};
}

/* Where row r of the part lies in a tensor of the QKV layout. */
static inline int64_t qk_place(const struct run *run, bool keys, int64_t per_token, int64_t r) {
  const struct sf_model *model = &run->c->model;
  const int64_t number = r % per_token, token = r / per_token;
  const struct head_columns columns = head_columns(model, keys ? number * (model->heads / model->kv_heads) : number);
  return token * run->qkv_width + (keys ? columns.key : columns.query);
}

/* Values pass a QK norm as they are. */
static inline void qk_copy_values(const struct run *run, real *out, const real *x) {
  const struct sf_model *model = &run->c->model;
  const int64_t d = model->head_dim, per_group = model->heads / model->kv_heads;
  for (int64_t t = 0; t < run->tokens; t++)
    for (int64_t group = 0; group < model->kv_heads; group++) {
      const int64_t at = t * run->qkv_width + head_columns(model, group * per_group).value;
      memcpy(out + at, x + at, (size_t)d * sizeof(real));
    }
}

/* x, out [tokens x qkv_width]. */
static inline void qk_norm_forward(struct run *run, int32_t layer, real *out, const real *x) {
  const int64_t d = run->c->model.head_dim;
  const struct norm_inner inner = norm_inner_of(run, act_id(run, SF_MODULE_QK_NORM, layer, SF_KIND_ACT));
  for (int keys = 0; keys < 2; keys++) {
    const struct qk_part part = qk_part(run, layer, keys);
    const real *bias = part.bias < 0 ? NULL : run->params[part.bias].weight;
    for (int64_t r = 0; r < part.rows; r++) {
      const int64_t at = qk_place(run, keys, part.per_token, r);
      norm_forward_row(run, &inner, part.first + r, d, out + at, x + at, run->params[part.weight].weight, bias);
    }
  }
  qk_copy_values(run, out, x);
  finish_act(run, SF_MODULE_QK_NORM, layer, out, run->qkv_width);
}

/* rows: the part's rows of the sum, contiguous. */
static inline void qk_wgrad(struct run *run, const struct qk_part *part, int32_t param, const real *rows) {
  if (!is_trained(run, param)) return;
  sum_rows(&run->noise, run->scratch.wgrad, rows, part->rows, run->c->model.head_dim);
  finish_wgrad(run, param, 0);
}

/* x: the norm's input. Also the gradients of weights and biases. */
static inline void qk_norm_backward(struct run *run, int32_t layer, real *x_grad, const real *g, const real *x) {
  const int64_t d = run->c->model.head_dim;
  const struct qk_part parts[2] = {qk_part(run, layer, false), qk_part(run, layer, true)};
  const struct norm_inner inner = norm_inner_of(run, act_id(run, SF_MODULE_QK_NORM, layer, SF_KIND_ACT_GRAD));
  for (int keys = 0; keys < 2; keys++)
    for (int64_t r = 0; r < parts[keys].rows; r++) {
      const int64_t at = qk_place(run, keys, parts[keys].per_token, r), row = parts[keys].first + r;
      norm_backward_row(run, &inner, row, d, x_grad + at, run->attention.qk_rows + row * d, g + at, x + at,
                        run->params[parts[keys].weight].weight);
    }
  qk_copy_values(run, x_grad, g);
  finish_act_grad(run, SF_MODULE_QK_NORM, layer, x_grad, run->qkv_width);
  for (int keys = 0; keys < 2; keys++) qk_wgrad(run, &parts[keys], parts[keys].weight, run->attention.qk_rows + parts[keys].first * d);
  for (int keys = 0; keys < 2 && parts[keys].bias >= 0; keys++) {
    for (int64_t r = 0; r < parts[keys].rows; r++)
      memcpy(run->attention.qk_rows + r * d, g + qk_place(run, keys, parts[keys].per_token, r), (size_t)d * sizeof(real));
    qk_wgrad(run, &parts[keys], parts[keys].bias, run->attention.qk_rows);
  }
}

/* acts->rotary: what attention reads. */
static inline void qkv_forward(struct run *run, int32_t layer, const struct layer_acts *acts) {
  linear_forward(run, SF_MODULE_LINEAR_QKV, layer, acts->qkv, acts->norm1, false);
  if (acts->qk_norm != acts->qkv) qk_norm_forward(run, layer, acts->qk_norm, acts->qkv);
  if (acts->rotary != acts->qk_norm) rotary_forward(run, layer, acts->rotary, acts->qk_norm);
}

/* Attention's gradient stands in run->scratch.wide_b; that of the norm's output goes to run->scratch.branch_a. */
static inline void qkv_backward(struct run *run, int32_t layer, const struct layer_acts *acts) {
  real *qkv_grad = run->scratch.wide_b, *other = run->scratch.wide_a;
  if (acts->rotary != acts->qk_norm) {
    rotary_backward(run, layer, other, qkv_grad);
    swap_buffers(&qkv_grad, &other);
  }
  if (acts->qk_norm != acts->qkv) {
    qk_norm_backward(run, layer, other, qkv_grad, acts->qkv);
    swap_buffers(&qkv_grad, &other);
  }
  linear_backward(run, SF_MODULE_LINEAR_QKV, layer, run->scratch.branch_a, qkv_grad, acts->norm1);
}

#endif
