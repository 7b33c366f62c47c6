/* Interleaved stages: a rank runs microbatches in groups of pp, each group through its first chunk, then through the second, and so on;
 * backward the chunks come in the opposite order. A step is one microbatch in one chunk. */
#include "targets/builtin/pipeline/pipeline_p2p.h"
#include "targets/builtin/pipeline/pipeline_schedule.h"

enum pass { FORWARD, BACKWARD };

struct schedule {
  int64_t pp, index, chunk_count;
  int64_t total, warmup; /* steps forward; those before the first step backward */
};

static struct schedule schedule_of(const struct sf_group *pp, int64_t microbatches, int64_t chunk_count) {
  struct schedule s = {.pp = pp->size, .index = pp->index, .chunk_count = chunk_count, .total = microbatches * chunk_count};
  s.warmup = (s.pp - s.index - 1) * 2 + (chunk_count - 1) * s.pp;
  if (s.warmup > s.total) s.warmup = s.total;
  return s;
}

/* Chunk of a step; steps before the first one count on downwards. */
static int64_t chunk_of(const struct schedule *s, int64_t step, enum pass pass) {
  const int64_t group = s->pp * s->chunk_count, chunk = (step % group + group) % group / s->pp;
  return pass == FORWARD ? chunk : s->chunk_count - 1 - chunk;
}

static int64_t microbatch_of(const struct schedule *s, int64_t step) { return step / (s->pp * s->chunk_count) * s->pp + step % s->pp; }

int32_t sf_interleaved_in_flight(const struct sf_group *pp, int64_t microbatches, int64_t chunk_count, int64_t chunk) {
  const struct schedule s = schedule_of(pp, microbatches, chunk_count);
  int32_t in_flight = 0, most = 1;
  for (int64_t step = 0; step < s.total; step++) {
    in_flight += chunk_of(&s, step, FORWARD) == chunk;
    if (in_flight > most) most = in_flight;
    if (step >= s.warmup) in_flight -= chunk_of(&s, step - s.warmup, BACKWARD) == chunk;
  }
  return most;
}

/* --- what the neighbours send -------------------------------------------------------------------------------------- */

/* The rank before sends its steps in order. The last rank's outputs go to the first rank's next chunk, and those of its last chunk to the
 * loss. Backward is the mirror image. */
static void keep_input(const struct schedule *s, struct sf_pipeline *pipeline, float *x) {
  if (x == NULL) return;
  while (s->index == 0 && chunk_of(s, pipeline->inputs_received, FORWARD) == s->chunk_count - 1) pipeline->inputs_received++;
  const int64_t step = pipeline->inputs_received++, chunk = chunk_of(s, step, FORWARD) + (s->index == 0);
  pipeline->inputs[chunk * pipeline->microbatches + microbatch_of(s, step)] = x;
}

static void keep_grad(const struct schedule *s, struct sf_pipeline *pipeline, float *grad) {
  if (grad == NULL) return;
  const bool is_last = s->index == s->pp - 1;
  while (is_last && chunk_of(s, pipeline->grads_received, BACKWARD) == 0) pipeline->grads_received++;
  const int64_t step = pipeline->grads_received++, chunk = chunk_of(s, step, BACKWARD) - is_last;
  pipeline->grads[chunk * pipeline->microbatches + microbatch_of(s, step)] = grad;
}

/* Sends and takes in a batch of messages, as sf_p2p_exchange. */
static void exchange(struct sf_rank_run *run, const struct schedule *s, struct sf_pipeline *pipeline, float *out, float *grad, bool wants_x,
                     bool wants_grad) {
  const struct sf_p2p_received in = sf_p2p_exchange(run, out, grad, wants_x, wants_grad);
  keep_input(s, pipeline, in.x);
  keep_grad(s, pipeline, in.grad);
}

/* --- steps ----------------------------------------------------------------------------------------------------------- */

static float *step_forward(struct sf_rank_run *run, const struct schedule *s, struct sf_pipeline *pipeline, int64_t step) {
  const int64_t chunk = chunk_of(s, step, FORWARD), local = microbatch_of(s, step);
  struct sf_model_stage *model = &pipeline->chunks[chunk];
  float *x = model->has_embedding ? NULL : pipeline->inputs[chunk * pipeline->microbatches + local];
  return sf_model_stage_forward(run, model, local, x);
}

static float *step_backward(struct sf_rank_run *run, const struct schedule *s, struct sf_pipeline *pipeline, int64_t step) {
  const int64_t chunk = chunk_of(s, step, BACKWARD), local = microbatch_of(s, step);
  struct sf_model_stage *model = &pipeline->chunks[chunk];
  float *grad = model->has_head ? NULL : pipeline->grads[chunk * pipeline->microbatches + local];
  return sf_model_stage_backward(run, model, local, grad);
}

static void warm_up(struct sf_rank_run *run, const struct schedule *s, struct sf_pipeline *pipeline) {
  exchange(run, s, pipeline, NULL, NULL, s->index > 0, false);
  for (int64_t step = 0; step < s->warmup; step++) {
    float *out = step_forward(run, s, pipeline, step);
    const bool is_embedded = s->index == 0 && chunk_of(s, step + 1, FORWARD) == 0;
    const bool is_last = step + 1 == s->warmup && s->warmup < s->total;
    exchange(run, s, pipeline, out, NULL, step + 1 < s->total && !is_embedded, is_last && s->index < s->pp - 1);
  }
}

/* One step forward, one backward, one exchange of all four messages. At the ring's seam the first rank is pp - 1 steps ahead of the last:
 * the message then belongs to a step before the next one, or there is none. */
static void steady(struct sf_rank_run *run, const struct schedule *s, struct sf_pipeline *pipeline) {
  for (int64_t back = 0; back < s->total - s->warmup; back++) {
    const int64_t step = s->warmup + back;
    float *out = step_forward(run, s, pipeline, step), *grad = step_backward(run, s, pipeline, back);
    const bool no_input = s->index == 0 && chunk_of(s, step - (s->pp - 1), FORWARD) == s->chunk_count - 1;
    const bool no_grad = s->index == s->pp - 1 && chunk_of(s, back - (s->pp - 1), BACKWARD) == 0;
    exchange(run, s, pipeline, out, grad, !no_input && step + 1 < s->total, !no_grad);
  }
}

static void cool_down(struct sf_rank_run *run, const struct schedule *s, struct sf_pipeline *pipeline) {
  exchange(run, s, pipeline, NULL, NULL, false, s->warmup == s->total && s->index < s->pp - 1);
  for (int64_t back = s->total - s->warmup; back < s->total; back++) {
    float *grad = step_backward(run, s, pipeline, back);
    const bool is_loss = s->index == s->pp - 1 && chunk_of(s, back + 1, BACKWARD) == s->chunk_count - 1;
    exchange(run, s, pipeline, NULL, grad, false, back + 1 < s->total && !is_loss);
  }
}

void sf_interleaved_run(struct sf_rank_run *run, struct sf_pipeline *pipeline) {
  const struct schedule s = schedule_of(&run->parallel.pp, pipeline->microbatches, pipeline->chunk_count);
  pipeline->inputs_received = pipeline->grads_received = 0;
  warm_up(run, &s, pipeline);
  steady(run, &s, pipeline);
  cool_down(run, &s, pipeline);
}
