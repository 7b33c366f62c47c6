/* How the parts of a tensor move between the ranks of a group, most often tp (Megatron-LM: core/tensor_parallel/mappings.py). A rank's part
 * is the index-th of equal ones. */
#ifndef SF_TARGETS_MAPPINGS_H
#define SF_TARGETS_MAPPINGS_H

#include "targets/builtin/parallel/rank_run.h"

/* part [count] of every rank, one after the other; a new buffer, the caller's. */
float *sf_mapping_gather(struct sf_rank_run *run, const struct sf_group *group, const float *part, int64_t count, enum sf_dtype dtype,
                         const char *label);

/* full: as many elements as all ranks' parts (taken) -> this rank's part, `count` elements (the caller's). */
float *sf_mapping_split(struct sf_rank_run *run, int32_t index, float *full, int64_t count);

/* The calls of a reduction; without sp it is an all-reduce. */
struct sf_mapping_reduction {
  const char *all_reduce, *reduce_scatter;
};

/* full: this rank's summand (taken) -> the sum over the group (the caller's): all of it, or with sp this rank's part, by a reduce-scatter.
 * local: elements of the result. */
float *sf_mapping_reduce(struct sf_rank_run *run, const struct sf_group *group, bool sp, float *full, int64_t local, enum sf_dtype dtype,
                         const struct sf_mapping_reduction *calls);

/* whole: the tokens of a microbatch, ids or weights (4 bytes each) -> those of this cp rank, [tokens]. */
void sf_mapping_own_tokens(const struct sf_rank_run *run, void *out, const void *whole);

/* Buffers that pass round a group: each rank sends to the next one and receives from the one before. */
struct sf_ring_message {
  int32_t tag;
  enum sf_dtype dtype;
  const char *send, *recv; /* labels */
};
struct sf_ring {
  sf_request send, recv;
};

/* Starts the exchange of `count` elements: at_hand leaves, and what arrives goes into spare. */
void sf_ring_start(struct sf_rank_run *run, struct sf_ring *ring, const struct sf_group *group, const struct sf_ring_message *message,
                   const float *at_hand, float *spare, int64_t count);
/* Waits for it and swaps the two buffers, so that what arrived is at hand. */
void sf_ring_finish(struct sf_rank_run *run, const struct sf_ring *ring, float **at_hand, float **spare);

#endif
