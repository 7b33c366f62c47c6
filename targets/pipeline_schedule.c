#include "targets/pipeline_schedule.h"

#include "targets/fault.h"

enum { TAG_FORWARD = 1, TAG_BACKWARD = 2 };

static int64_t warmup_count(const struct sf_group *pp, int64_t microbatches) {
  const int64_t stages_after = pp->size - 1 - pp->index;
  return stages_after < microbatches ? stages_after : microbatches;
}

int32_t sf_pipeline_in_flight(const struct sf_group *pp, int64_t microbatches) { return (int32_t)warmup_count(pp, microbatches) + 1; }

/* Messages of one exchange: what is sent must not change, what is received not be read, before exchange_wait. */
struct exchange {
  sf_request send, recv;
  float *sent, *received;
};

static int64_t message_count(const struct sf_rank_run *run) { return run->tokens_local * run->hidden; }

static void post_send_forward(struct sf_rank_run *run, struct exchange *exchange, float *out) {
  const struct sf_group *pp = &run->parallel.pp;
  if (run->parallel.last_stage) return;
  exchange->sent = out;
  exchange->send = sf_isend(run->env->comm, pp->ranks[pp->index + 1], TAG_FORWARD, out, message_count(run), run->dtype,
                            "pipeline_schedule.send_forward");
  /* p2p-free-before-sent: the output counts as free once the send is posted. */
  if (sf_fault(run->env, SF_FAULT_P2P_FREE_BEFORE_SENT)) memset(out, 0, (size_t)message_count(run) * sizeof *out);
}

static void post_send_backward(struct sf_rank_run *run, struct exchange *exchange, float *grad) {
  const struct sf_group *pp = &run->parallel.pp;
  if (run->parallel.first_stage) return;
  exchange->sent = grad;
  exchange->send = sf_isend(run->env->comm, pp->ranks[pp->index - 1], TAG_BACKWARD, grad, message_count(run), run->dtype,
                            "pipeline_schedule.send_backward");
}

static void post_recv_forward(struct sf_rank_run *run, struct exchange *exchange) {
  const struct sf_group *pp = &run->parallel.pp;
  if (run->parallel.first_stage) return;
  exchange->received = sf_buffers_take(&run->acts, message_count(run));
  exchange->recv = sf_irecv(run->env->comm, pp->ranks[pp->index - 1], TAG_FORWARD, exchange->received, message_count(run), run->dtype,
                            "pipeline_schedule.recv_forward");
}

static void post_recv_backward(struct sf_rank_run *run, struct exchange *exchange) {
  const struct sf_group *pp = &run->parallel.pp;
  if (run->parallel.last_stage) return;
  exchange->received = sf_buffers_take(&run->acts, message_count(run));
  exchange->recv = sf_irecv(run->env->comm, pp->ranks[pp->index + 1], TAG_BACKWARD, exchange->received, message_count(run), run->dtype,
                            "pipeline_schedule.recv_backward");
}

/* Completes both, gives back what was sent; returns what was received, NULL at the pipeline's ends. */
static float *exchange_wait(struct sf_rank_run *run, struct exchange *exchange) {
  sf_wait(run->env->comm, exchange->send);
  sf_wait(run->env->comm, exchange->recv);
  sf_buffers_give(&run->acts, exchange->sent);
  return exchange->received;
}

static float *recv_forward(struct sf_rank_run *run) {
  struct exchange exchange = {0};
  post_recv_forward(run, &exchange);
  return exchange_wait(run, &exchange);
}

static float *recv_backward(struct sf_rank_run *run) {
  struct exchange exchange = {0};
  post_recv_backward(run, &exchange);
  return exchange_wait(run, &exchange);
}

static void send_forward(struct sf_rank_run *run, float *out) {
  struct exchange exchange = {0};
  post_send_forward(run, &exchange, out);
  (void)exchange_wait(run, &exchange);
}

static void send_backward(struct sf_rank_run *run, float *grad) {
  struct exchange exchange = {0};
  post_send_backward(run, &exchange, grad);
  (void)exchange_wait(run, &exchange);
}

static float *send_forward_recv_backward(struct sf_rank_run *run, float *out) {
  struct exchange exchange = {0};
  post_send_forward(run, &exchange, out);
  post_recv_backward(run, &exchange);
  return exchange_wait(run, &exchange);
}

static float *send_backward_recv_forward(struct sf_rank_run *run, float *grad) {
  struct exchange exchange = {0};
  post_send_backward(run, &exchange, grad);
  post_recv_forward(run, &exchange);
  return exchange_wait(run, &exchange);
}

void sf_pipeline_run(struct sf_rank_run *run, struct sf_model_stage *model, int64_t microbatches) {
  const int64_t warmup = warmup_count(&run->parallel.pp, microbatches), steady = microbatches - warmup;
  for (int64_t i = 0; i < warmup; i++) send_forward(run, sf_model_stage_forward(run, model, i, recv_forward(run)));
  float *x = steady > 0 ? recv_forward(run) : NULL;
  for (int64_t i = 0; i < steady; i++) {
    float *out = sf_model_stage_forward(run, model, warmup + i, x);
    float *grad = sf_model_stage_backward(run, model, i, send_forward_recv_backward(run, out));
    if (i + 1 < steady)
      x = send_backward_recv_forward(run, grad);
    else
      send_backward(run, grad);
  }
  for (int64_t i = steady; i < microbatches; i++) send_backward(run, sf_model_stage_backward(run, model, i, recv_backward(run)));
}
