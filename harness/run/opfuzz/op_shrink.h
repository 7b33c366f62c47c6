/* Making a failing case of an operation smaller, its shape first. */
#ifndef SF_RUN_OP_SHRINK_H
#define SF_RUN_OP_SHRINK_H

#include "generators/shrink.h"
#include "harness/run/opfuzz/op_target.h"

/* As sf_shrink_run. in: a case of the target. is_slow: a trial of it takes its whole deadline, so that few are made. */
enum sf_status sf_op_shrink(struct sf_case *out, const struct sf_case *in, const struct sf_op_target *target, bool is_slow,
                            bool (*still_fails)(void *ctx, const struct sf_case *c), void *ctx, int64_t budget,
                            struct sf_shrink_report *report) SF_MUST_USE;

#endif
