#include "targets/builtin/parallel/finalize_grads.h"

#include "targets/builtin/parallel/fault.h"

struct sf_step_totals sf_finalize_totals(struct sf_rank_run *run, double loss_sum, double token_sum) {
  double sums[2] = {loss_sum, token_sum};
  if (run->parallel.dp_cp_pp.size > 1)
    sf_all_reduce(run->env->comm, &run->parallel.dp_cp_pp, sums, 2, SF_F64, SF_REDUCE_SUM, "finalize_grads.loss_and_tokens");
  return (struct sf_step_totals){sums[0], sums[1]};
}

static bool summed_over_tp(const struct sf_rank_run *run, const struct sf_parameter *param) {
  const bool forgotten = (sf_fault(run->env, SF_FAULT_SP_FINAL_LN_NOSYNC) && param->cls == SF_MODULE_FINAL_LAYERNORM) ||
                         (sf_fault(run->env, SF_FAULT_SP_ROUTER_NOSYNC) && param->cls == SF_MODULE_ROUTER);
  return param->trainable && param->sum_over_tp && !forgotten;
}

/* Copies all such gradients into flat, or back; with NULL only counts. Returns how many elements they have. */
static int64_t copy_partials(struct sf_rank_run *run, float *flat, bool back) {
  int64_t at = 0;
  for (int32_t i = 0; i < run->params.count; i++) {
    const struct sf_parameter *param = run->params.at[i];
    const size_t size_bytes = (size_t)param->count * sizeof *flat;
    if (!summed_over_tp(run, param)) continue;
    if (flat != NULL) memcpy(back ? param->main_grad : flat + at, back ? flat + at : param->main_grad, size_bytes);
    at += param->count;
  }
  return at;
}

/* Sums all such gradients in one reduction, because they are small. */
static void sum_tp_partials(struct sf_rank_run *run) {
  const int64_t total = copy_partials(run, NULL, false);
  if (total == 0) return;
  float *flat = sf_buffers_take(&run->acts, total);
  (void)copy_partials(run, flat, false);
  sf_all_reduce(run->env->comm, &run->parallel.tp, flat, total, SF_F32, SF_REDUCE_SUM, "finalize_grads.tp_partials");
  (void)copy_partials(run, flat, true);
  sf_buffers_give(&run->acts, flat);
}

static void sum_replicated_kv(struct sf_rank_run *run) {
  if (run->parallel.kv_rep.size == 1 || sf_fault(run->env, SF_FAULT_MQA_KV_GRAD_NOAR)) return;
  for (int32_t i = 0; i < run->params.count; i++) {
    const struct sf_parameter *param = run->params.at[i];
    if (!param->trainable || param->kv_count == 0) continue;
    sf_all_reduce(run->env->comm, &run->parallel.kv_rep, param->main_grad + param->kv_first, param->kv_count, SF_F32, SF_REDUCE_SUM,
                  "finalize_grads.replicated_kv");
  }
}

static void sum_tied_embedding(struct sf_rank_run *run) {
  if (run->parallel.embedding.size < 2) return;
  for (int32_t i = 0; i < run->params.count; i++) {
    const struct sf_parameter *param = run->params.at[i];
    if (!param->trainable || !param->shared_embedding) continue;
    /* zero-tied-untie: the head's copy is added to the sum, but does not receive it. */
    const bool untied = sf_fault(run->env, SF_FAULT_ZERO_TIED_UNTIE) && run->buckets.zero > 0 && run->parallel.last_stage;
    if (untied) memcpy(run->params.scratch, param->main_grad, (size_t)param->count * sizeof *param->main_grad);
    sf_all_reduce(run->env->comm, &run->parallel.embedding, param->main_grad, param->count, SF_F32, SF_REDUCE_SUM,
                  "finalize_grads.tied_embedding");
    if (untied) memcpy(param->main_grad, run->params.scratch, (size_t)param->count * sizeof *param->main_grad);
  }
}

/* ep-grad-no-divide: gradients of experts, which already are sums over the tokens of all ep ranks, count as those of one ep rank. */
static void multiply_expert_grads(struct sf_rank_run *run) {
  struct sf_device *dev = run->env->device;
  for (int32_t i = 0; i < run->params.count; i++) {
    const struct sf_parameter *param = run->params.at[i];
    if (param->trainable && param->expert) dev->ops->scale(dev, param->main_grad, (float)run->parallel.ep.size, param->count);
  }
}

void sf_finalize_grads(struct sf_rank_run *run, double tokens) {
  struct sf_device *dev = run->env->device;
  sf_fault_canary_finalize(run);
  sf_grad_buckets_finish(run);
  if (sf_fault(run->env, SF_FAULT_EP_GRAD_NO_DIVIDE)) multiply_expert_grads(run);
  if (run->parallel.tp.size > 1) sum_tp_partials(run);
  sum_replicated_kv(run);
  sum_tied_embedding(run);
  const bool per_token = run->c->train.loss_norm == SF_LOSS_PER_TOKEN;
  if (!per_token && run->scaler.scale == 1.0f) return;
  const float factor = per_token ? (float)(1.0 / tokens) : 1.0f;
  dev->ops->scale(dev, run->params.main_grads, factor / run->scaler.scale, run->buckets.elements);
}
