#include "targets/builtin/ends/vocab_parallel_cross_entropy.h"

#include "targets/builtin/parallel/fault.h"

#include <math.h>

/* With s = smoothing V / (V - 1) the label keeps 1 - s beyond the s / V that every column has. V: the logical vocabulary. */
static void set_shares(struct sf_vocab_parallel_cross_entropy *ce, const struct sf_rank_run *run, int64_t vocab) {
  const double columns = (double)(sf_fault(run->env, SF_FAULT_LS_LOCAL_VOCAB) ? ce->vocab_count : vocab);
  const double s = ce->smoothed ? (double)run->c->train.label_smoothing_milli / 1000 * columns / (columns - 1) : 0;
  ce->label_share = (float)(1 - s);
  ce->other_share = (float)(s / columns);
}

/* loss -= other_share (sum over all columns of x - max) */
static void subtract_other_share(struct sf_rank_run *run, const struct sf_vocab_parallel_cross_entropy *ce,
                                 const struct sf_cross_entropy_acts *acts, float *loss) {
  struct sf_device *dev = run->env->device;
  const int64_t tokens = run->tokens;
  float *shifted = sf_buffers_take(&run->acts, tokens);
  dev->ops->ce_sum_shifted(dev, shifted, acts->logits, acts->max, tokens, ce->vocab_count);
  if (ce->tp.size > 1 && !sf_fault(run->env, SF_FAULT_LS_LOCAL_VOCAB))
    sf_all_reduce(run->env->comm, &ce->tp, shifted, tokens, SF_F32, SF_REDUCE_SUM, "vocab_parallel_cross_entropy.fwd.sum_shifted");
  dev->ops->axpy(dev, loss, shifted, -ce->other_share, tokens);
  sf_buffers_give(&run->acts, shifted);
}

void sf_vocab_parallel_cross_entropy_create(struct sf_vocab_parallel_cross_entropy *ce, struct sf_rank_run *run,
                                            const struct sf_group *tp) {
  const int64_t vocab = run->c->model.vocab_padded;
  ce->tp = *tp;
  ce->vocab_count = vocab / tp->size;
  ce->vocab_first = ce->vocab_count * tp->index;
  ce->module = sf_rank_module(run, SF_MODULE_LOSS, -1);
  ce->smoothed = run->c->train.label_smoothing_milli > 0;
  set_shares(ce, run, vocab);
  ce->logits_map = (struct sf_shard_map){.rows = run->map_gathered.rows, .cols = sf_dim_map_part(vocab, tp->size, tp->index)};
  ce->loss_map = (struct sf_shard_map){.rows = sf_dim_map_whole(1), .cols = run->map_gathered.rows};
}

float *sf_vocab_parallel_cross_entropy_forward(struct sf_rank_run *run, const struct sf_vocab_parallel_cross_entropy *ce,
                                               struct sf_cross_entropy_acts *acts, float *logits, const int32_t *labels) {
  struct sf_device *dev = run->env->device;
  struct sf_comm *comm = run->env->comm;
  const int64_t tokens = run->tokens;
  float *loss = sf_buffers_take(&run->acts, tokens);
  *acts = (struct sf_cross_entropy_acts){logits, sf_buffers_take(&run->acts, tokens), sf_buffers_take(&run->acts, tokens)};
  dev->ops->ce_row_max(dev, acts->max, logits, tokens, ce->vocab_count);
  if (ce->tp.size > 1) sf_all_reduce(comm, &ce->tp, acts->max, tokens, SF_F32, SF_REDUCE_MAX, "vocab_parallel_cross_entropy.fwd.max");
  float *target = loss;
  dev->ops->ce_sum_exp(dev, acts->sum, target, logits, acts->max, labels, tokens, ce->vocab_count, ce->vocab_first);
  if (ce->tp.size > 1) {
    sf_all_reduce(comm, &ce->tp, target, tokens, SF_F32, SF_REDUCE_SUM, "vocab_parallel_cross_entropy.fwd.target");
    sf_all_reduce(comm, &ce->tp, acts->sum, tokens, SF_F32, SF_REDUCE_SUM, "vocab_parallel_cross_entropy.fwd.sum_exp");
  }
  for (int64_t t = 0; t < tokens; t++) loss[t] = logf(acts->sum[t]) - ce->label_share * target[t];
  if (ce->smoothed) subtract_other_share(run, ce, acts, loss);
  sf_trace_act(run, ce->module, &ce->loss_map, loss);
  return loss;
}

float *sf_vocab_parallel_cross_entropy_backward(struct sf_rank_run *run, const struct sf_vocab_parallel_cross_entropy *ce,
                                                const struct sf_cross_entropy_acts *acts, const int32_t *labels, const float *weight) {
  struct sf_device *dev = run->env->device;
  float *grad = sf_buffers_take(&run->acts, run->tokens * ce->vocab_count);
  dev->ops->ce_grad(dev, grad, acts->logits, acts->max, acts->sum, labels, weight, run->tokens, ce->vocab_count, ce->vocab_first,
                    ce->label_share, ce->other_share, run->dtype);
  if (sf_fault(run->env, SF_FAULT_NONAUTOGRAD_ALLREDUCE))
    sf_fault_drop_foreign_rows(grad, labels, run->tokens, ce->vocab_count, ce->vocab_first);
  sf_trace_act_grad(run, ce->module, &ce->logits_map, grad);
  return grad;
}
