/* Linear layer that every tp rank holds whole and applies to its own tokens: all of them, or with sp its part of the sequence
 * (Megatron-LM: extensions/transformer_engine.py TELinear, parallel_mode "duplicated"). No bias. */
#ifndef SF_TARGETS_REPLICATED_LINEAR_H
#define SF_TARGETS_REPLICATED_LINEAR_H

#include "targets/builtin/parallel/rank_run.h"

struct sf_plugged;

struct sf_replicated_linear {
  struct sf_parameter *weight; /* [out x in] */
  struct sf_plugged *plugged;  /* NULL: computed here */
  int64_t in, out;
  int32_t module;
  struct sf_shard_map in_map, out_map; /* [T x in] and [T x out]: this rank's rows */
};

/* With sp each rank sees its own tokens only: the weight's gradient is a partial sum over tp until the end of the step. */
void sf_replicated_linear_create(struct sf_replicated_linear *linear, struct sf_rank_run *run, enum sf_module_class cls, int32_t layer,
                                 bool sp);

/* Shape: input [tokens_local x in] (borrowed) -> round(a W^T) [tokens_local x out] (the caller's). */
float *sf_replicated_linear_forward(struct sf_rank_run *run, const struct sf_replicated_linear *linear, const float *input);

/* Shape: grad [tokens_local x out], input as the forward's (borrowed) -> round(g W) [tokens_local x in] (the caller's); adds the weight's
 * gradient. */
float *sf_replicated_linear_backward(struct sf_rank_run *run, const struct sf_replicated_linear *linear, const float *grad,
                                     const float *input);

#endif
