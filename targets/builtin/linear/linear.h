/* Linear layers y = a W^T + bias, divided over tp (Megatron-LM: core/tensor_parallel/layers.py ColumnParallelLinear, RowParallelLinear and
 * LinearWithGradAccumulationAndAsyncCommunication; extensions/transformer_engine.py TELinear; Shoeybi et al. 2019, arXiv 1909.08053,
 * section 3; sp: Korthikanti et al. 2022, arXiv 2205.05198).
 *
 * The kinds differ in what a rank holds and in the calls around one and the same product. With sp a rank's own tokens are its part of the
 * sequence, else they are all T tokens. */
#ifndef SF_TARGETS_LINEAR_H
#define SF_TARGETS_LINEAR_H

#include "targets/builtin/parallel/rank_run.h"

enum sf_linear_kind {
  SF_LINEAR_COLUMN,     /* output features are cut. Input: own tokens, gathered; its gradient is summed over tp. Output: all tokens */
  SF_LINEAR_ROW,        /* input features are cut. Input: all tokens. Output: own tokens of the sum over tp; its gradient is gathered */
  SF_LINEAR_REPLICATED, /* whole on every rank, own tokens in and out: with sp the weight's gradient is partial over tp */
  SF_LINEAR_GATHERED,   /* whole on every rank. Input: own tokens, gathered; output: all tokens. The output's gradient is that of own
                           tokens, gathered; that of the input is then the same on all ranks, and each keeps its own tokens' */
  SF_LINEAR_GATHERED_COLUMN, /* as COLUMN, and the output is gathered: own tokens, all features */
};

struct sf_plugged;

struct sf_linear {
  enum sf_linear_kind kind;
  struct sf_parameter *weight; /* [out x in], this rank's part */
  struct sf_parameter *bias;   /* [out] or NULL */
  struct sf_fp8_linear *fp8;   /* NULL: multiplies in the compute format */
  struct sf_plugged *plugged;  /* NULL: computed here; else what is saved is the input */
  struct sf_group tp;
  bool overlap;                     /* the backward gathers the input again, while it computes; only for a weight that trains */
  enum sf_dtype store;              /* of the output: the compute format unless told otherwise */
  int64_t in, out;                  /* features of this rank's product */
  int64_t rows, rows_in, rows_grad; /* of the product; of the input and of the output's gradient that this rank is given */
  int32_t module;
  int call;                            /* of the weight's gradient */
  struct sf_shard_map in_map, out_map; /* of the logical input and output: what this rank is given and puts out */
};

/* Makes the layer and its parameters. cut: the output features that this rank holds (COLUMN), where these are not the index-th of equal
 * parts; else NULL. */
void sf_linear_create(struct sf_linear *linear, struct sf_rank_run *run, enum sf_linear_kind kind, enum sf_module_class cls, int32_t layer,
                      const struct sf_group *tp, const struct sf_dim_map *cut);
/* A COLUMN that uses the weight of another module, as a tied head does. call: that the weight's gradient is traced as. */
void sf_linear_create_shared(struct sf_linear *linear, struct sf_rank_run *run, enum sf_module_class cls, int32_t layer,
                             const struct sf_group *tp, struct sf_parameter *weight, int call);

/* Makes a COLUMN work on `rows` logical rows in place of the residual stream's: with sp each tp rank has an equal part of them. */
void sf_linear_set_rows(struct sf_linear *linear, const struct sf_rank_run *run, int64_t rows);

/* Shape: input [rows_in x in] -> as out_map says (the caller's), traced. COLUMN: round(a W^T + bias), one rounding; ROW: round(a W^T) per
 * rank, its sum over tp in the compute format, round(. + bias); others round(a W^T).
 * *saved: for the backward, the input of the product (fp8: its cast); with overlap this rank's rows of it. It is the input or takes its
 * place, the input then being given back. NULL where nothing is gathered: the input itself is what the backward wants. */
float *sf_linear_forward(struct sf_rank_run *run, const struct sf_linear *linear, float *input, float **saved);

/* Shape: grad [rows_grad x out, GATHERED_COLUMN: all features] and saved (both borrowed; with overlap saved becomes scratch) -> gradient of
 * the input, as in_map says (the caller's), traced: round(g W) per rank, summed over tp where the features of the output are cut. Then adds
 * the gradients of weight and bias; with overlap the weight's as overlapped_gather.h says. */
float *sf_linear_backward(struct sf_rank_run *run, const struct sf_linear *linear, const float *grad, float *saved);

#endif
