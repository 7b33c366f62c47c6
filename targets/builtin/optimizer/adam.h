/* Gradient clipping and the Adam step with fp32 master weights (Megatron-LM: core/optimizer/clip_grads.py, optimizer.py; Kingma and Ba
 * 2015, arXiv 1412.6980; decoupled decay: Loshchilov and Hutter 2019, arXiv 1711.05101). */
#ifndef SF_TARGETS_ADAM_H
#define SF_TARGETS_ADAM_H

#include "targets/builtin/parallel/rank_run.h"

/* sqrt of the sum of squares of all main gradients of the model, each logical element once: replicas over tp count on tp index 0,
 * replicated key and value rows on kv_rep index 0, a tied embedding on the first stage. Sums in fp64, reduced over tp x pp, with ZeRO,
 * where each rank counts its shard, over all ranks; the same on every rank. */
double sf_grad_norm(struct sf_rank_run *run);

/* min(1, limit / (norm + 1e-6)), 1 when clipping is off. */
double sf_clip_factor(const struct sf_case *c, double norm);

/* Updates every trainable parameter's moments and master (with precision.stochastic: the bf16 weight, rounded with the bits of
 * harness/tensor/rounding_bits.h), hands the change (new - old master) to the sink, publishes the model's weight. */
void sf_adam_step(struct sf_rank_run *run, double clip);
/* A step that overflowed: changes of zero go to the sink, nothing else happens. */
void sf_adam_skip(struct sf_rank_run *run);

#endif
