/* Cases of operations, what they showed, operations and targets, for people. */
#ifndef SF_RUN_OP_REPORT_H
#define SF_RUN_OP_REPORT_H

#include "harness/base/bytes.h"
#include "harness/run/opfuzz/op_target.h"

/* "y[0, 3] is 0.5, want 0.25 +- 1e-08 (..)": says in one line what is wrong; "" for an outcome that is not a finding. */
void sf_op_what(char *out, size_t size, const struct sf_op *op, const struct sf_op_outcome *outcome);

/* Lines of a report. c: a valid case of an operation, as it stands in a file. what: as sf_op_what, or another reason of the verdict; "":
 * none. Then the distances of a wrong output, or of one that passed and was measured. */
void sf_op_tell(struct sf_text *out, const struct sf_case *c, const struct sf_op_outcome *outcome, const char *what);
/* The line of the case, and of a finding the inputs of the wrong element and how to have all operands. */
void sf_op_tell_case(struct sf_text *out, const struct sf_case *c, const struct sf_op_outcome *outcome);

/* What the case is. No code of a plugin runs. SF_EINPUT: the operation has no such case; SF_ENOMEM. */
enum sf_status sf_op_describe(struct sf_text *out, const struct sf_case *c, struct sf_error *error) SF_MUST_USE;
/* One line for each operation; with formulas each operand's shape and format, and what is computed. */
void sf_op_list(struct sf_text *out, bool formulas);
/* A line for each operation that the target takes: what it takes of it. */
void sf_op_list_target(struct sf_text *out, const struct sf_op_target *target);
/* Writes the operands of a case, as sf_op_operands_write. */
enum sf_status sf_op_write_operands(const struct sf_case *c, const char *folder, struct sf_error *error) SF_MUST_USE;

#endif
