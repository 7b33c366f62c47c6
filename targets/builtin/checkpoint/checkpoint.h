/* A distributed checkpoint: named shards with their shard maps, to which each rank contributes what it alone, or it first of all replicas,
 * holds; any layout loads them (Megatron-LM: core/dist_checkpointing; Wang et al. 2024, ByteCheckpoint, arXiv 2407.20143).
 *
 * Names are global: a parameter's or a module's place in the catalogue, whatever the layout. What is saved: the fp32 master of every
 * parameter (with stochastic rounding, and frozen in fp32, the weight itself), Adam's moments of those that train, the loss scaler, and the
 * amax histories of fp8 linears. Shards stay in the ranks' memory and go over the world when they are loaded. */
#ifndef SF_TARGETS_CHECKPOINT_H
#define SF_TARGETS_CHECKPOINT_H

#include "targets/builtin/parallel/rank_run.h"

enum sf_checkpoint_state {
  SF_CHECKPOINT_MASTER, /* name: a parameter */
  SF_CHECKPOINT_ADAM_M,
  SF_CHECKPOINT_ADAM_V,
  SF_CHECKPOINT_FP8,    /* name: a module; history and its length of each operand, [1 x 15] */
  SF_CHECKPOINT_SCALER, /* name: 0; scale, good steps, steps applied, [1 x 3] */
  SF_CHECKPOINT_STATE_COUNT
};

/* The elements that map holds of a logical tensor; always flat. */
struct sf_checkpoint_shard {
  int32_t name;
  enum sf_checkpoint_state state;
  struct sf_shard_map map;
  const float *data; /* map.count values */
};

/* What one rank contributes. */
struct sf_checkpoint {
  int32_t count;
  struct sf_checkpoint_shard *shards;
  int64_t element_count; /* of all shards */
};

/* Copies this rank's contribution into the trial's arena. Between two steps. Ranks together contribute each element once: of replicas the
 * rank whose indices over the axes of replication are 0, of a tied embedding the first stage. Leaves the rank with SF_ENOMEM. */
void sf_checkpoint_save(struct sf_checkpoint *out, struct sf_rank_run *run);

/* Loads all ranks' contributions into a model that was built and initialised, by its own maps; collective over the world. What no shard
 * holds stays as it is initialised. Model weights = round(master). A shard map that cannot be leaves the rank with SF_EINPUT. */
void sf_checkpoint_load(struct sf_rank_run *run, const struct sf_checkpoint *own);

#endif
