#include "targets/builtin/attention/latent_attention.h"

#include "targets/builtin/attention/rotary.h"
#include "targets/builtin/parallel/fault.h"

void sf_latent_attention_create(struct sf_latent_attention *layer, struct sf_rank_run *run, int32_t index, const float *cos_sin,
                                const struct sf_group *tp, bool sp) {
  const struct sf_model *m = &run->c->model;
  const int64_t heads = m->heads / tp->size;
  *layer = (struct sf_latent_attention){.has_q_down = m->q_lora_rank > 0,
                                        .tp = *tp,
                                        .sp = sp,
                                        .heads = heads,
                                        .head_dim = m->head_dim,
                                        .rope = m->qk_rope_dim,
                                        .latent = m->kv_lora_rank,
                                        .module_rotary = sf_rank_module(run, SF_MODULE_ROTARY, index),
                                        .cos_sin = cos_sin};
  const struct sf_dim_map queries = sf_dim_map_part(m->heads * m->head_dim, tp->size, tp->index);
  const struct sf_dim_map keys = sf_dim_map_part(m->heads * (2 * m->head_dim - m->qk_rope_dim), tp->size, tp->index);
  const struct sf_dim_map fused = sf_dim_map_part(3 * m->heads * m->head_dim, tp->size, tp->index);
  if (layer->has_q_down) {
    sf_replicated_linear_create(&layer->q_down, run, SF_MODULE_LINEAR_Q_DOWN, index, sp);
    sf_norm_layer_create(&layer->q_layernorm, run, SF_MODULE_Q_LAYERNORM, index, sp);
  }
  const enum sf_module_class q = layer->has_q_down ? SF_MODULE_LINEAR_Q_UP : SF_MODULE_LINEAR_Q;
  sf_column_parallel_linear_create(&layer->q, run, q, index, &queries, NULL, tp, sp);
  sf_replicated_linear_create(&layer->kv_down, run, SF_MODULE_LINEAR_KV_DOWN, index, sp);
  sf_norm_layer_create(&layer->kv_layernorm, run, SF_MODULE_KV_LAYERNORM, index, sp);
  sf_column_parallel_linear_create(&layer->kv_up, run, SF_MODULE_LINEAR_KV_UP, index, &keys, NULL, tp, sp);
  layer->map = (struct sf_shard_map){.rows = run->map_gathered.rows, .cols = fused};
}

/* to [rows x width] = from, which have a stride each. */
static void copy_columns(float *to, int64_t ld_to, const float *from, int64_t ld_from, int64_t rows, int64_t width) {
  for (int64_t row = 0; row < rows; row++) memcpy(to + row * ld_to, from + row * ld_from, (size_t)width * sizeof *to);
}

/* Columns of one head: first of the fused layout, of the queries', of linear_kv_up_proj's output. */
struct head_columns {
  int64_t fused, query, key;
};

static struct head_columns head_columns(const struct sf_latent_attention *layer, int64_t head) {
  return (struct head_columns){3 * head * layer->head_dim, head * layer->head_dim, head * (2 * layer->head_dim - layer->rope)};
}

/* shared: [T x rope], the part that all keys have in common. */
static float *assemble(struct sf_rank_run *run, const struct sf_latent_attention *layer, const float *q, const float *kv,
                       const float *shared) {
  const int64_t d = layer->head_dim, rope = layer->rope, nope = d - rope, tokens = run->tokens;
  const int64_t width = 3 * layer->heads * d, ld_q = layer->q.out, ld_kv = layer->kv_up.out;
  float *fused = sf_buffers_take(&run->acts, tokens * width);
  for (int64_t head = 0; head < layer->heads; head++) {
    const struct head_columns at = head_columns(layer, head);
    float *query = fused + at.fused, *key = query + d, *value = key + d;
    copy_columns(query, width, q + at.query, ld_q, tokens, nope);
    sf_rotary_apply(run, query + nope, width, q + at.query + nope, ld_q, layer->cos_sin, rope, false);
    copy_columns(key, width, kv + at.key, ld_kv, tokens, nope);
    sf_rotary_apply(run, key + nope, width, shared, rope, layer->cos_sin, rope, false);
    copy_columns(value, width, kv + at.key + nope, ld_kv, tokens, d);
  }
  return fused;
}

/* The shared columns of linear_kv_down_proj's output, of all tokens. */
static float *gather_shared(struct sf_rank_run *run, const struct sf_latent_attention *layer, const float *down) {
  const int64_t count = run->tokens_local * layer->rope;
  float *own = sf_buffers_take(&run->acts, count);
  copy_columns(own, layer->rope, down + layer->latent, layer->kv_down.out, run->tokens_local, layer->rope);
  if (!layer->sp) return own;
  float *all = sf_buffers_take(&run->acts, run->tokens * layer->rope);
  sf_all_gather(run->env->comm, &layer->tp, all, own, count, run->dtype, "latent_attention.fwd.gather_shared_key");
  sf_buffers_give(&run->acts, own);
  return all;
}

static float *make_queries(struct sf_rank_run *run, const struct sf_latent_attention *layer, struct sf_latent_acts *acts) {
  float *in;
  if (layer->has_q_down) {
    acts->q_down = sf_replicated_linear_forward(run, &layer->q_down, acts->input);
    in = sf_norm_layer_forward(run, &layer->q_layernorm, acts->q_down, &acts->q_stats);
  } else {
    const int64_t count = run->tokens_local * run->hidden;
    in = sf_buffers_take(&run->acts, count);
    memcpy(in, acts->input, (size_t)count * sizeof *in);
  }
  return sf_column_parallel_linear_forward(run, &layer->q, in, &acts->q_input);
}

float *sf_latent_attention_forward(struct sf_rank_run *run, const struct sf_latent_attention *layer, struct sf_latent_acts *acts,
                                   float *input) {
  *acts = (struct sf_latent_acts){.input = input};
  float *q = make_queries(run, layer, acts);
  float *down = sf_replicated_linear_forward(run, &layer->kv_down, input);
  acts->kv_latent = sf_buffers_take(&run->acts, run->tokens_local * layer->latent);
  copy_columns(acts->kv_latent, layer->latent, down, layer->kv_down.out, run->tokens_local, layer->latent);
  float *normed = sf_norm_layer_forward(run, &layer->kv_layernorm, acts->kv_latent, &acts->kv_stats);
  float *kv = sf_column_parallel_linear_forward(run, &layer->kv_up, normed, &acts->kv_input);
  float *shared = gather_shared(run, layer, down);
  float *fused = assemble(run, layer, q, kv, shared);
  sf_buffers_give(&run->acts, shared);
  sf_buffers_give(&run->acts, kv);
  sf_buffers_give(&run->acts, down);
  sf_buffers_give(&run->acts, q);
  sf_trace_act(run, layer->module_rotary, &layer->map, fused);
  return fused;
}

/* Undoes the rotation of every head; takes grad. */
static float *rotate_back(struct sf_rank_run *run, const struct sf_latent_attention *layer, float *grad) {
  const int64_t d = layer->head_dim, nope = d - layer->rope, width = 3 * layer->heads * d;
  float *out = sf_buffers_take(&run->acts, run->tokens * width);
  memcpy(out, grad, (size_t)(run->tokens * width) * sizeof *out);
  for (int64_t head = 0; head < layer->heads; head++)
    for (int64_t part = 0; part < 2; part++) {
      const int64_t at = (3 * head + part) * d + nope;
      sf_rotary_apply(run, out + at, width, grad + at, width, layer->cos_sin, layer->rope, true);
    }
  sf_buffers_give(&run->acts, grad);
  sf_trace_act_grad(run, layer->module_rotary, &layer->map, out);
  return out;
}

/* Sum over this rank's heads of the shared columns' gradients, [T x rope], rounded. */
static float *sum_shared(struct sf_rank_run *run, const struct sf_latent_attention *layer, const float *fused) {
  struct sf_device *dev = run->env->device;
  const int64_t d = layer->head_dim, rope = layer->rope, width = 3 * layer->heads * d, count = run->tokens * rope;
  float *heads = sf_buffers_take(&run->acts, layer->heads * count), *sum = sf_buffers_take(&run->acts, count);
  for (int64_t head = 0; head < layer->heads; head++)
    copy_columns(heads + head * count, rope, fused + (3 * head + 2) * d - rope, width, run->tokens, rope);
  memset(sum, 0, (size_t)count * sizeof *sum);
  dev->ops->col_sum(dev, sum, heads, layer->heads, count);
  dev->ops->round(dev, sum, sum, count, run->dtype);
  sf_buffers_give(&run->acts, heads);
  return sum;
}

/* sum: this rank's heads', taken. Returns the whole gradient of this rank's tokens, [tokens_local x rope]. */
static float *reduce_shared(struct sf_rank_run *run, const struct sf_latent_attention *layer, float *sum) {
  const int64_t local = run->tokens_local * layer->rope;
  const bool plain_split = sf_fault(run->env, SF_FAULT_MLA_KPOS_GRAD_NOAR);
  if (layer->tp.size == 1 || (plain_split && !layer->sp)) return sum;
  if (!layer->sp) {
    sf_all_reduce(run->env->comm, &layer->tp, sum, local, run->dtype, SF_REDUCE_SUM, "latent_attention.bwd.shared_key_grad");
    return sum;
  }
  float *out = sf_buffers_take(&run->acts, local);
  if (plain_split)
    memcpy(out, sum + layer->tp.index * local, (size_t)local * sizeof *out);
  else
    sf_reduce_scatter(run->env->comm, &layer->tp, out, sum, local, run->dtype, SF_REDUCE_SUM,
                      "latent_attention.bwd.shared_key_grad_scatter");
  sf_buffers_give(&run->acts, sum);
  return out;
}

/* Gradient of the input that comes through keys and values. */
static float *key_backward(struct sf_rank_run *run, const struct sf_latent_attention *layer, struct sf_latent_acts *acts,
                           const float *fused) {
  const int64_t d = layer->head_dim, nope = d - layer->rope, width = 3 * layer->heads * d, ld = layer->kv_up.out;
  const int64_t local = run->tokens_local, down = layer->kv_down.out;
  float *kv = sf_buffers_take(&run->acts, run->tokens * ld);
  for (int64_t head = 0; head < layer->heads; head++) {
    const struct head_columns at = head_columns(layer, head);
    copy_columns(kv + at.key, ld, fused + at.fused + d, width, run->tokens, nope);
    copy_columns(kv + at.key + nope, ld, fused + at.fused + 2 * d, width, run->tokens, d);
  }
  float *normed = sf_column_parallel_linear_backward(run, &layer->kv_up, kv, acts->kv_input);
  float *latent = sf_norm_layer_backward(run, &layer->kv_layernorm, normed, acts->kv_latent, acts->kv_stats);
  acts->kv_input = acts->kv_stats = NULL;
  float *shared = reduce_shared(run, layer, sum_shared(run, layer, fused));
  float *joined = sf_buffers_take(&run->acts, local * down);
  copy_columns(joined, down, latent, layer->latent, local, layer->latent);
  copy_columns(joined + layer->latent, down, shared, layer->rope, local, layer->rope);
  float *grad = sf_replicated_linear_backward(run, &layer->kv_down, joined, acts->input);
  sf_buffers_give(&run->acts, joined);
  sf_buffers_give(&run->acts, shared);
  sf_buffers_give(&run->acts, latent);
  sf_buffers_give(&run->acts, normed);
  sf_buffers_give(&run->acts, kv);
  return grad;
}

/* Gradient of the input that comes through the queries. */
static float *query_backward(struct sf_rank_run *run, const struct sf_latent_attention *layer, struct sf_latent_acts *acts,
                             const float *fused) {
  const int64_t d = layer->head_dim, width = 3 * layer->heads * d, ld = layer->q.out;
  float *q = sf_buffers_take(&run->acts, run->tokens * ld);
  for (int64_t head = 0; head < layer->heads; head++) {
    const struct head_columns at = head_columns(layer, head);
    copy_columns(q + at.query, ld, fused + at.fused, width, run->tokens, d);
  }
  float *grad = sf_column_parallel_linear_backward(run, &layer->q, q, acts->q_input);
  acts->q_input = NULL;
  sf_buffers_give(&run->acts, q);
  if (!layer->has_q_down) return grad;
  float *latent = sf_norm_layer_backward(run, &layer->q_layernorm, grad, acts->q_down, acts->q_stats);
  acts->q_stats = NULL;
  sf_buffers_give(&run->acts, grad);
  grad = sf_replicated_linear_backward(run, &layer->q_down, latent, acts->input);
  sf_buffers_give(&run->acts, latent);
  return grad;
}

float *sf_latent_attention_backward(struct sf_rank_run *run, const struct sf_latent_attention *layer, struct sf_latent_acts *acts,
                                    float *grad) {
  struct sf_device *dev = run->env->device;
  float *fused = rotate_back(run, layer, grad);
  float *through_keys = key_backward(run, layer, acts, fused), *sum = query_backward(run, layer, acts, fused);
  dev->ops->add(dev, sum, sum, through_keys, run->tokens_local * run->hidden, run->dtype);
  sf_buffers_give(&run->acts, through_keys);
  sf_buffers_give(&run->acts, fused);
  sf_latent_acts_release(run, acts);
  return sum;
}

void sf_latent_acts_release(struct sf_rank_run *run, struct sf_latent_acts *acts) {
  sf_buffers_give(&run->acts, acts->input);
  sf_buffers_give(&run->acts, acts->q_down);
  sf_buffers_give(&run->acts, acts->q_stats);
  sf_buffers_give(&run->acts, acts->q_input);
  sf_buffers_give(&run->acts, acts->kv_input);
  sf_buffers_give(&run->acts, acts->kv_latent);
  sf_buffers_give(&run->acts, acts->kv_stats);
  *acts = (struct sf_latent_acts){0};
}
