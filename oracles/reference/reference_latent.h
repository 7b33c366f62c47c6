/* Template: multi-latent attention's projections. Queries, and keys with values, are made of narrow latents; a part of each key comes
 * straight from the hidden state, is rotated, and is the same for all heads. What comes out has the interleaved QKV layout. */
#ifndef SF_ORACLES_REFERENCE_LATENT_H
#define SF_ORACLES_REFERENCE_LATENT_H

#include "oracles/reference/reference_attention.h"
#include "oracles/reference/reference_linear.h"
#include "oracles/reference/reference_norm.h"

/* Widths of a row, and of what a head has in it. */
struct latent_sizes {
  int64_t heads, d, rope, nope; /* a query or key head: nope columns as they are, rope rotated ones */
  int64_t latent, down, up;     /* kv_lora_rank; outputs of linear_kv_down_proj; of linear_kv_up_proj */
};

/* As they follow from the model, which has latent attention. */
static inline struct latent_sizes latent_sizes(const struct sf_model *m) {
  const int64_t nope = m->head_dim - m->qk_rope_dim;
  return (struct latent_sizes){.heads = m->heads,
                               .d = m->head_dim,
                               .rope = m->qk_rope_dim,
                               .nope = nope,
                               .latent = m->kv_lora_rank,
                               .down = m->kv_lora_rank + m->qk_rope_dim,
                               .up = m->heads * (nope + m->head_dim)};
}

/* Buffers do not overlap. */
static inline void copy_numbers(real *restrict to, const real *restrict from, int64_t count) {
  memcpy(to, from, (size_t)count * sizeof(real));
}

/* The input of the scores: every head's query, its key (the shared part in each) and its value. */
static inline void latent_rotary_forward(struct run *run, int32_t layer, const struct layer_acts *acts) {
  const struct latent_sizes n = latent_sizes(&run->c->model);
  for (int64_t t = 0; t < run->tokens; t++) {
    const int64_t position = position_of(run, t);
    const real *shared = acts->kv_down + t * n.down + n.latent;
    for (int64_t head = 0; head < n.heads; head++) {
      const real *query = acts->q + (t * n.heads + head) * n.d, *key = acts->kv_up + t * n.up + head * (n.nope + n.d);
      real *out = acts->rotary + t * run->qkv_width + head * 3 * n.d;
      copy_numbers(out, query, n.nope);
      rotate_pairs(run, out + n.nope, query + n.nope, n.rope / 2, position, 1);
      copy_numbers(out + n.d, key, n.nope);
      rotate_pairs(run, out + n.d + n.nope, shared, n.rope / 2, position, 1);
      copy_numbers(out + 2 * n.d, key + n.nope, n.d);
    }
  }
  finish_act(run, SF_MODULE_ROTARY, layer, acts->rotary, run->qkv_width);
}

/* acts->norm1 to acts->rotary, the fused queries, keys and values of every head. */
static inline void latent_forward(struct run *run, int32_t layer, const struct layer_acts *acts) {
  const struct latent_sizes n = latent_sizes(&run->c->model);
  if (run->c->model.q_lora_rank > 0) {
    linear_forward(run, SF_MODULE_LINEAR_Q_DOWN, layer, acts->q_down, acts->norm1, false);
    norm_forward(run, SF_MODULE_Q_LAYERNORM, layer, acts->q_norm, acts->q_down);
    linear_forward(run, SF_MODULE_LINEAR_Q_UP, layer, acts->q, acts->q_norm, false);
  } else {
    linear_forward(run, SF_MODULE_LINEAR_Q, layer, acts->q, acts->norm1, false);
  }
  linear_forward(run, SF_MODULE_LINEAR_KV_DOWN, layer, acts->kv_down, acts->norm1, false);
  for (int64_t t = 0; t < run->tokens; t++) copy_numbers(acts->kv_latent + t * n.latent, acts->kv_down + t * n.down, n.latent);
  norm_forward(run, SF_MODULE_KV_LAYERNORM, layer, acts->kv_norm, acts->kv_latent);
  linear_forward(run, SF_MODULE_LINEAR_KV_UP, layer, acts->kv_up, acts->kv_norm, false);
  latent_rotary_forward(run, layer, acts);
}

/* Heads stay apart: the shared part of the keys has a gradient for each. */
static inline void latent_rotary_backward(struct run *run, int32_t layer, real *x_grad, const real *g) {
  const struct latent_sizes n = latent_sizes(&run->c->model);
  for (int64_t t = 0; t < run->tokens; t++)
    for (int64_t part = 0; part < 3 * n.heads; part++) {
      const int64_t at = t * run->qkv_width + part * n.d;
      const bool is_value = part % 3 == 2;
      copy_numbers(x_grad + at, g + at, is_value ? n.d : n.nope);
      if (!is_value) rotate_pairs(run, x_grad + at + n.nope, g + at + n.nope, n.rope / 2, position_of(run, t), -1);
    }
  finish_act_grad(run, SF_MODULE_ROTARY, layer, x_grad, run->qkv_width);
}

/* What tensor-parallel ranks round of their own heads' sums and of sums of those, each number for itself, before fp8 makes a jump of it. E5
 * has few orders of few heads, and in each of them all numbers go the same way. */
static inline void perturb_parts(struct run *run, int32_t layer, real *sums, const real *heads, int64_t head_count, int64_t count) {
  const uint64_t key = sf_noise_key(run->options->draw, act_id(run, SF_MODULE_LINEAR_KV_DOWN, layer, SF_KIND_ACT_GRAD), 2);
  const real unit = (real)sf_dtype_unit_roundoff(run->format);
  if (run->options->perturb != SF_PERTURB_STORED || head_count == 1) return;
  for (int64_t i = 0; i < count; i++) {
    real size = 0;
    for (int64_t head = 0; head < head_count; head++)
      size += heads[head * count + i] < 0 ? -heads[head * count + i] : heads[head * count + i];
    sums[i] += (noise_bits(key, i, sums[i]) >> 31 ? unit : -unit) / 2 * size;
  }
}

/* sums [tokens x rope] = round(sum over heads of the shared part's gradients), one product with ones. heads: room for tokens * heads *
 * rope. */
static inline void shared_key_grad(struct run *run, int32_t layer, real *sums, real *heads, const real *fused) {
  const struct latent_sizes n = latent_sizes(&run->c->model);
  const int64_t count = run->tokens * n.rope;
  for (int64_t head = 0; head < n.heads; head++)
    for (int64_t t = 0; t < run->tokens; t++)
      copy_numbers(heads + head * count + t * n.rope, fused + t * run->qkv_width + (3 * head + 1) * n.d + n.nope, n.rope);
  multiply(&run->noise, run->format, sums, count, straight(run->latent.ones, 1, n.heads, n.heads), straight(heads, n.heads, count, count));
  perturb_parts(run, layer, sums, heads, n.heads, count);
  store(run, act_id(run, SF_MODULE_LINEAR_KV_DOWN, layer, SF_KIND_ACT_GRAD), 1, sums, count, run->format);
}

/* fused: gradient of what the rotation read. Writes the gradient of linear_kv_down_proj's input into x_grad. */
static inline void latent_kv_backward(struct run *run, int32_t layer, real *x_grad, const real *fused, const struct layer_acts *acts) {
  const struct latent_sizes n = latent_sizes(&run->c->model);
  real *a = run->latent.a, *b = run->latent.b;
  for (int64_t t = 0; t < run->tokens; t++)
    for (int64_t head = 0; head < n.heads; head++) {
      const real *from = fused + t * run->qkv_width + (3 * head + 1) * n.d;
      copy_numbers(a + t * n.up + head * (n.nope + n.d), from, n.nope);
      copy_numbers(a + t * n.up + head * (n.nope + n.d) + n.nope, from + n.d, n.d);
    }
  linear_backward(run, SF_MODULE_LINEAR_KV_UP, layer, b, a, acts->kv_norm);
  norm_backward(run, SF_MODULE_KV_LAYERNORM, layer, a, b, acts->kv_latent);
  shared_key_grad(run, layer, run->latent.shared_grad, b, fused);
  for (int64_t t = 0; t < run->tokens; t++) {
    copy_numbers(b + t * n.down, a + t * n.latent, n.latent);
    copy_numbers(b + t * n.down + n.latent, run->latent.shared_grad + t * n.rope, n.rope);
  }
  linear_backward(run, SF_MODULE_LINEAR_KV_DOWN, layer, x_grad, b, acts->norm1);
}

/* x_grad = the queries' share of the input's gradient. fused: the gradient of the fused tensor. */
static inline void latent_q_backward(struct run *run, int32_t layer, real *x_grad, const real *fused, const struct layer_acts *acts) {
  const struct latent_sizes n = latent_sizes(&run->c->model);
  real *a = run->latent.a, *b = run->latent.b;
  for (int64_t t = 0; t < run->tokens; t++)
    for (int64_t head = 0; head < n.heads; head++)
      copy_numbers(a + (t * n.heads + head) * n.d, fused + t * run->qkv_width + 3 * head * n.d, n.d);
  if (run->c->model.q_lora_rank == 0) {
    linear_backward(run, SF_MODULE_LINEAR_Q, layer, x_grad, a, acts->norm1);
    return;
  }
  linear_backward(run, SF_MODULE_LINEAR_Q_UP, layer, b, a, acts->q_norm);
  norm_backward(run, SF_MODULE_Q_LAYERNORM, layer, a, b, acts->q_down);
  linear_backward(run, SF_MODULE_LINEAR_Q_DOWN, layer, x_grad, a, acts->norm1);
}

/* g: gradient of the rotation's output. x_grad: of the input norm's output, to which both projections add. */
static inline void latent_backward(struct run *run, int32_t layer, real *x_grad, const real *g, const struct layer_acts *acts) {
  const int64_t count = run->tokens * run->hidden;
  latent_rotary_backward(run, layer, run->latent.c, g);
  latent_kv_backward(run, layer, run->scratch.branch_b, run->latent.c, acts);
  latent_q_backward(run, layer, x_grad, run->latent.c, acts);
  for (int64_t i = 0; i < count; i++) x_grad[i] += run->scratch.branch_b[i];
  store(run, act_id(run, SF_MODULE_INPUT_LAYERNORM, layer, SF_KIND_ACT_GRAD), 1, x_grad, count, run->format);
}

/* Memory of one layer. */
static inline void take_latent_acts(struct run *run, struct layer_acts *acts) {
  const struct sf_model *m = &run->c->model;
  const struct latent_sizes n = latent_sizes(m);
  const int64_t t = run->tokens;
  if (m->q_lora_rank > 0) {
    acts->q_down = take(run, t * m->q_lora_rank);
    acts->q_norm = take(run, t * m->q_lora_rank);
  }
  acts->q = take(run, t * n.heads * n.d);
  acts->kv_down = take(run, t * n.down);
  acts->kv_latent = take(run, t * n.latent);
  acts->kv_norm = take(run, t * n.latent);
  acts->kv_up = take(run, t * n.up);
}

/* widest: of any module's row. */
static inline void take_latent_scratch(struct run *run, int64_t widest) {
  const struct latent_sizes n = latent_sizes(&run->c->model);
  run->latent.a = take(run, run->tokens * widest);
  run->latent.b = take(run, run->tokens * widest);
  run->latent.c = take(run, run->tokens * run->qkv_width);
  run->latent.shared_grad = take(run, run->tokens * n.rope);
  run->latent.ones = take(run, n.heads);
  for (int64_t i = 0; run->latent.ones != NULL && i < n.heads; i++) run->latent.ones[i] = 1;
}

#endif
