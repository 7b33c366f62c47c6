#include "targets/builtin/linear/overlapped_gather.h"

#include "targets/builtin/parallel/fault.h"
#include "targets/builtin/linear/linear.h"

enum { TAG = 7 };

static void send_on(struct sf_overlapped_gather *gather, struct sf_rank_run *run) {
  const struct sf_group *tp = gather->tp;
  const int32_t next = tp->ranks[(tp->index + 1) % tp->size], previous = tp->ranks[(tp->index + tp->size - 1) % tp->size];
  const int64_t count = gather->rows * gather->in;
  gather->send = sf_isend(run->env->comm, next, TAG, gather->at_hand, count, run->dtype, "column_parallel_linear.bwd.send_chunk");
  gather->recv = sf_irecv(run->env->comm, previous, TAG, gather->spare, count, run->dtype, "column_parallel_linear.bwd.recv_chunk");
}

/* Afterwards the next chunk is here; the last one lies in the spare buffer. */
static void wait_and_swap(struct sf_overlapped_gather *gather, struct sf_rank_run *run) {
  sf_wait(run->env->comm, gather->send);
  sf_wait(run->env->comm, gather->recv);
  float *arrived = gather->spare;
  gather->spare = gather->at_hand;
  gather->at_hand = arrived;
}

void sf_overlapped_gather_begin(struct sf_overlapped_gather *gather, struct sf_rank_run *run, const struct sf_group *tp, float *own,
                                int64_t rows, int64_t in) {
  *gather = (struct sf_overlapped_gather){.tp = tp, .rows = rows, .in = in, .at_hand = own};
  gather->spare = sf_buffers_take(&run->acts, rows * gather->in);
  send_on(gather, run);
}

void sf_overlapped_weight_grad(struct sf_overlapped_gather *gather, struct sf_rank_run *run, float *dw, const float *grad, float unit,
                               int64_t out) {
  struct sf_device *dev = run->env->device;
  const int32_t size = gather->tp->size;
  for (int32_t step = 0; step < size; step++) {
    const int64_t owner = (gather->tp->index - step + size) % size;
    if (step > 0) wait_and_swap(gather, run);
    if (step > 0 && step < size - 1) send_on(gather, run);
    /* tp-overlap-wgrad-wrong: the last chunk is used before it has arrived. This makes the unlucky timing certain, so that every schedule
     * and backend shows it: the buffer holds the chunk before. */
    const bool early = sf_fault(run->env, SF_FAULT_TP_OVERLAP_WGRAD_WRONG) && step == size - 1;
    sf_linear_weight_grad_part(dev, dw, grad + owner * gather->rows * out, early ? gather->spare : gather->at_hand, unit,
                               gather->rows, gather->in, out, step > 0);
  }
  sf_buffers_give(&run->acts, gather->at_hand);
  sf_buffers_give(&run->acts, gather->spare);
}
