/* Loss scaling: a power of two that keeps gradients of fp16 above its subnormals, constant or following overflows (Megatron-LM:
 * core/optimizer/grad_scaler.py). */
#ifndef SF_TARGETS_LOSS_SCALER_H
#define SF_TARGETS_LOSS_SCALER_H

#include <stdbool.h>
#include <stdint.h>

struct sf_rank_run;

struct sf_loss_scaler {
  bool on;
  float scale;          /* of the step; 1 when off */
  int64_t window;       /* 0: the scale is constant */
  int64_t good_steps;   /* without overflow, since the scale last changed */
  int64_t steps_applied; /* Adam's, without those that were skipped */
};

/* Sets run->scaler to the case's first scale; off where the case has none. */
void sf_loss_scaler_create(struct sf_rank_run *run);
/* After the main gradients are complete and unscaled: whether one of them, on any rank of the model, is infinite or NaN; every rank gets
 * the same answer. False when scaling is off, without a look. */
bool sf_loss_scaler_overflow(struct sf_rank_run *run);
/* Counts the step; changes the scale for the next one. */
void sf_loss_scaler_update(struct sf_rank_run *run, bool overflow);

#endif
