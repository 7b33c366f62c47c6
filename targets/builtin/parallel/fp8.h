/* fp8 in linear layers: what is multiplied is cast to E4M3 (inputs, weights) or E5M2 (gradients of outputs) with one scale for a whole
 * logical tensor (Transformer Engine: Float8CurrentScaling, DelayedScaling; Micikevicius et al. 2022, arXiv 2209.05433).
 *
 * Formats: in bf16, out an fp8 grid held as floats, unit = 1 / scale in fp32. scale = largest number / amax in fp32, 1 where amax is zero
 * or not finite or the quotient is not finite. */
#ifndef SF_TARGETS_FP8_H
#define SF_TARGETS_FP8_H

#include "targets/target.h"

struct sf_rank_run;
struct sf_parameter;

enum sf_fp8_operand { SF_FP8_INPUT, SF_FP8_WEIGHT, SF_FP8_GRAD, SF_FP8_OPERAND_COUNT };

/* Largest sizes of an operand of one linear. */
struct sf_fp8_amaxes {
  float step; /* of this step's casts so far: of this rank's pieces */
  float history[SF_FP8_HISTORY_MAX]; /* of the logical tensors of earlier steps; a ring */
  int32_t steps_kept;
};

struct sf_fp8_linear {
  enum sf_module_class cls;
  int32_t layer;
  struct sf_fp8_amaxes amaxes[SF_FP8_OPERAND_COUNT];
  float *input_units;  /* of the inputs of this rank's microbatches, which wait for their backward */
  float *weight;       /* cast; NULL before the first step */
  float weight_scale, weight_unit;
  int32_t weight_step; /* of the cast; -1: none */
  struct sf_fp8_linear *next;
};

/* Of a rank. */
struct sf_fp8 {
  bool delayed;
  struct sf_fp8_linear *linears;
  int32_t linear_count;
  float last_input_scale; /* read by a planted fault alone */
};

/* Sets run->fp8, without linears; sf_fp8_linear_create adds them. */
void sf_fp8_create(struct sf_rank_run *run);

/* NULL when the layer multiplies in the compute format: not an fp8 case, not one of the four linears of a decoder layer or the shared
 * expert's two, or one of the layers that stay in bf16, by its number in the model. */
struct sf_fp8_linear *sf_fp8_linear_create(struct sf_rank_run *run, enum sf_module_class cls, int32_t layer);

/* The scale of an operand of which this rank holds `count` values x. is_piece: other tp ranks hold other pieces of it. Current scaling, and
 * delayed scaling in its first step, reduce the amax over the ranks that hold pieces of the microbatch's tensor. */
float sf_fp8_scale(struct sf_rank_run *run, struct sf_fp8_linear *fp8, enum sf_fp8_operand operand, const float *x, int64_t count,
                   bool is_piece);

/* Casts x into out, which may be x; returns the unit. That of the running microbatch's input is kept for the backward. */
float sf_fp8_cast(struct sf_rank_run *run, struct sf_fp8_linear *fp8, enum sf_fp8_operand operand, float *out, const float *x,
                  int64_t count, float scale);
/* The weight's cast, made once a step, and its unit. */
const float *sf_fp8_weight(struct sf_rank_run *run, struct sf_fp8_linear *fp8, const struct sf_parameter *weight, float *unit);

/* Delayed scaling, end of a step: the step's amaxes, of all tokens and microbatches, become history. */
void sf_fp8_end_step(struct sf_rank_run *run);

#endif
