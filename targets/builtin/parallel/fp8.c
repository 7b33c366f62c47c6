#include "targets/builtin/parallel/fp8.h"

#include "targets/builtin/parallel/fault.h"

#include <math.h>

void sf_fp8_create(struct sf_rank_run *run) {
  run->fp8 = (struct sf_fp8){.delayed = run->c->precision.fp8_recipe == SF_FP8_DELAYED, .last_input_scale = 1.0f};
}

static bool is_exempt(const struct sf_rank_run *run, int32_t layer) {
  const struct sf_precision *p = &run->c->precision;
  const bool by_stage = sf_fault(run->env, SF_FAULT_FP8_LAYER_EXEMPT_LOCAL_INDEX);
  const int32_t number = by_stage ? sf_fault_layer_in_stage(run, run->params.chunk, layer) : layer;
  return number < p->fp8_bf16_first || layer >= run->c->model.layers - p->fp8_bf16_last;
}

struct sf_fp8_linear *sf_fp8_linear_create(struct sf_rank_run *run, enum sf_module_class cls, int32_t layer) {
  if (run->c->precision.compute != SF_COMPUTE_FP8 || !sf_module_is(cls, SF_TRAIT_FP8) || is_exempt(run, layer)) return NULL;
  const size_t microbatches = (size_t)(run->c->train.microbatches / run->parallel.dp.size);
  struct sf_fp8_linear *fp8 = sf_rank_alloc(run->env, sizeof *fp8);
  *fp8 = (struct sf_fp8_linear){.cls = cls, .layer = layer, .weight_step = -1, .next = run->fp8.linears};
  fp8->input_units = sf_rank_alloc(run->env, microbatches * sizeof *fp8->input_units);
  run->fp8.linears = fp8;
  run->fp8.linear_count++;
  return fp8;
}

/* --- scales ----------------------------------------------------------------------------------------------------- */

static float larger(float a, float b) { return a != a || a > b ? a : b; }

static float amax_of_history(const struct sf_fp8_amaxes *amaxes) {
  float amax = 0.0f;
  for (int32_t i = 0; i < amaxes->steps_kept; i++) amax = larger(amaxes->history[i], amax);
  return amax;
}

static float amax_of_tensor(struct sf_rank_run *run, float own, bool is_piece) {
  const struct sf_group *group = &run->parallel.tp_cp;
  const bool in_pieces = is_piece || group->size > run->parallel.tp.size;
  if (in_pieces && group->size > 1) sf_all_reduce(run->env->comm, group, &own, 1, SF_F32, SF_REDUCE_MAX, "fp8.amax");
  return own;
}

static float scale_of(float amax, enum sf_dtype format) {
  const float scale = sf_f8_largest(format) / amax;
  return amax > 0.0f && isfinite(amax) && isfinite(scale) ? scale : 1.0f;
}

static enum sf_dtype format_of(enum sf_fp8_operand operand) { return operand == SF_FP8_GRAD ? SF_F8E5M2 : SF_F8E4M3; }

float sf_fp8_scale(struct sf_rank_run *run, struct sf_fp8_linear *fp8, enum sf_fp8_operand operand, const float *x, int64_t count,
                   bool is_piece) {
  struct sf_fp8_amaxes *amaxes = &fp8->amaxes[operand];
  const float own = run->env->device->ops->amax(run->env->device, x, count);
  if (run->fp8.delayed) amaxes->step = larger(own, amaxes->step);
  const float amax = amaxes->steps_kept > 0 ? amax_of_history(amaxes) : amax_of_tensor(run, own, is_piece);
  const float scale = scale_of(amax, format_of(operand));
  if (operand != SF_FP8_INPUT) return scale;
  const bool second = fp8->cls == SF_MODULE_LINEAR_FC2 || fp8->cls == SF_MODULE_SHARED_FC2;
  if (sf_fault(run->env, SF_FAULT_FP8_WRONG_CAST) && second) return run->fp8.last_input_scale;
  run->fp8.last_input_scale = scale;
  return scale;
}

/* --- casts ------------------------------------------------------------------------------------------------------ */

float sf_fp8_cast(struct sf_rank_run *run, struct sf_fp8_linear *fp8, enum sf_fp8_operand operand, float *out, const float *x,
                  int64_t count, float scale) {
  struct sf_device *dev = run->env->device;
  dev->ops->cast_f8(dev, out, x, scale, count, format_of(operand));
  if (operand == SF_FP8_INPUT) fp8->input_units[run->local_microbatch] = 1.0f / scale;
  return 1.0f / scale;
}

const float *sf_fp8_weight(struct sf_rank_run *run, struct sf_fp8_linear *fp8, const struct sf_parameter *weight, float *unit) {
  if (fp8->weight == NULL) fp8->weight = sf_rank_alloc(run->env, (size_t)weight->count * sizeof *fp8->weight);
  if (fp8->weight_step != run->step) {
    const float scale = sf_fp8_scale(run, fp8, SF_FP8_WEIGHT, weight->model, weight->count, true);
    fp8->weight_unit = sf_fp8_cast(run, fp8, SF_FP8_WEIGHT, fp8->weight, weight->model, weight->count, scale);
    fp8->weight_scale = scale;
    fp8->weight_step = run->step;
  }
  const bool updated = sf_fault(run->env, SF_FAULT_FP8_WEIGHT_CACHE_STALE) && run->fp8.delayed && run->local_microbatch > 0;
  *unit = fp8->weight_unit;
  if (updated) *unit = 1.0f / scale_of(amax_of_tensor(run, fp8->amaxes[SF_FP8_WEIGHT].step, true), format_of(SF_FP8_WEIGHT));
  return fp8->weight;
}

/* --- history ---------------------------------------------------------------------------------------------------- */

static void keep(struct sf_fp8_amaxes *amaxes, int64_t steps, int64_t step, float amax) {
  amaxes->history[step % steps] = amax;
  if (amaxes->steps_kept < steps) amaxes->steps_kept++;
  amaxes->step = 0.0f;
}

void sf_fp8_end_step(struct sf_rank_run *run) {
  const int64_t count = (int64_t)run->fp8.linear_count * SF_FP8_OPERAND_COUNT;
  const struct sf_group *group = &run->parallel.tp_cp_dp;
  if (!run->fp8.delayed || count == 0) return;
  float *amaxes = sf_buffers_take(&run->acts, count), *next = amaxes;
  for (const struct sf_fp8_linear *fp8 = run->fp8.linears; fp8 != NULL; fp8 = fp8->next)
    for (int i = 0; i < SF_FP8_OPERAND_COUNT; i++) *next++ = fp8->amaxes[i].step;
  if (group->size > 1) sf_all_reduce(run->env->comm, group, amaxes, count, SF_F32, SF_REDUCE_MAX, "fp8.amax_history");
  next = amaxes;
  for (struct sf_fp8_linear *fp8 = run->fp8.linears; fp8 != NULL; fp8 = fp8->next)
    for (int i = 0; i < SF_FP8_OPERAND_COUNT; i++) keep(&fp8->amaxes[i], run->c->precision.fp8_history, run->step, *next++);
  sf_buffers_give(&run->acts, amaxes);
}
