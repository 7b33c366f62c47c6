/* What completes the main gradients after the last backward (Megatron-LM: core/distributed/finalize_model_grads.py). */
#ifndef SF_TARGETS_FINALIZE_GRADS_H
#define SF_TARGETS_FINALIZE_GRADS_H

#include "targets/builtin/parallel/rank_run.h"

struct sf_step_totals {
  double loss_sum, tokens;
}; /* over the step's microbatches */

/* Sums this rank's loss and token counts over dp, cp and pp (only the last stage has any), in fp64. */
struct sf_step_totals sf_finalize_totals(struct sf_rank_run *run, double loss_sum, double token_sum);

/* Data-parallel reduction; sum over tp of what a sequence shard saw of its tokens only; replicated key and value rows over kv_rep; tied
 * embedding over first and last stage; division by the token count in the per-token mode. Afterwards every main gradient is complete and
 * normalised on every rank that holds it. fp32 throughout. */
void sf_finalize_grads(struct sf_rank_run *run, double tokens);

#endif
