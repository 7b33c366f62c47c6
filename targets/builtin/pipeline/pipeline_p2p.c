#include "targets/builtin/pipeline/pipeline_p2p.h"

#include "targets/builtin/parallel/fault.h"

enum { TAG_FORWARD = 1, TAG_BACKWARD = 2 };

struct sf_p2p_received sf_p2p_exchange(struct sf_rank_run *run, float *out, float *grad, bool wants_x, bool wants_grad) {
  struct sf_comm *comm = run->env->comm;
  const struct sf_group *pp = &run->parallel.pp;
  const int32_t next = pp->ranks[(pp->index + 1) % pp->size], previous = pp->ranks[(pp->index + pp->size - 1) % pp->size];
  const int64_t count = run->tokens_local * run->hidden;
  const enum sf_dtype wire = run->stream_dtype;
  struct sf_p2p_received in = {NULL, NULL};
  sf_request requests[4] = {0};
  if (out != NULL) {
    requests[0] = sf_isend(comm, next, TAG_FORWARD, out, count, wire, "pipeline_schedule.send_forward");
    /* p2p-free-before-sent: the output counts as free once the send is posted. */
    if (sf_fault(run->env, SF_FAULT_P2P_FREE_BEFORE_SENT)) memset(out, 0, (size_t)count * sizeof *out);
  }
  if (grad != NULL) requests[1] = sf_isend(comm, previous, TAG_BACKWARD, grad, count, wire, "pipeline_schedule.send_backward");
  if (wants_x) {
    in.x = sf_buffers_take(&run->acts, count);
    requests[2] = sf_irecv(comm, previous, TAG_FORWARD, in.x, count, wire, "pipeline_schedule.recv_forward");
  }
  if (wants_grad) {
    in.grad = sf_buffers_take(&run->acts, count);
    requests[3] = sf_irecv(comm, next, TAG_BACKWARD, in.grad, count, wire, "pipeline_schedule.recv_backward");
  }
  for (int i = 0; i < 4; i++) sf_wait(comm, requests[i]);
  sf_buffers_give(&run->acts, out);
  sf_buffers_give(&run->acts, grad);
  return in;
}
