/* The experts that a rank holds: for each, linear_fc1, activation, linear_fc2, without biases (Megatron-LM:
 * core/transformer/moe/experts.py). Weights of a rank's experts stand one after the other: linear_fc1's below each other, linear_fc2's side
 * by side. */
#ifndef SF_TARGETS_EXPERTS_H
#define SF_TARGETS_EXPERTS_H

#include "targets/builtin/moe/token_dispatcher.h"

struct sf_plugged;

struct sf_experts {
  struct sf_parameter *fc1;        /* [experts_local fc1_width x h] */
  struct sf_parameter *fc2;        /* [h x experts_local width] */
  int64_t local, width, fc1_width; /* experts held; this rank's part of one's width; twice that of a gated activation */
  int64_t rows_max;
  struct sf_plugged *plugged;       /* NULL: computed here; else only the input is kept, and what is told it of the rows at hand: */
  struct sf_shard_map *plugged_map; /* [rows x h] */
  int64_t *plugged_rows;            /* of each expert */
};

/* What one microbatch leaves for its backward: buffers alone. */
struct sf_experts_acts {
  float *input;               /* [rows x h], rows by expert */
  float *fc1_out, *fc2_input; /* [rows x fc1_width], [rows x width] */
};

/* Makes the weights of this rank's experts known to run->params. dispatcher: made before; says which experts and how many rows. */
void sf_experts_create(struct sf_experts *experts, struct sf_rank_run *run, int32_t layer, const struct sf_token_dispatcher *dispatcher);
/* Shape: rows as they arrived [n x h] (taken) -> the same rows put out, this etp rank's summands (the caller's). */
float *sf_experts_forward(struct sf_rank_run *run, const struct sf_experts *experts, struct sf_experts_acts *acts,
                          const struct sf_dispatch *dispatch, int64_t row_count, float *rows);
/* Shape: gradient of the rows put out (taken) -> of the rows that arrived, this etp rank's summands (the caller's). Adds the weights'
 * gradients. */
float *sf_experts_backward(struct sf_rank_run *run, const struct sf_experts *experts, struct sf_experts_acts *acts,
                           const struct sf_dispatch *dispatch, int64_t row_count, float *grad);

#endif
