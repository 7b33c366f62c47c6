/* The three products of a linear layer y = a W^T, shared by the column-parallel, row-parallel and replicated ones.
 * Accumulation fp32; `store` is the format to which a result is rounded. Weights are [out x in], row-major. The three with a unit, a factor
 * on the product, are for operands in fp8. */
#ifndef SF_TARGETS_LINEAR_H
#define SF_TARGETS_LINEAR_H

#include "targets/target.h"

/* y [tokens x out] = round(unit a [tokens x in] W^T) */
void sf_linear_forward_units(struct sf_device *dev, float *y, const float *a, const float *weight, float unit, int64_t tokens, int64_t in,
                             int64_t out, enum sf_dtype store);
/* da [tokens x in] = round(unit g [tokens x out] W) */
void sf_linear_input_grad_units(struct sf_device *dev, float *da, const float *g, const float *weight, float unit, int64_t tokens,
                                int64_t in, int64_t out, enum sf_dtype store);
/* dW [out x in] = unit g^T a, fp32 */
void sf_linear_weight_grad_units(struct sf_device *dev, float *dw, const float *g, const float *a, float unit, int64_t tokens, int64_t in,
                                 int64_t out);
/* The same over some of the tokens; accumulate: added to what dw holds. */
void sf_linear_weight_grad_part(struct sf_device *dev, float *dw, const float *g, const float *a, float unit, int64_t tokens, int64_t in,
                                int64_t out, bool accumulate);

/* The three products of operands that were not cast: the unit is 1. */
static inline void sf_linear_forward(struct sf_device *dev, float *y, const float *a, const float *weight, int64_t tokens, int64_t in,
                                     int64_t out, enum sf_dtype store) {
  sf_linear_forward_units(dev, y, a, weight, 1.0f, tokens, in, out, store);
}
static inline void sf_linear_input_grad(struct sf_device *dev, float *da, const float *g, const float *weight, int64_t tokens, int64_t in,
                                        int64_t out, enum sf_dtype store) {
  sf_linear_input_grad_units(dev, da, g, weight, 1.0f, tokens, in, out, store);
}
static inline void sf_linear_weight_grad(struct sf_device *dev, float *dw, const float *g, const float *a, int64_t tokens, int64_t in,
                                         int64_t out) {
  sf_linear_weight_grad_units(dev, dw, g, a, 1.0f, tokens, in, out);
}
/* db [out] = column sums of g, fp32 */
void sf_linear_bias_grad(struct sf_device *dev, float *db, const float *g, int64_t tokens, int64_t out);

#endif
