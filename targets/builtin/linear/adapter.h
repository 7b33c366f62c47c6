/* A replicated linear behind a sequence gather: every tp rank computes all tokens (as a value head or a vision adapter does), then keeps
 * its own. */
#ifndef SF_TARGETS_ADAPTER_H
#define SF_TARGETS_ADAPTER_H

#include "targets/builtin/linear/linear.h"

struct sf_adapter {
  struct sf_linear linear;
  int32_t module_bda;
};

/* Makes the parameter known to run->params; whole on every tp rank. */
void sf_adapter_create(struct sf_adapter *adapter, struct sf_rank_run *run, const struct sf_group *tp);

/* Shape: x [tokens_local x h] (taken) -> the same (the caller's). Computes z = round(x A^T) of all T tokens, then round(x + z) of this
 * rank's. *saved: for the backward, a buffer of its own. */
float *sf_adapter_forward(struct sf_rank_run *run, const struct sf_adapter *adapter, float *x, float **saved);

/* grad [tokens_local x h]: overwritten by the gradient of the residual stream before the adapter. saved is borrowed. With sp the gradient
 * is gathered, every rank computes round(g A) of all tokens, and the gather's backward keeps this rank's rows: a split, not a sum, since
 * all ranks hold the same. */
void sf_adapter_backward(struct sf_rank_run *run, const struct sf_adapter *adapter, float *grad, float *saved);

#endif
