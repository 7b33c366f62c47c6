/* Inside the tensor room: what exact mode (data.exact) writes where. */
#ifndef SF_TENSOR_EXACT_H
#define SF_TENSOR_EXACT_H

#include "harness/tensor/consistent.h"

/* Makes a fill one of small integers if the case is exact and something that must be exact reads the tensor. */
void sf_fill_make_exact_param(struct sf_fill *fill, const struct sf_catalog *catalog, int32_t param);
void sf_fill_make_exact_trace(struct sf_fill *fill, const struct sf_catalog *catalog, struct sf_trace_id id);

#endif
