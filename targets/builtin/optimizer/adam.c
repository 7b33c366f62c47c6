#include "targets/builtin/optimizer/adam.h"

#include "harness/tensor/rounding_bits.h"
#include "targets/builtin/parallel/fault.h"
#include "targets/builtin/optimizer/distributed_optimizer.h"

#include <math.h>

static double sum_squares_of(const struct sf_rank_run *run, const struct sf_parameter *param) {
  struct sf_device *dev = run->env->device;
  if (!param->trainable || (param->shared_embedding && !run->parallel.first_stage)) return 0.0;
  const bool every_replica = sf_fault(run->env, SF_FAULT_NORM_REPLICA_OVERCOUNT);
  if (param->expert && run->parallel.tp.index > 0 && sf_fault(run->env, SF_FAULT_NORM_EP_UNDERCOUNT)) return 0.0;
  if (param->replicated && run->parallel.tp.index > 0 && !every_replica) return 0.0;
  const int64_t counted = param->kv_count > 0 && run->parallel.kv_rep.index > 0 ? param->kv_first : param->count;
  const struct sf_param_piece piece = sf_grad_buckets_piece(run, param);
  const int64_t end = piece.first + piece.count < counted ? piece.first + piece.count : counted;
  return end > piece.first ? dev->ops->sum_squares(dev, param->main_grad + piece.first, end - piece.first) : 0.0;
}

double sf_grad_norm(struct sf_rank_run *run) {
  double sum = 0.0, expert_sum = 0.0;
  for (int32_t i = 0; i < run->params.count; i++) {
    const struct sf_parameter *param = run->params.at[i];
    *(param->expert ? &expert_sum : &sum) += sum_squares_of(run, param);
  }
  const struct sf_group *group = sf_grad_buckets_model_group(run, false), *experts = sf_grad_buckets_model_group(run, true);
  if (group->size > 1) sf_all_reduce(run->env->comm, group, &sum, 1, SF_F64, SF_REDUCE_SUM, "adam.grad_norm");
  if (experts->size > 1)
    sf_all_reduce(run->env->comm, experts, &expert_sum, 1, SF_F64, SF_REDUCE_SUM, "adam.grad_norm_experts");
  return sqrt(sum + expert_sum);
}

double sf_clip_factor(const struct sf_case *c, double norm) {
  if (c->train.clip_milli == 0) return 1.0;
  const double factor = (double)c->train.clip_milli / 1000.0 / (norm + 1e-6);
  return factor > 1.0 ? 1.0 : factor; /* NaN stays NaN */
}

static float clip_of(const struct sf_rank_run *run, const struct sf_parameter *param, double clip) {
  const bool left_out =
      sf_fault(run->env, SF_FAULT_CLIP_NOT_ON_ALL_REPLICAS) && run->parallel.tp.index > 0 && sf_module_is(param->cls, SF_TRAIT_NORM);
  return left_out ? 1.0f : (float)clip;
}

/* Keeps no fp32 weight after the step: bf16 weight, fp32 sum, bf16 weight. */
static void update_stochastic(struct sf_rank_run *run, const struct sf_parameter *param, const struct sf_param_state *state, float *delta,
                              const struct sf_adam *options) {
  struct sf_device *dev = run->env->device;
  struct sf_parameters *params = &run->params;
  const int64_t first = state->piece.first, count = state->piece.count;
  memcpy(params->updated, state->master, (size_t)count * sizeof(float));
  dev->ops->adam(dev, params->updated, state->adam_m, state->adam_v, delta, param->main_grad + first, count, options);
  const uint64_t key = sf_rounding_key(run->env->catalog, param->index, run->step);
  sf_rounding_bits_shard(params->random, key, run->env->catalog->params[param->index].shape, &param->map);
  dev->ops->round_stochastic(dev, state->master, delta, params->updated, params->random + first, count);
}

void sf_adam_step(struct sf_rank_run *run, double clip) {
  const struct sf_train *train = &run->c->train;
  struct sf_device *dev = run->env->device;
  const int first = sf_fault(run->env, SF_FAULT_ADAM_SYNTHETIC_STEP) ? 2 : 1, t = (int)run->scaler.steps_applied + first;
  const double beta1 = (double)train->beta1_milli / 1000.0, beta2 = (double)train->beta2_milli / 1000.0;
  struct sf_adam options = {.lr = (float)((double)train->lr_micro * 1e-6),
                            .beta1 = beta1,
                            .beta2 = beta2,
                            .epsilon = 1e-8f,
                            .bias1 = (float)(1.0 - pow(beta1, t)),
                            .bias2 = (float)(1.0 - pow(beta2, t))};
  for (int32_t i = 0; i < run->params.count; i++) {
    struct sf_parameter *param = run->params.at[i];
    if (!param->trainable) continue;
    options.weight_decay = run->env->catalog->params[param->index].decayed ? (float)((double)train->weight_decay_milli / 1000.0) : 0.0f;
    options.grad_scale = clip_of(run, param, clip);
    float *delta = run->params.scratch;
    const struct sf_param_state state = sf_grad_buckets_state(run, param);
    const struct sf_param_piece *piece = &state.piece;
    if (piece->count > 0 && run->c->precision.stochastic)
      update_stochastic(run, param, &state, delta, &options);
    else if (piece->count > 0)
      dev->ops->adam(dev, state.master, state.adam_m, state.adam_v, delta, param->main_grad + piece->first, piece->count, &options);
    sf_trace_param(run, SF_KIND_PARAM_DELTA, param, 0, delta);
    if (run->buckets.zero == 0) sf_parameter_publish(run, param);
  }
  if (run->buckets.zero > 0) sf_distributed_optimizer_publish(run);
}

void sf_adam_skip(struct sf_rank_run *run) {
  for (int32_t i = 0; i < run->params.count; i++) {
    const struct sf_parameter *param = run->params.at[i];
    if (!param->trainable) continue;
    memset(run->params.scratch, 0, (size_t)param->count * sizeof *run->params.scratch);
    sf_trace_param(run, SF_KIND_PARAM_DELTA, param, 0, run->params.scratch);
  }
}
