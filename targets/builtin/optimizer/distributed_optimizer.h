/* Optimizer state cut over data parallelism (Megatron-LM: core/optimizer/distrib_optimizer.py; Rajbhandari et al. 2020, arXiv 1910.02054).
 * A rank keeps fp32 masters and Adam's moments of its shard of each gradient bucket only; after the step the model's weights are collected
 * from all shards. */
#ifndef SF_TARGETS_DISTRIBUTED_OPTIMIZER_H
#define SF_TARGETS_DISTRIBUTED_OPTIMIZER_H

#include "targets/builtin/parallel/rank_run.h"

/* Allocates the shards' state; moments are zero. After sf_grad_buckets_build. */
void sf_distributed_optimizer_build(struct sf_rank_run *run);
/* Sets masters of this rank's shard from all values of a parameter, [param->count]. */
void sf_distributed_optimizer_load(struct sf_rank_run *run, const struct sf_parameter *param, const float *values);
/* Model weights of all trainable parameters = round(master), by all-gather in the compute format. */
void sf_distributed_optimizer_publish(struct sf_rank_run *run);

#endif
