/* Making a failing case of an operation smaller, its shape first. */
#ifndef SF_RUN_OP_SHRINK_H
#define SF_RUN_OP_SHRINK_H

#include "harness/run/opfuzz/op_worker.h"

struct sf_op_shrunk {
  struct sf_op_case c;
  struct sf_op_outcome outcome;
  int64_t trials;
  bool again;   /* c failed alike when it was run again; else nothing was tried */
  bool minimal; /* else the budget ran out, or it was stopped */
};

/* The smallest case found that fails with the same class in the same operand. c must fail; it is run once to see how. A finding that does
 * not show again, or that was stopped before, comes back as it is, with its outcome; stopped later (sf_op_pool_options), as far as it came.
 */
enum sf_status sf_op_shrink(struct sf_op_shrunk *out, struct sf_op_worker *worker, const struct sf_op_target *target,
                            const struct sf_op_case *c, const struct sf_op_outcome *outcome, int64_t budget,
                            struct sf_error *error) SF_MUST_USE;

#endif
