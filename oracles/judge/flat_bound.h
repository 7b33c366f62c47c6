/* A second opinion on the same run, to compare the oracle with: one relative bound for every tensor, as Megatron-LM's tests of gradients
 * have it. No verdict depends on it. */
#ifndef SF_ORACLES_FLAT_BOUND_H
#define SF_ORACLES_FLAT_BOUND_H

#include "oracles/judge/judge.h"

struct sf_flat_result {
  int32_t tensors; /* compared */
  int32_t beyond;  /* of them, beyond the bound */
  double worst;    /* largest relative distance over the bound; infinite for NaN, or where the reference is zero and the candidate is not */
  struct sf_trace_id first; /* in the reference's order, when beyond > 0 */
};

/* Compares every tensor of the kinds act, act_grad, wgrad and main_grad that arrived whole with the reference's.
 * Computes: ||C - X||_F / ||X||_F <= 4 * 1.03^33 * 2^-7 = 8.3 %: Theorem 5.3 of TTrace (arXiv 2506.09280) with the constants of that test
 * (k = 4, C = 1.03, a depth of 33, the machine epsilon of bf16 whatever the format). C is the merged tensor, replicas are not compared.
 * Special: tensors whose reference is not finite are left out. Call it after sf_judge, or when the trace is complete. */
void sf_flat_bound_judge(struct sf_flat_result *out, const struct sf_collector *collector);
double sf_flat_bound(void); /* 0.0829 */

#endif
