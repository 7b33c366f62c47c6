/* One-forward-one-backward pipeline schedules, plain and interleaved (Megatron-LM: core/pipeline_parallel/schedules.py
 * forward_backward_pipelining_without_interleaving and _with_interleaving; Narayanan et al. 2021, arXiv 2104.04473). */
#ifndef SF_TARGETS_PIPELINE_SCHEDULE_H
#define SF_TARGETS_PIPELINE_SCHEDULE_H

#include "targets/builtin/model/model.h"

/* A rank's model chunks: one, or vpp of them with interleaved stages. */
struct sf_pipeline {
  int32_t chunk_count;
  struct sf_model_stage *chunks;
  int64_t microbatches; /* of this rank */
  /* Interleaved: what came and has not been used yet, by chunk and microbatch. */
  float **inputs, **grads;
  int64_t inputs_received, grads_received; /* of the neighbour's steps, those that it does not send among them */
};

/* Makes the rank's chunks and their parameters known to run->params, first chunk first. */
void sf_pipeline_create(struct sf_pipeline *pipeline, struct sf_rank_run *run, int64_t microbatches);

/* Forward and backward of all microbatches of this rank. Between stages move [tokens_local x h] values in the compute format. */
void sf_pipeline_run(struct sf_rank_run *run, struct sf_pipeline *pipeline);

/* The chunk that holds the head, on the rank that has it. */
static inline struct sf_model_stage *sf_pipeline_last_chunk(struct sf_pipeline *pipeline) {
  return &pipeline->chunks[pipeline->chunk_count - 1];
}

/* --- interleaved_schedule.c -------------------------------------------------------------------------------------- */

/* Most microbatches that the chunk has in flight at once. */
int32_t sf_interleaved_in_flight(const struct sf_group *pp, int64_t microbatches, int64_t chunk_count, int64_t chunk);
/* sf_pipeline_run where a rank has several chunks. */
void sf_interleaved_run(struct sf_rank_run *run, struct sf_pipeline *pipeline);

#endif
