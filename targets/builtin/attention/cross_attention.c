#include "targets/builtin/attention/cross_attention.h"

#include "targets/builtin/parallel/fault.h"
#include "targets/builtin/parallel/matrix.h"

#include <math.h>

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

/* One head of one sequence: offsets of its products, and strides from one position to the next. */
struct head {
  int64_t q, kv, probs; /* offsets: of the query and the context, of the key (the value is head_dim later), of P */
  int64_t q_stride, kv_stride;
  int64_t rows, cols, d; /* positions of the tokens and of the memory */
};

static struct head head_at(const struct sf_rank_run *run, const struct sf_cross_attention *attention, int64_t sequence, int64_t number) {
  const int64_t d = attention->head_dim, width = attention->heads * d, batch = run->c->train.microbatch_size;
  struct head head = {
      .q_stride = batch * width, .kv_stride = 2 * batch * width, .rows = run->c->model.seq, .cols = attention->memory_seq, .d = d};
  head.q = sequence * width + number * d;
  head.kv = 2 * head.q;
  head.probs = (sequence * attention->heads + number) * head.rows * head.cols;
  return head;
}

/* Every position sees all of the memory. */
static struct sf_block whole_block(const struct head *head) {
  return (struct sf_block){.rows = head->rows, .cols = head->cols, .visible = head->cols};
}

/* stats: two numbers per row. */
static void head_forward(struct sf_rank_run *run, const struct sf_cross_attention_acts *acts, const struct head *head, float *stats) {
  struct sf_device *dev = run->env->device;
  float *probs = acts->probs + head->probs, *max = stats, *sum = stats + head->rows;
  sf_multiply(dev, probs, head->cols, sf_matrix(acts->q + head->q, head->q_stride, head->rows, head->d),
              sf_transposed(acts->kv + head->kv, head->kv_stride, head->cols, head->d), 1.0f / sqrtf((float)head->d), SF_F32);
  for (int64_t i = 0; i < head->rows; i++) max[i] = -INFINITY, sum[i] = 0.0f;
  const struct sf_block all = whole_block(head);
  dev->ops->block_softmax_stats(dev, max, sum, probs, head->cols, &all);
  dev->ops->block_softmax_probs(dev, probs, head->cols, max, sum, &all, run->dtype);
  sf_multiply(dev, acts->context + head->q, head->q_stride, sf_matrix(probs, head->cols, head->rows, head->cols),
              sf_matrix(acts->kv + head->kv + head->d, head->kv_stride, head->cols, head->d), 1.0f, run->dtype);
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
  const int64_t batch = run->c->train.microbatch_size, heads = attention->heads, seq = run->c->model.seq;
  acts->q = sf_linear_forward(run, &attention->linear_q, input, &acts->input);
  acts->kv = sf_linear_forward(run, &attention->linear_kv, fill_memory(run, &attention->linear_kv), &acts->memory);
  acts->probs = sf_buffers_take(&run->acts, batch * heads * seq * attention->memory_seq);
  acts->context = sf_buffers_take(&run->acts, run->tokens * heads * attention->head_dim);
  float *stats = sf_buffers_take(&run->acts, 2 * seq);
  for (int64_t sequence = 0; sequence < batch; sequence++)
    for (int64_t number = 0; number < heads; number++) {
      const struct head head = head_at(run, attention, sequence, number);
      head_forward(run, acts, &head, stats);
    }
  sf_buffers_give(&run->acts, stats);
  sf_trace_act(run, attention->module_core, &attention->linear_proj.in_map, acts->context);
  return sf_linear_forward(run, &attention->linear_proj, acts->context, NULL);
}

/* g: gradient of the context. ds: room for one head's. */
static void head_backward(struct sf_rank_run *run, const struct sf_cross_attention_acts *acts, const struct head *head, float *dq,
                          float *dkv, float *ds, const float *g) {
  struct sf_device *dev = run->env->device;
  const int64_t rows = head->rows, cols = head->cols, d = head->d;
  const float *probs = acts->probs + head->probs, scale = 1.0f / sqrtf((float)d);
  const struct sf_matrix context_grad = sf_matrix(g + head->q, head->q_stride, rows, d);
  sf_multiply(dev, ds, cols, context_grad, sf_transposed(acts->kv + head->kv + d, head->kv_stride, cols, d), 1.0f, SF_F32);
  const struct sf_block all = whole_block(head);
  dev->ops->block_softmax_bwd(dev, ds, probs, &all, NULL, run->dtype);
  sf_multiply(dev, dq + head->q, head->q_stride, sf_matrix(ds, cols, rows, cols), sf_matrix(acts->kv + head->kv, head->kv_stride, cols, d),
              scale, run->dtype);
  sf_multiply(dev, dkv + head->kv, head->kv_stride, sf_transposed(ds, cols, rows, cols),
              sf_matrix(acts->q + head->q, head->q_stride, rows, d), scale, run->dtype);
  sf_multiply(dev, dkv + head->kv + d, head->kv_stride, sf_transposed(probs, cols, rows, cols), context_grad, 1.0f, run->dtype);
}

float *sf_cross_attention_backward(struct sf_rank_run *run, const struct sf_cross_attention *attention,
                                   struct sf_cross_attention_acts *acts, const float *grad) {
  const int64_t batch = run->c->train.microbatch_size, heads = attention->heads;
  float *g = sf_linear_backward(run, &attention->linear_proj, grad, acts->context);
  float *dq = sf_buffers_take(&run->acts, run->tokens * attention->linear_q.out);
  float *dkv = sf_buffers_take(&run->acts, attention->linear_kv.rows * attention->linear_kv.out);
  float *ds = sf_buffers_take(&run->acts, run->c->model.seq * attention->memory_seq);
  for (int64_t sequence = 0; sequence < batch; sequence++)
    for (int64_t number = 0; number < heads; number++) {
      const struct head head = head_at(run, attention, sequence, number);
      head_backward(run, acts, &head, dq, dkv, ds, g);
    }
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
