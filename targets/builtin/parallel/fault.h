/* Where planted faults enter the layers. Each site reads `sf_fault(env, SF_FAULT_X) ? wrong : right`, or calls one of the functions below,
 * which are called from one place each. targets/builtin/faults/plants.h says what every fault is. */
#ifndef SF_TARGETS_FAULT_H
#define SF_TARGETS_FAULT_H

#include "targets/builtin/parallel/rank_run.h"

/* Whether this bug is planted in the run. */
static inline bool sf_fault(const struct sf_rank_env *env, enum sf_fault fault) { return (env->faults & SF_FAULT_BIT(fault)) != 0; }

/* embed-scatter-wrong-tp-group: this rank's tp index in the default rank order. */
int32_t sf_fault_default_tp_index(const struct sf_rank_env *env);

/* fused-proj-contiguous-split: the rows (cols of a bias) a rank would hold if the fused tensor were cut without regard to its parts. */
struct sf_dim_map sf_fault_contiguous_dim(const struct sf_dim_map *declared, int64_t size, int64_t tp_index);

/* pp-uneven-offset: first global layer of a stage, with the first-stage option tested in place of the last-stage one. */
int64_t sf_fault_stage_offset(const struct sf_case *c, int64_t stage, int64_t layer_count);

/* attn-dq-wrong: ds = round(p dp), the softmax's backward without its row sum. */
void sf_fault_softmax_bwd_no_row_sum(float *ds, const float *dp, const float *p, int64_t count, enum sf_dtype store);

/* nonautograd-allreduce: clears the rows of a vocabulary shard's gradient whose label lies on another shard. */
void sf_fault_drop_foreign_rows(float *dlogits, const int32_t *labels, int64_t rows, int64_t cols, int64_t first);

/* mean-of-means-accum: factor on the loss weights of the microbatch with this mask (all of it) that turns the mean over tokens into the
 * mean of the microbatches' means. */
float sf_fault_mean_of_means_factor(const struct sf_case *c, int64_t step, const float *mask);

/* cp-attn-bwd-wrong: P of each of `cp` zig-zag blocks of keys divided by its sum over the visible keys of that block alone. rows x seq. */
void sf_fault_normalise_blocks(float *p, int64_t rows, int64_t seq, int64_t cp);

/* recompute-wrong-tp-group, xattn-qkv-wrong-tp-group: this rank's tp group in the default rank order; its own in a layout where such a
 * group reaches over stages (sf_plant_default_tp_in_stages), whose ranks would wait for each other. */
struct sf_group sf_fault_default_tp_group(const struct sf_rank_run *run);

/* vpp-gradsync-wrong-mb: whether gradients are reduced from this microbatch of a chunk on, when its step backward is compared with the
 * number of microbatches, `count`, in place of that of steps. */
bool sf_fault_is_last_of_chunk(const struct sf_case *c, int64_t count, int64_t chunk, int64_t local);

/* fp8-layer-exempt-local-index: the layer's number in this rank's pipeline stage, of that chunk of the rank's model. */
int32_t sf_fault_layer_in_stage(const struct sf_rank_run *run, int32_t chunk, int32_t layer);

/* ckpt-local-layer-names: the parameter's name with the layer's number in its pipeline stage. */
int32_t sf_fault_name_in_stage(const struct sf_rank_run *run, const struct sf_parameter *param);

/* Canaries. backward: called in the backward of the last layer's MLP; finalize: before the gradients are reduced. No-ops without their
 * fault. */
void sf_fault_canary_backward(const struct sf_rank_run *run, int32_t layer);
void sf_fault_canary_finalize(const struct sf_rank_run *run);

#endif
