#include "targets/builtin/attention/latent_attention.h"

#include "targets/builtin/attention/rotary.h"
#include "targets/builtin/parallel/fault.h"
#include "targets/builtin/parallel/mappings.h"
#include "targets/builtin/parallel/matrix.h"

void sf_latent_attention_create(struct sf_latent_attention *layer, struct sf_rank_run *run, int32_t index, const float *cos_sin,
                                const struct sf_group *tp) {
  const struct sf_model *m = &run->c->model;
  const int64_t heads = m->heads / tp->size;
  *layer = (struct sf_latent_attention){.has_q_down = m->q_lora_rank > 0,
                                        .tp = *tp,
                                        .heads = heads,
                                        .head_dim = m->head_dim,
                                        .rope = m->qk_rope_dim,
                                        .latent = m->kv_lora_rank,
                                        .module_rotary = sf_rank_module(run, SF_MODULE_ROTARY, index),
                                        .cos_sin = cos_sin};
  const struct sf_dim_map fused = sf_dim_map_part(3 * m->heads * m->head_dim, tp->size, tp->index);
  if (layer->has_q_down) {
    sf_linear_create(&layer->q_down, run, SF_LINEAR_REPLICATED, SF_MODULE_LINEAR_Q_DOWN, index, tp, NULL);
    sf_norm_layer_create(&layer->q_layernorm, run, SF_MODULE_Q_LAYERNORM, index);
  }
  const enum sf_module_class q = layer->has_q_down ? SF_MODULE_LINEAR_Q_UP : SF_MODULE_LINEAR_Q;
  sf_linear_create(&layer->q, run, SF_LINEAR_COLUMN, q, index, tp, NULL);
  sf_linear_create(&layer->kv_down, run, SF_LINEAR_REPLICATED, SF_MODULE_LINEAR_KV_DOWN, index, tp, NULL);
  sf_norm_layer_create(&layer->kv_layernorm, run, SF_MODULE_KV_LAYERNORM, index);
  sf_linear_create(&layer->kv_up, run, SF_LINEAR_COLUMN, SF_MODULE_LINEAR_KV_UP, index, tp, NULL);
  layer->map = (struct sf_shard_map){.rows = run->map_gathered.rows, .cols = fused};
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
    sf_copy_columns(query, width, q + at.query, ld_q, tokens, nope);
    sf_rotary_apply(run, query + nope, width, q + at.query + nope, ld_q, layer->cos_sin, rope, false);
    sf_copy_columns(key, width, kv + at.key, ld_kv, tokens, nope);
    sf_rotary_apply(run, key + nope, width, shared, rope, layer->cos_sin, rope, false);
    sf_copy_columns(value, width, kv + at.key + nope, ld_kv, tokens, d);
  }
  return fused;
}

/* The shared columns of linear_kv_down_proj's output, of all tokens. */
static float *gather_shared(struct sf_rank_run *run, const struct sf_latent_attention *layer, const float *down) {
  const int64_t count = run->tokens_local * layer->rope;
  float *own = sf_buffers_take(&run->acts, count);
  sf_copy_columns(own, layer->rope, down + layer->latent, layer->kv_down.out, run->tokens_local, layer->rope);
  if (!run->parallel.sp) return own;
  float *all = sf_mapping_gather(run, &layer->tp, own, count, run->dtype, "latent_attention.fwd.gather_shared_key");
  sf_buffers_give(&run->acts, own);
  return all;
}

static float *make_queries(struct sf_rank_run *run, const struct sf_latent_attention *layer, struct sf_latent_acts *acts) {
  float *in;
  if (layer->has_q_down) {
    acts->q_down = sf_linear_forward(run, &layer->q_down, acts->input, NULL);
    in = sf_norm_layer_forward(run, &layer->q_layernorm, acts->q_down, &acts->q_stats);
  } else {
    in = sf_buffers_copy(&run->acts, acts->input, run->tokens_local * run->hidden);
  }
  return sf_linear_forward(run, &layer->q, in, &acts->q_input);
}

float *sf_latent_attention_forward(struct sf_rank_run *run, const struct sf_latent_attention *layer, struct sf_latent_acts *acts,
                                   float *input) {
  *acts = (struct sf_latent_acts){.input = input};
  float *q = make_queries(run, layer, acts);
  float *down = sf_linear_forward(run, &layer->kv_down, input, NULL);
  acts->kv_latent = sf_buffers_take(&run->acts, run->tokens_local * layer->latent);
  sf_copy_columns(acts->kv_latent, layer->latent, down, layer->kv_down.out, run->tokens_local, layer->latent);
  float *normed = sf_norm_layer_forward(run, &layer->kv_layernorm, acts->kv_latent, &acts->kv_stats);
  float *kv = sf_linear_forward(run, &layer->kv_up, normed, &acts->kv_input);
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
  float *out = sf_buffers_copy(&run->acts, grad, run->tokens * width);
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
  float *heads = sf_buffers_take(&run->acts, layer->heads * count), *sum = sf_buffers_take_zeros(&run->acts, count);
  for (int64_t head = 0; head < layer->heads; head++)
    sf_copy_columns(heads + head * count, rope, fused + (3 * head + 2) * d - rope, width, run->tokens, rope);
  dev->ops->col_sum(dev, sum, heads, layer->heads, count);
  dev->ops->round(dev, sum, sum, count, run->dtype);
  sf_buffers_give(&run->acts, heads);
  return sum;
}

/* sum: this rank's heads', taken. Returns the whole gradient of this rank's tokens, [tokens_local x rope]. */
static float *reduce_shared(struct sf_rank_run *run, const struct sf_latent_attention *layer, float *sum) {
  static const struct sf_mapping_reduction calls = {"latent_attention.bwd.shared_key_grad", "latent_attention.bwd.shared_key_grad_scatter"};
  const int64_t local = run->tokens_local * layer->rope;
  if (!sf_fault(run->env, SF_FAULT_MLA_KPOS_GRAD_NOAR))
    return sf_mapping_reduce(run, &layer->tp, run->parallel.sp, sum, local, run->dtype, &calls);
  return run->parallel.sp ? sf_mapping_split(run, layer->tp.index, sum, local) : sum;
}

/* Gradient of the input that comes through keys and values. */
static float *key_backward(struct sf_rank_run *run, const struct sf_latent_attention *layer, const struct sf_latent_acts *acts,
                           const float *fused) {
  const int64_t d = layer->head_dim, nope = d - layer->rope, width = 3 * layer->heads * d, ld = layer->kv_up.out;
  const int64_t local = run->tokens_local, down = layer->kv_down.out;
  float *kv = sf_buffers_take(&run->acts, run->tokens * ld);
  for (int64_t head = 0; head < layer->heads; head++) {
    const struct head_columns at = head_columns(layer, head);
    sf_copy_columns(kv + at.key, ld, fused + at.fused + d, width, run->tokens, nope);
    sf_copy_columns(kv + at.key + nope, ld, fused + at.fused + 2 * d, width, run->tokens, d);
  }
  float *normed = sf_linear_backward(run, &layer->kv_up, kv, acts->kv_input);
  float *latent = sf_norm_layer_backward(run, &layer->kv_layernorm, normed, acts->kv_latent, acts->kv_stats);
  float *shared = reduce_shared(run, layer, sum_shared(run, layer, fused));
  float *joined = sf_buffers_take(&run->acts, local * down);
  sf_copy_columns(joined, down, latent, layer->latent, local, layer->latent);
  sf_copy_columns(joined + layer->latent, down, shared, layer->rope, local, layer->rope);
  float *grad = sf_linear_backward(run, &layer->kv_down, joined, acts->input);
  sf_buffers_give(&run->acts, joined);
  sf_buffers_give(&run->acts, shared);
  sf_buffers_give(&run->acts, latent);
  sf_buffers_give(&run->acts, normed);
  sf_buffers_give(&run->acts, kv);
  return grad;
}

/* Gradient of the input that comes through the queries. */
static float *query_backward(struct sf_rank_run *run, const struct sf_latent_attention *layer, const struct sf_latent_acts *acts,
                             const float *fused) {
  const int64_t d = layer->head_dim, width = 3 * layer->heads * d, ld = layer->q.out;
  float *q = sf_buffers_take(&run->acts, run->tokens * ld);
  for (int64_t head = 0; head < layer->heads; head++) {
    const struct head_columns at = head_columns(layer, head);
    sf_copy_columns(q + at.query, ld, fused + at.fused, width, run->tokens, d);
  }
  float *grad = sf_linear_backward(run, &layer->q, q, acts->q_input);
  sf_buffers_give(&run->acts, q);
  if (!layer->has_q_down) return grad;
  float *latent = sf_norm_layer_backward(run, &layer->q_layernorm, grad, acts->q_down, acts->q_stats);
  sf_buffers_give(&run->acts, grad);
  grad = sf_linear_backward(run, &layer->q_down, latent, acts->input);
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
  return sum;
}
