/* Rotary positions of the tokens that this rank holds (Megatron-LM: core/models/common/embeddings/rope_utils.py). With context parallelism
 * a rank's positions are pieces of the sequence, with packed documents each document counts its own. */
#ifndef SF_TARGETS_ROTARY_H
#define SF_TARGETS_ROTARY_H

#include "targets/builtin/parallel/rank_run.h"

/* Shape: x [T x width], leading dimension ld_x -> y, ld_y; not in place. Computes round(rotation), pairing column i with i + width/2;
 * inverse: by the negative angle. cos_sin: sf_rotary_table for width. */
void sf_rotary_apply(struct sf_rank_run *run, float *y, int64_t ld_y, const float *x, int64_t ld_x, const float *cos_sin, int64_t width,
                     bool inverse);

#endif
