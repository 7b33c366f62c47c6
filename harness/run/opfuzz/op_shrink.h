/* Making a failing case of an operation smaller, its shape first. */
#ifndef SF_RUN_OP_SHRINK_H
#define SF_RUN_OP_SHRINK_H

#include "generators/shrink.h"
#include "harness/run/opfuzz/op_target.h"

/* Candidates for a case whose trial takes its whole deadline. */
enum { SF_OP_SLOW_BUDGET = 12 };

struct sf_op_shrinking {
  const struct sf_op_target *target; /* borrowed; the cases are of it */
  bool is_slow;                      /* a trial takes its whole deadline, so that few are made */
};
/* For sf_shrink_run. Borrows `of`. */
struct sf_shrink_passes sf_op_shrink_passes(const struct sf_op_shrinking *of);

#endif
