/* `fuzz --target op:..|plugin:..` and `replay` of a file with a case of an operation. */
#ifndef SF_RUN_OP_COMMAND_H
#define SF_RUN_OP_COMMAND_H

#include "harness/run/commands/command_common.h"

#include <stdbool.h>

/* The target that a command line names, if it is one of operations; NULL: it is not for this command. */
const char *sf_op_target_of_arguments(int argc, char **argv);
int sf_op_fuzz(int argc, char **argv);

/* True for a file that sf_op_replay is for. */
bool sf_op_is_replay(const char *path);
int sf_op_replay(const char *path, const struct sf_common_flags *flags);

/* `list operations`. */
void sf_op_list(void);

#endif
