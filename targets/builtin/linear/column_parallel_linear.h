/* Linear layer whose output features are cut over tp (Megatron-LM: core/tensor_parallel/layers.py ColumnParallelLinear and
 * LinearWithGradAccumulationAndAsyncCommunication; Shoeybi et al. 2019, arXiv 1909.08053, section 3; sp: Korthikanti et al. 2022, arXiv
 * 2205.05198). */
#ifndef SF_TARGETS_COLUMN_PARALLEL_LINEAR_H
#define SF_TARGETS_COLUMN_PARALLEL_LINEAR_H

#include "targets/builtin/parallel/rank_run.h"

struct sf_plugged;

struct sf_column_parallel_linear {
  struct sf_parameter *weight; /* [out x in], this rank's rows */
  struct sf_parameter *bias;   /* [out] or NULL */
  struct sf_fp8_linear *fp8;   /* NULL: multiplies in the compute format */
  struct sf_plugged *plugged;  /* NULL: computed here; else what is saved is the input */
  struct sf_group tp;
  bool sp;
  bool overlap; /* the backward gathers the input again, while it computes; only for a weight that trains */
  int64_t in, out; /* features of the input, the hidden ones or a latent's; output features held */
  int32_t module;
  int call;                    /* of the weight's gradient: 1 when it is the tied word embedding */
  struct sf_shard_map out_map; /* [T x out] of the logical output */
  int64_t tokens, tokens_local; /* rows, and those of the input that this rank holds: the residual stream's unless told otherwise */
  struct sf_shard_map in_map;   /* [T x in] of the logical input, this rank's rows */
};

/* out_dim: which output features this rank holds, as the layer that uses the linear cuts them. weight NULL: the layer makes its own weight
 * (and bias), else the given one is used, as the tied head does. fused: out_dim is a cut of concatenated parts. */
void sf_column_parallel_linear_create(struct sf_column_parallel_linear *linear, struct sf_rank_run *run, enum sf_module_class cls,
                                      int32_t layer, const struct sf_dim_map *out_dim, struct sf_parameter *weight,
                                      const struct sf_group *tp, bool sp);

/* The call that the weight's gradient is traced as. */
void sf_column_parallel_linear_set_call(struct sf_column_parallel_linear *linear, int call);

/* Makes the linear work on `rows` logical rows in place of the residual stream's: with sp each tp rank has an equal part of them. */
void sf_column_parallel_linear_set_rows(struct sf_column_parallel_linear *linear, const struct sf_rank_run *run, int64_t rows);

/* Shape: input [tokens_local x in] (taken) -> [T x out] (the caller's). With sp the input is all-gathered along the sequence first.
 * Computes round(a W^T + bias), one rounding. *saved: for the backward, the whole input [T x in] (fp8: its cast); with overlap
 * this rank's rows of it. */
float *sf_column_parallel_linear_forward(struct sf_rank_run *run, const struct sf_column_parallel_linear *linear, float *input,
                                         float **saved);

/* Shape: grad [T x out] (borrowed) -> [tokens_local x in] (the caller's). saved is given back.
 * Computes round(g W) per rank, then the sum over tp in the compute format: all-reduce, with sp reduce-scatter along the sequence; then the
 * weight's and bias's gradients, from all tokens; with overlap the weight's as overlapped_gather.h says. */
float *sf_column_parallel_linear_backward(struct sf_rank_run *run, const struct sf_column_parallel_linear *linear, const float *grad,
                                          float *saved);

#endif
