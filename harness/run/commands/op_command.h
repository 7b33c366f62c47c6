/* Operations on the command line: `fuzz --target op:..|plugin:..`, and what is done with a file that has a case of one. */
#ifndef SF_RUN_OP_COMMAND_H
#define SF_RUN_OP_COMMAND_H

#include "harness/run/commands/command_common.h"

#include <stdbool.h>

/* Whether a target's name is "op:NAME" or a plugin that declares no layers and no model. */
bool sf_op_is_target(const char *target);
/* The target that a command line names, if it is one of operations; NULL: it is not for this command. */
const char *sf_op_target_of_arguments(int argc, char **argv);
int sf_op_fuzz(int argc, char **argv);

/* True for a file with a case of an operation, which these are for. All return the exit code. */
bool sf_op_is_case_file(const char *path);
/* `replay`: flags->target takes the place of the file's. trace: the folder that operands are written to, or NULL. */
int sf_op_replay(const char *path, const struct sf_common_flags *flags, const char *trace);
/* `shrink`: min is written; flags->shrink_budget 0: the default. */
int sf_op_shrink_file(const char *path, const char *min, const struct sf_common_flags *flags);

/* `describe`: what the case is. No code of a plugin runs. */
int sf_op_describe_file(const char *path);

/* `list operations`: one line each; with formulas each operand's shape and format, and what is computed. */
void sf_op_list(bool formulas);
/* `list features` and `list operations` of a target of operations: what it takes of each; not shown, only whether there is such a target.
 */
int sf_op_list_target(const char *target, bool shown);

#endif
