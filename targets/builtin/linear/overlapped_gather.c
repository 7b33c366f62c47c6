#include "targets/builtin/linear/overlapped_gather.h"

#include "targets/builtin/parallel/fault.h"
#include "targets/builtin/parallel/matrix.h"

static void send_on(struct sf_overlapped_gather *gather, struct sf_rank_run *run) {
  const struct sf_ring_message message = {7, run->dtype, "column_parallel_linear.bwd.send_chunk", "column_parallel_linear.bwd.recv_chunk"};
  sf_ring_start(run, &gather->ring, gather->tp, &message, gather->at_hand, gather->spare, gather->rows * gather->in);
}

void sf_overlapped_gather_begin(struct sf_overlapped_gather *gather, struct sf_rank_run *run, const struct sf_group *tp, float *own,
                                int64_t rows, int64_t in) {
  *gather = (struct sf_overlapped_gather){.tp = tp, .rows = rows, .in = in, .own = own, .at_hand = own};
  gather->spare = sf_buffers_take(&run->acts, rows * in);
  send_on(gather, run);
}

void sf_overlapped_weight_grad(struct sf_overlapped_gather *gather, struct sf_rank_run *run, float *dw, const float *grad, float unit,
                               int64_t out) {
  const int32_t size = gather->tp->size;
  const int64_t rows = gather->rows, in = gather->in;
  for (int32_t step = 0; step < size; step++) {
    const int64_t owner = (gather->tp->index - step + size) % size;
    if (step > 0) sf_ring_finish(run, &gather->ring, &gather->at_hand, &gather->spare);
    if (step > 0 && step < size - 1) send_on(gather, run);
    /* tp-overlap-wgrad-wrong: the last chunk is used before it has arrived. This makes the unlucky timing certain, so that every schedule
     * and backend shows it: the buffer holds the chunk before. */
    const bool early = sf_fault(run->env, SF_FAULT_TP_OVERLAP_WGRAD_WRONG) && step == size - 1;
    sf_multiply_into(run->env->device, dw, in, sf_transposed(grad + owner * rows * out, out, rows, out),
                     sf_matrix(early ? gather->spare : gather->at_hand, in, rows, in), unit, step > 0, SF_F32);
  }
  sf_buffers_give(&run->acts, gather->at_hand == gather->own ? gather->spare : gather->at_hand);
}
