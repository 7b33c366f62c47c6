#include "targets/builtin/pipeline/pipeline_p2p.h"

#include "targets/builtin/parallel/fault.h"

enum { TAG_FORWARD = 1, TAG_BACKWARD = 2 };

static int64_t message_count(const struct sf_rank_run *run) { return run->tokens_local * run->hidden; }
static int32_t next_rank(const struct sf_group *pp) { return pp->ranks[(pp->index + 1) % pp->size]; }
static int32_t previous_rank(const struct sf_group *pp) { return pp->ranks[(pp->index + pp->size - 1) % pp->size]; }

void sf_p2p_send_forward(struct sf_rank_run *run, struct sf_p2p_batch *batch, float *out) {
  if (out == NULL) return;
  batch->out = out;
  batch->send_forward = sf_isend(run->env->comm, next_rank(&run->parallel.pp), TAG_FORWARD, out, message_count(run), run->stream_dtype,
                                 "pipeline_schedule.send_forward");
  /* p2p-free-before-sent: the output counts as free once the send is posted. */
  if (sf_fault(run->env, SF_FAULT_P2P_FREE_BEFORE_SENT)) memset(out, 0, (size_t)message_count(run) * sizeof *out);
}

void sf_p2p_send_backward(struct sf_rank_run *run, struct sf_p2p_batch *batch, float *grad) {
  if (grad == NULL) return;
  batch->out_grad = grad;
  batch->send_backward = sf_isend(run->env->comm, previous_rank(&run->parallel.pp), TAG_BACKWARD, grad, message_count(run),
                                  run->stream_dtype, "pipeline_schedule.send_backward");
}

void sf_p2p_recv_forward(struct sf_rank_run *run, struct sf_p2p_batch *batch) {
  batch->x = sf_buffers_take(&run->acts, message_count(run));
  batch->recv_forward = sf_irecv(run->env->comm, previous_rank(&run->parallel.pp), TAG_FORWARD, batch->x, message_count(run),
                                 run->stream_dtype, "pipeline_schedule.recv_forward");
}

void sf_p2p_recv_backward(struct sf_rank_run *run, struct sf_p2p_batch *batch) {
  batch->grad = sf_buffers_take(&run->acts, message_count(run));
  batch->recv_backward = sf_irecv(run->env->comm, next_rank(&run->parallel.pp), TAG_BACKWARD, batch->grad, message_count(run),
                                  run->stream_dtype, "pipeline_schedule.recv_backward");
}

void sf_p2p_wait(struct sf_rank_run *run, struct sf_p2p_batch *batch) {
  sf_wait(run->env->comm, batch->send_forward);
  sf_wait(run->env->comm, batch->send_backward);
  sf_wait(run->env->comm, batch->recv_forward);
  sf_wait(run->env->comm, batch->recv_backward);
  sf_buffers_give(&run->acts, batch->out);
  sf_buffers_give(&run->acts, batch->out_grad);
}
