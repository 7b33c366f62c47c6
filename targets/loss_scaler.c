#include "targets/loss_scaler.h"

#include "targets/rank_run.h"

#include <math.h>

void sf_loss_scaler_create(struct sf_rank_run *run) {
  const struct sf_precision *precision = &run->c->precision;
  run->scaler = (struct sf_loss_scaler){.on = precision->loss_scale_log2 > 0,
                                        .scale = ldexpf(1.0f, (int)precision->loss_scale_log2),
                                        .window = precision->loss_scale_window};
}

/* Of what this rank has of a main gradient: with ZeRO its shard's piece, since the rest means nothing. */
static bool has_overflowed(const struct sf_rank_run *run, const struct sf_parameter *param) {
  const struct sf_param_piece piece = sf_grad_buckets_piece(run, param);
  for (int64_t i = piece.first; i < piece.first + piece.count; i++)
    if (!isfinite(param->main_grad[i])) return true;
  return false;
}

/* Experts differ between ranks that have the same of everything else, so their flag goes another way. */
bool sf_loss_scaler_overflow(struct sf_rank_run *run) {
  if (!run->scaler.on) return false;
  float found = 0.0f, found_in_experts = 0.0f;
  for (int32_t i = 0; i < run->params.count; i++) {
    const struct sf_parameter *param = run->params.at[i];
    if (param->trainable && has_overflowed(run, param)) *(param->expert ? &found_in_experts : &found) = 1.0f;
  }
  const struct sf_group *group = sf_grad_buckets_model_group(run, false), *experts = sf_grad_buckets_model_group(run, true);
  if (group->size > 1) sf_all_reduce(run->env->comm, group, &found, 1, SF_F32, SF_REDUCE_MAX, "loss_scaler.overflow");
  if (experts->size > 1)
    sf_all_reduce(run->env->comm, experts, &found_in_experts, 1, SF_F32, SF_REDUCE_MAX, "loss_scaler.overflow_in_experts");
  return found > 0.0f || found_in_experts > 0.0f;
}

void sf_loss_scaler_update(struct sf_rank_run *run, bool overflow) {
  struct sf_loss_scaler *scaler = &run->scaler;
  if (!overflow) scaler->steps_applied++;
  if (scaler->window == 0) return;
  scaler->good_steps = overflow ? 0 : scaler->good_steps + 1;
  if (overflow) scaler->scale *= 0.5f;
  if (scaler->good_steps < scaler->window) return;
  scaler->scale *= 2.0f;
  scaler->good_steps = 0;
}
