/* One-forward-one-backward pipeline schedule without interleaving (Megatron-LM: core/pipeline_parallel/schedules.py
 * forward_backward_pipelining_without_interleaving; Narayanan et al. 2021, arXiv 2104.04473). */
#ifndef SF_TARGETS_PIPELINE_SCHEDULE_H
#define SF_TARGETS_PIPELINE_SCHEDULE_H

#include "targets/model.h"

/* Microbatches that stage `pp->index` keeps in flight at most: its warm-up forwards and the one at work. */
int32_t sf_pipeline_in_flight(const struct sf_group *pp, int64_t microbatches);

/* Forward and backward of all `microbatches` of this rank. Between stages move [tokens_local x h] values in the compute format. */
void sf_pipeline_run(struct sf_rank_run *run, struct sf_model_stage *model, int64_t microbatches);

#endif
