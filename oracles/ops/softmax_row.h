/* One row of a softmax, forward and backward. */
#ifndef SF_ORACLES_OPS_SOFTMAX_ROW_H
#define SF_ORACLES_OPS_SOFTMAX_ROW_H

#include "oracles/ops/num.h"

/* The largest of `top` and the scores; NaN when one of them is. */
double sf_op_row_top(const float *s, int64_t count, double top);
/* exp(score - top), both given. */
struct sf_num sf_op_exp_distance(double score, double top);
/* want[j] = exp(s[j] - top) / sum; returns the sink's probability. sink: its logit, or NULL. */
struct sf_num sf_op_softmax_row(struct sf_num *want, const float *s, int64_t count, const float *sink);
/* want[j] = p[j] (dp[j] - dot); returns dot = sum p dp. */
struct sf_num sf_op_softmax_row_bwd(struct sf_num *want, const float *dp, const float *p, int64_t count);
void sf_op_clear(struct sf_num *want, int64_t from, int64_t end); /* zeros */

#endif
