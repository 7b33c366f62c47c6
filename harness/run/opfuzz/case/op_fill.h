/* Inputs of a case: a function of the case's seed, the operand and the element's row and column, so that a smaller shape keeps its values.
 */
#ifndef SF_RUN_OP_FILL_H
#define SF_RUN_OP_FILL_H

#include "harness/run/opfuzz/case/op_case.h"

/* Fills view->at[operand], on the grid of the case's inputs where the operand is a number of it. */
void sf_op_fill(struct sf_op_view *view, int32_t operand, const struct sf_op_case *c);

#endif
