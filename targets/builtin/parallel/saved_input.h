/* layout.recompute_sharded: what a recomputed chunk keeps of its input (Megatron-LM: core/tensor_parallel/random.py CheckpointFunction with
 * distribute_saved_activations). The input is the same on every tp rank, so each keeps 1/tp of its rows, in order, the last ones filled up
 * with zeros, and the tp group gathers them again when the chunk is recomputed. Nothing is rounded. */
#ifndef SF_TARGETS_SAVED_INPUT_H
#define SF_TARGETS_SAVED_INPUT_H

#include "targets/builtin/parallel/rank_run.h"

/* Shape: x [T x h] (taken) -> [ceil(T / tp) x h] (the caller's). */
float *sf_saved_input_cut(struct sf_rank_run *run, float *x);
/* Shape: part [ceil(T / tp) x h] (taken) -> [T x h] (the caller's). */
float *sf_saved_input_gather(struct sf_rank_run *run, float *part);

#endif
