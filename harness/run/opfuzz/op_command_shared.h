/* What the commands of operations share. */
#ifndef SF_RUN_OP_COMMAND_SHARED_H
#define SF_RUN_OP_COMMAND_SHARED_H

#include "harness/run/commands/json_out.h"
#include "harness/run/opfuzz/op_command.h"
#include "harness/run/opfuzz/op_worker.h"

/* Trials for shrinking one finding, deadline of one case, and the largest case that a file may hold. */
enum { SF_OP_BUDGET = 20000, SF_OP_DEADLINE_MS = 5000, SF_OP_ELEMENTS_MOST = 1 << 24 };

/* Whose operations they are: a plugin brings its own. SF_EUSAGE; as sf_common_device. */
enum sf_status sf_op_command_device(struct sf_op_pool_options *out, int32_t device, int32_t gemm, const char *target, struct sf_error *error) SF_MUST_USE;

/* Members of the object that --json prints. */
void sf_op_json_error(struct sf_json_out *json, const struct sf_op_outcome *o);
void sf_op_json_case(struct sf_json_out *json, const struct sf_op_target *target, const struct sf_op_case *c);
/* Prints the object, which it takes; returns code, or 3 when memory ran out. */
int sf_op_json_print(struct sf_json_out *json, int code);

#endif
