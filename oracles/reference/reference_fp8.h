/* Template: fp8 casts of the operands of linear layers. The build for double has none: it does not round. */
#ifndef SF_ORACLES_REFERENCE_FP8_H
#define SF_ORACLES_REFERENCE_FP8_H

#include "oracles/reference/reference_core.h"

/* What a linear layer multiplies. */
enum operand { OPERAND_INPUT, OPERAND_WEIGHT, OPERAND_GRAD, OPERAND_COUNT };

/* A factor of a product: values on an fp8 grid and what they are to be multiplied by, or the tensor itself and 1. */
struct factor {
  const real *values;
  real unit;
};

/* Whether the linear's products are of fp8 casts: by its class, and not in the layers that stay in bf16. */
static inline bool casts_to_fp8(const struct run *run, enum sf_module_class cls, int32_t layer) {
  const struct sf_precision *precision = &run->c->precision;
  if (run->fp8.casts == NULL || !sf_module_is(cls, SF_TRAIT_FP8) || has_slip(run, SF_SLIP_NO_FP8)) return false;
  return layer >= precision->fp8_bf16_first && layer + precision->fp8_bf16_last < run->c->model.layers;
}

/* NaN is above all. */
static inline float larger_amax(float a, float b) { return b > a || b != b ? b : a; }

/* Largest magnitude, in fp32; NaN if there is one. */
static inline float amax_of(const real *x, int64_t count) {
  float amax = 0;
  for (int64_t i = 0; i < count; i++) amax = larger_amax(amax, (float)(x[i] < 0 ? -x[i] : x[i]));
  return amax;
}

/* Of one operand of one linear. */
static inline struct fp8_cast *fp8_cast_of(const struct run *run, enum sf_module_class cls, int32_t layer, enum operand operand) {
  return &run->fp8.casts[sf_catalog_module(run->catalog, cls, layer) * OPERAND_COUNT + (int)operand];
}

/* What the scale is made from: this tensor's amax, or with delayed scaling the largest of earlier steps, if there are any. */
static inline float scale_amax(const struct run *run, const struct fp8_cast *cast, float amax) {
  if (run->c->precision.fp8_recipe == SF_FP8_CURRENT || cast->count == 0) return amax;
  float most = 0;
  for (int32_t i = 0; i < cast->count; i++) most = larger_amax(most, cast->history[i]);
  return most;
}

/* room: for count values. */
static inline struct factor factor_of(const struct run *run, enum sf_module_class cls, int32_t layer, enum operand operand, const real *x,
                                      int64_t count, real *room) {
  if (!casts_to_fp8(run, cls, layer)) return (struct factor){x, 1};
  struct fp8_cast *cast = fp8_cast_of(run, cls, layer, operand);
  const bool is_wide = operand == OPERAND_GRAD ? !has_slip(run, SF_SLIP_GRADS_E4M3) : has_slip(run, SF_SLIP_ALL_E5M2);
  const enum sf_dtype format = is_wide ? SF_F8E5M2 : SF_F8E4M3;
  const enum sf_dtype scaled_for = has_slip(run, SF_SLIP_SCALE_OF_E5M2) ? SF_F8E5M2 : format;
  const float amax = amax_of(x, count), reach = scale_amax(run, cast, amax), quotient = sf_f8_largest(scaled_for) / reach;
  const float scale = reach > 0 && isfinite(reach) && isfinite(quotient) ? quotient : 1;
  cast->amax = has_slip(run, SF_SLIP_AMAX_OF_LAST) ? amax : larger_amax(cast->amax, amax);
  for (int64_t i = 0; i < count; i++) room[i] = x[i] * (real)scale;
  round_to(room, count, format);
  return (struct factor){room, (real)(1 / scale)};
}

/* After a step: its amaxes become history. */
static inline void fp8_step_finish(struct run *run) {
  if (run->fp8.casts == NULL) return;
  for (int64_t i = 0; i < run->catalog->module_count * OPERAND_COUNT; i++) {
    struct fp8_cast *cast = &run->fp8.casts[i];
    for (int32_t k = SF_FP8_HISTORY_MAX - 1; k > 0; k--) cast->history[k] = cast->history[k - 1];
    cast->history[0] = cast->amax;
    if (cast->count < run->c->precision.fp8_history) cast->count++;
    cast->amax = 0;
  }
}

/* largest: elements of the largest parameter; widest: columns of the widest tensor. */
static inline void fp8_take(struct run *run, int64_t largest, int64_t widest) {
  if (sizeof(real) == sizeof(double) || run->c->precision.compute != SF_COMPUTE_FP8) return;
  const int64_t count = (int64_t)run->catalog->module_count * OPERAND_COUNT;
  run->fp8.casts = take_all(run, count, sizeof *run->fp8.casts);
  run->fp8.input = take(run, run->tokens * widest);
  run->fp8.grad = take(run, run->tokens * widest);
  run->fp8.weight = take(run, largest);
  if (run->fp8.casts != NULL) memset(run->fp8.casts, 0, (size_t)count * sizeof *run->fp8.casts);
}

#endif
