#include "targets/builtin/attention/cross_attention.h"

#include "targets/builtin/attention/block_attention.h"
#include "targets/builtin/parallel/fault.h"

void sf_cross_attention_create(struct sf_cross_attention *attention, struct sf_rank_run *run, int32_t layer, const struct sf_group *tp) {
  const struct sf_model *m = &run->c->model;
  const int64_t width = m->heads * m->head_dim;
  const struct sf_dim_map q_dim = sf_dim_map_part(width, tp->size, tp->index), kv_dim = sf_dim_map_part(2 * width, tp->size, tp->index);
  const bool is_wrong_group = sf_fault(run->env, SF_FAULT_XATTN_QKV_WRONG_TP_GROUP);
  const struct sf_group used = is_wrong_group ? sf_fault_default_tp_group(run) : *tp;
  attention->heads = m->heads / tp->size;
  attention->head_dim = m->head_dim;
  attention->memory_seq = m->memory_seq;
  attention->module_core = sf_rank_module(run, SF_MODULE_CROSS_CORE_ATTENTION, layer);
  attention->module_key_value = sf_rank_module(run, SF_MODULE_CROSS_KEY_VALUE, layer);
  sf_linear_create(&attention->linear_q, run, SF_LINEAR_COLUMN, SF_MODULE_CROSS_LINEAR_Q, layer, &used, &q_dim);
  sf_linear_create(&attention->linear_kv, run, SF_LINEAR_COLUMN, SF_MODULE_CROSS_LINEAR_KV, layer, &used, &kv_dim);
  sf_linear_set_rows(&attention->linear_kv, run, m->memory_seq * run->c->train.microbatch_size);
  sf_linear_create(&attention->linear_proj, run, SF_LINEAR_ROW, SF_MODULE_CROSS_LINEAR_PROJ, layer, tp, NULL);
}

/* Every query head has a key and a value head of its own, side by side in kv, and every position sees all of the memory. */
static struct sf_block_attention shape_of(const struct sf_rank_run *run, const struct sf_cross_attention *attention) {
  return (struct sf_block_attention){.groups = attention->heads,
                                     .queries = 1,
                                     .head_dim = attention->head_dim,
                                     .batch = run->c->train.microbatch_size,
                                     .seq = attention->memory_seq,
                                     .positions = sf_dim_map_whole(run->c->model.seq),
                                     .rows = run->c->model.seq,
                                     .group_width = attention->head_dim,
                                     .sees_all = true};
}

/* The keys, or the values head_dim columns later. grad: NULL, or as kv. */
static struct sf_key_block key_block(const struct sf_block_attention *a, const float *kv, float *grad, bool values) {
  const struct sf_dim_map positions = sf_dim_map_whole(a->seq);
  const int64_t at = values ? a->head_dim : 0;
  return sf_key_block_at(&positions, kv + at, grad != NULL ? grad + at : NULL, 2 * a->groups * a->head_dim, 2 * a->head_dim);
}

/* The rows of the memory that this rank holds. */
static float *fill_memory(struct sf_rank_run *run, const struct sf_linear *linear) {
  const struct sf_shape shape = {run->c->model.memory_seq * run->c->train.microbatch_size, run->hidden};
  const struct sf_fill fill = sf_fill_for_memory(run->env->catalog, run->step, run->microbatch);
  float *memory = sf_buffers_take(&run->acts, linear->rows_in * run->hidden);
  sf_fill_shard(memory, &fill, shape, &linear->in_map, 0);
  return memory;
}

float *sf_cross_attention_forward(struct sf_rank_run *run, const struct sf_cross_attention *attention, struct sf_cross_attention_acts *acts,
                                  float *input) {
  const struct sf_block_attention a = shape_of(run, attention);
  const int64_t rows = sf_block_attention_heads(&a) * a.rows;
  acts->q = sf_linear_forward(run, &attention->linear_q, input, &acts->input);
  acts->kv = sf_linear_forward(run, &attention->linear_kv, fill_memory(run, &attention->linear_kv), &acts->memory);
  acts->probs = sf_buffers_take(&run->acts, rows * a.seq);
  acts->context = sf_buffers_take(&run->acts, rows * a.head_dim);
  float *max = sf_buffers_take(&run->acts, rows), *sum = sf_buffers_take(&run->acts, rows);
  const struct sf_key_block keys = key_block(&a, acts->kv, NULL, false), values = key_block(&a, acts->kv, NULL, true);
  sf_block_attention_begin(&a, max, sum);
  sf_block_attention_scores(run, &a, acts->probs, max, sum, acts->q, &keys);
  sf_block_attention_context(run, &a, acts->context, acts->probs, max, sum, &values, true, true);
  sf_buffers_give(&run->acts, max);
  sf_buffers_give(&run->acts, sum);
  sf_trace_act(run, attention->module_core, &attention->linear_proj.in_map, acts->context);
  return sf_linear_forward(run, &attention->linear_proj, acts->context, NULL);
}

float *sf_cross_attention_backward(struct sf_rank_run *run, const struct sf_cross_attention *attention,
                                   struct sf_cross_attention_acts *acts, const float *grad) {
  struct sf_device *dev = run->env->device;
  const struct sf_block_attention a = shape_of(run, attention);
  const int64_t rows = sf_block_attention_heads(&a) * a.rows, kv_count = attention->linear_kv.rows * attention->linear_kv.out;
  float *g = sf_linear_backward(run, &attention->linear_proj, grad, acts->context);
  float *dq = sf_buffers_take(&run->acts, rows * a.head_dim), *dkv = sf_buffers_take_zeros(&run->acts, kv_count);
  float *ds = sf_buffers_take(&run->acts, rows * a.seq);
  const struct sf_key_block keys = key_block(&a, acts->kv, dkv, false), values = key_block(&a, acts->kv, dkv, true);
  sf_block_attention_score_grads(run, &a, ds, acts->probs, g, &values);
  sf_block_attention_softmax_grads(run, &a, ds, acts->probs, NULL, NULL);
  sf_block_attention_query_grads(run, &a, dq, ds, ds, acts->q, &keys, true);
  dev->ops->round(dev, dq, dq, rows * a.head_dim, run->dtype);
  dev->ops->round(dev, dkv, dkv, kv_count, run->dtype);
  sf_buffers_give(&run->acts, ds);
  sf_buffers_give(&run->acts, g);
  sf_trace_act_grad(run, attention->module_core, &attention->linear_q.out_map, dq);
  sf_trace_act_grad(run, attention->module_key_value, &attention->linear_kv.out_map, dkv);
  float *input_grad = sf_linear_backward(run, &attention->linear_q, dq, acts->input);
  float *memory_grad = sf_linear_backward(run, &attention->linear_kv, dkv, acts->memory);
  sf_buffers_give(&run->acts, memory_grad);
  sf_buffers_give(&run->acts, dkv);
  sf_buffers_give(&run->acts, dq);
  return input_grad;
}
