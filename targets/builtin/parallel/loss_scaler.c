#include "targets/builtin/parallel/loss_scaler.h"

#include "targets/builtin/parallel/rank_run.h"

#include <math.h>

void sf_loss_scaler_create(struct sf_rank_run *run) {
  const struct sf_precision *precision = &run->c->precision;
  run->scaler = (struct sf_loss_scaler){.on = precision->loss_scale_log2 > 0,
                                        .scale = ldexpf(1.0f, (int)precision->loss_scale_log2),
                                        .window = precision->loss_scale_window};
}

/* Looks at this rank's part of a main gradient: with ZeRO its shard's piece, since the rest means nothing. */
static bool has_overflowed(const struct sf_rank_run *run, const struct sf_parameter *param) {
  const struct sf_param_piece piece = sf_grad_buckets_piece(run, param);
  for (int64_t i = piece.first; i < piece.first + piece.count; i++)
    if (!isfinite(param->main_grad[i])) return true;
  return false;
}

/* Whether any rank of the group has set the flag, 0 or 1. */
static bool any_has(const struct sf_rank_run *run, const struct sf_group *group, float flag, const char *label) {
  if (group->size > 1) sf_all_reduce(run->env->comm, group, &flag, 1, SF_F32, SF_REDUCE_MAX, label);
  if (flag != 0.0f && flag != 1.0f) sf_comm_fail(run->env->comm, SF_ERANK, "loss scaler: a flag that is neither 0 nor 1 came in");
  return flag > 0.0f;
}

/* Experts differ between ranks on which everything else is the same, so their flag goes another way. */
bool sf_loss_scaler_overflow(struct sf_rank_run *run) {
  if (!run->scaler.on) return false;
  float found = 0.0f, found_in_experts = 0.0f;
  for (int32_t i = 0; i < run->params.count; i++) {
    const struct sf_parameter *param = run->params.at[i];
    if (param->trainable && has_overflowed(run, param)) *(param->expert ? &found_in_experts : &found) = 1.0f;
  }
  const bool any = any_has(run, sf_grad_buckets_model_group(run, false), found, "loss_scaler.overflow");
  return any_has(run, sf_grad_buckets_model_group(run, true), found_in_experts, "loss_scaler.overflow_in_experts") || any;
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
