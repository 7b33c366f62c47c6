/* The model's activation function between two linear layers, rounded to the compute format. */
#ifndef SF_TARGETS_ACTIVATION_H
#define SF_TARGETS_ACTIVATION_H

#include "targets/builtin/rank_run.h"

/* Shape: x [rows x width], with SwiGLU [rows x 2 width] = [gate, up] -> y [rows x width]. */
void sf_activate(struct sf_rank_run *run, float *y, const float *x, int64_t rows, int64_t width);
/* Shape: dy [rows x width] -> dx as x. */
void sf_activate_backward(struct sf_rank_run *run, float *dx, const float *dy, const float *x, int64_t rows, int64_t width);

#endif
