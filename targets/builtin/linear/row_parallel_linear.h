/* Linear layer whose input features are cut over tp (Megatron-LM: core/tensor_parallel/layers.py RowParallelLinear). */
#ifndef SF_TARGETS_ROW_PARALLEL_LINEAR_H
#define SF_TARGETS_ROW_PARALLEL_LINEAR_H

#include "targets/builtin/parallel/rank_run.h"

struct sf_plugged;

struct sf_row_parallel_linear {
  struct sf_parameter *weight; /* [h x in], this rank's columns */
  struct sf_parameter *bias;   /* [h], replicated, or NULL */
  struct sf_fp8_linear *fp8;   /* NULL: multiplies in the compute format */
  struct sf_plugged *plugged;  /* NULL: computed here */
  struct sf_group tp;
  bool sp;
  int64_t in; /* input features held */
  int32_t module;
  struct sf_shard_map in_map; /* [T x in] of the logical input */
};

/* in_total: logical input features; rank i of tp holds the i-th of equal parts. */
void sf_row_parallel_linear_create(struct sf_row_parallel_linear *linear, struct sf_rank_run *run, enum sf_module_class cls, int32_t layer,
                                   int64_t in_total, const struct sf_group *tp, bool sp);

/* Shape: input [T x in] (borrowed; the backward wants it again; fp8: becomes its cast) -> [tokens_local x h] (the caller's).
 * Computes round(a W^T) per rank, then the sum over tp in the compute format: all-reduce, with sp reduce-scatter along the sequence; then
 * round(. + bias). */
float *sf_row_parallel_linear_forward(struct sf_rank_run *run, const struct sf_row_parallel_linear *linear, float *input);

/* Shape: grad [tokens_local x h] (borrowed) -> [T x in] (the caller's). input: what the forward was given, given back here. With sp the
 * gradient is all-gathered along the sequence; the bias's gradient then covers this rank's tokens only and is a partial sum over tp. */
float *sf_row_parallel_linear_backward(struct sf_rank_run *run, const struct sf_row_parallel_linear *linear, const float *grad,
                                       float *input);

#endif
