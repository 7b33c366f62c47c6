/* MLP: linear_fc1 (column-parallel), the model's activation, linear_fc2 (row-parallel) (Megatron-LM: core/transformer/mlp.py). Where that
 * is gated linear_fc1's logical output is [gate; up] and a rank holds its part of each half. */
#ifndef SF_TARGETS_PARALLEL_MLP_H
#define SF_TARGETS_PARALLEL_MLP_H

#include "targets/builtin/linear/linear.h"

/* Which modules an MLP is, and its width. */
struct sf_mlp_modules {
  enum sf_module_class fc1, activation, fc2;
  int64_t width;
};

struct sf_parallel_mlp {
  struct sf_linear linear_fc1, linear_fc2;
  struct sf_plugged *plugged; /* NULL: computed here */
  int32_t layer, module_activation;
};

/* What one microbatch leaves for its backward: buffers alone. */
struct sf_mlp_acts {
  float *fc1_input; /* [T x h] */
  float *fc1_out;   /* [T x ffn] or [T x 2 ffn] */
  float *fc2_input; /* [T x ffn] */
};

/* Makes the parameters known to run->params. modules: a dense MLP's or the shared expert's. */
void sf_parallel_mlp_create(struct sf_parallel_mlp *mlp, struct sf_rank_run *run, const struct sf_mlp_modules *modules, int32_t layer,
                            const struct sf_group *tp);
/* Shape: input [tokens_local x h] (taken) -> [tokens_local x h] (the caller's). */
float *sf_parallel_mlp_forward(struct sf_rank_run *run, const struct sf_parallel_mlp *mlp, struct sf_mlp_acts *acts, float *input);
/* Shape: grad [tokens_local x h] (borrowed) -> gradient of the input (the caller's). */
float *sf_parallel_mlp_backward(struct sf_rank_run *run, const struct sf_parallel_mlp *mlp, struct sf_mlp_acts *acts, const float *grad);

#endif
