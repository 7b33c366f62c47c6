/* One case run and judged: twice with the same inputs, guards and inputs compared with what they were, outputs with the reference. */
#ifndef SF_RUN_OP_TRIAL_H
#define SF_RUN_OP_TRIAL_H

#include "harness/run/opfuzz/op_memory.h"
#include "harness/run/opfuzz/op_outcome.h"
#include "oracles/diagnose/picture.h"

/* What is under test. returns 0, 1 for a case that is not for it, or another number. */
struct sf_op_runner {
  int (*call)(void *context, const struct sf_op_entry *entry, struct sf_op_memory *memory, const struct sf_op_case *c);
  void *context;
};

/* c: valid for the target, and no larger than the memory's capacity. measure: if the case passes, also fills outcome->error for the
 * operand that is off by most ulps. */
void sf_op_trial_run(struct sf_op_outcome *outcome, struct sf_op_memory *memory, const struct sf_op_runner *runner,
                     const struct sf_op_target *target, const struct sf_op_case *c, bool measure);

/* Draws the wrong output of the trial just run, which memory still holds. False: the finding is about no output's values, or there is
 * none. */
bool sf_op_trial_picture(struct sf_picture *out, const struct sf_op_memory *memory, const struct sf_op_outcome *outcome);

/* "tolerance/norm_fwd/y": what shrinking keeps and findings are counted by. */
void sf_op_signature(char *out, size_t size, const struct sf_op *op, const struct sf_op_outcome *outcome);
#endif
