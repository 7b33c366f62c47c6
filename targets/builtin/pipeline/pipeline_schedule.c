#include "targets/builtin/pipeline/pipeline_schedule.h"

#include "targets/builtin/pipeline/pipeline_p2p.h"

static int64_t warmup_count(const struct sf_group *pp, int64_t microbatches) {
  const int64_t stages_after = pp->size - 1 - pp->index;
  return stages_after < microbatches ? stages_after : microbatches;
}

void sf_pipeline_create(struct sf_pipeline *pipeline, struct sf_rank_run *run, int64_t microbatches) {
  const struct sf_group *pp = &run->parallel.pp;
  const int32_t chunk_count = (int32_t)run->c->layout.vpp;
  *pipeline = (struct sf_pipeline){.chunk_count = chunk_count, .microbatches = microbatches};
  pipeline->chunks = sf_rank_alloc(run->env, (size_t)chunk_count * sizeof *pipeline->chunks);
  for (int32_t chunk = 0; chunk < chunk_count; chunk++) {
    const int32_t in_flight =
        chunk_count > 1 ? sf_interleaved_in_flight(pp, microbatches, chunk_count, chunk) : (int32_t)warmup_count(pp, microbatches) + 1;
    sf_model_stage_create(&pipeline->chunks[chunk], run, chunk, in_flight);
  }
  if (chunk_count == 1) return;
  const size_t received_bytes = (size_t)(chunk_count * microbatches) * sizeof(float *);
  pipeline->inputs = sf_rank_alloc(run->env, received_bytes);
  pipeline->grads = sf_rank_alloc(run->env, received_bytes);
}

static void plain_run(struct sf_rank_run *run, struct sf_model_stage *model, int64_t microbatches) {
  const int64_t warmup = warmup_count(&run->parallel.pp, microbatches), steady = microbatches - warmup;
  const bool is_fed = !run->parallel.first_stage, feeds = !run->parallel.last_stage;
  for (int64_t i = 0; i < warmup; i++) {
    float *out = sf_model_stage_forward(run, model, i, sf_p2p_exchange(run, NULL, NULL, is_fed, false).x);
    sf_p2p_exchange(run, out, NULL, false, false);
  }
  float *x = steady > 0 ? sf_p2p_exchange(run, NULL, NULL, is_fed, false).x : NULL;
  for (int64_t i = 0; i < steady; i++) {
    float *out = sf_model_stage_forward(run, model, warmup + i, x);
    float *grad = sf_model_stage_backward(run, model, i, sf_p2p_exchange(run, out, NULL, false, feeds).grad);
    x = sf_p2p_exchange(run, NULL, grad, is_fed && i + 1 < steady, false).x;
  }
  for (int64_t i = steady; i < microbatches; i++) {
    float *grad = sf_model_stage_backward(run, model, i, sf_p2p_exchange(run, NULL, NULL, false, feeds).grad);
    sf_p2p_exchange(run, NULL, grad, false, false);
  }
}

void sf_pipeline_run(struct sf_rank_run *run, struct sf_pipeline *pipeline) {
  if (pipeline->chunk_count > 1)
    sf_interleaved_run(run, pipeline);
  else
    plain_run(run, &pipeline->chunks[0], pipeline->microbatches);
}
