/* What the commands of operations share. */
#ifndef SF_RUN_OP_COMMAND_SHARED_H
#define SF_RUN_OP_COMMAND_SHARED_H

#include "harness/run/commands/op_command.h"
#include "harness/run/opfuzz/op_trial.h"
#include "harness/run/support/json_out.h"

/* Members of the object that --json prints. */
void sf_op_json_error(struct sf_json_out *json, const struct sf_op_outcome *o);
void sf_op_json_case(struct sf_json_out *json, const struct sf_op_target *target, const struct sf_op_case *c);
/* Prints the object, which it takes; returns code, or 3 when memory ran out. */
int sf_op_json_print(struct sf_json_out *json, int code);

#endif
