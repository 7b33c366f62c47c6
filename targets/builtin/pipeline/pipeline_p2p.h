/* Messages between neighbouring pipeline ranks (Megatron-LM: core/pipeline_parallel/p2p_communication.py). The ranks form a ring: with
 * interleaved stages the last one sends activations to the first. Shape: [tokens_local x h], the stream's format on the wire. */
#ifndef SF_TARGETS_PIPELINE_P2P_H
#define SF_TARGETS_PIPELINE_P2P_H

#include "targets/builtin/parallel/rank_run.h"

/* What came; the caller's. NULL where nothing was asked for. */
struct sf_p2p_received {
  float *x, *grad;
};

/* One batch of messages, all in flight at once. Activations go to the next rank and come from the one before, gradients the other way. out,
 * grad: what is sent, taken; NULL sends nothing. Returns when all have arrived. */
struct sf_p2p_received sf_p2p_exchange(struct sf_rank_run *run, float *out, float *grad, bool wants_x, bool wants_grad);

#endif
