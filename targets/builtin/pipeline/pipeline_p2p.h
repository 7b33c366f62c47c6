/* Messages between neighbouring pipeline ranks, in batches (Megatron-LM: core/pipeline_parallel/p2p_communication.py). The ranks form a
 * ring: with interleaved stages the last one sends activations to the first. Shape: [tokens_local x h], compute format on the wire. */
#ifndef SF_TARGETS_PIPELINE_P2P_H
#define SF_TARGETS_PIPELINE_P2P_H

#include "targets/builtin/parallel/rank_run.h"

/* Zeroed, then filled by the functions below, then waited for. What is sent must not change, what is received not be read, before that. */
struct sf_p2p_batch {
  sf_request send_forward, recv_forward, send_backward, recv_backward;
  float *out, *out_grad; /* being sent; taken */
  float *x, *grad;       /* received: the caller's after the wait; NULL when nothing was asked for */
};

/* Start messages: activations go to the next rank and come from the one before, gradients the other way. NULL sends nothing. */
void sf_p2p_send_forward(struct sf_rank_run *run, struct sf_p2p_batch *batch, float *out);
void sf_p2p_send_backward(struct sf_rank_run *run, struct sf_p2p_batch *batch, float *grad);
void sf_p2p_recv_forward(struct sf_rank_run *run, struct sf_p2p_batch *batch);
void sf_p2p_recv_backward(struct sf_rank_run *run, struct sf_p2p_batch *batch);
/* Completes all messages of the batch and gives back what was sent. */
void sf_p2p_wait(struct sf_rank_run *run, struct sf_p2p_batch *batch);

#endif
