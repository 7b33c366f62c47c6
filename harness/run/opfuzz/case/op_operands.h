/* The operands of a case, made once more apart from any trial (they are a function of the case alone): for reports, and for people who
 * want to call a kernel with them elsewhere. */
#ifndef SF_RUN_OP_OPERANDS_H
#define SF_RUN_OP_OPERANDS_H

#include "harness/base/bytes.h"
#include "harness/run/opfuzz/case/op_case.h"

struct sf_op_operands {
  struct sf_op_case c;
  struct sf_op_view view; /* dense; points into this struct, which must not move */
  float *dense;
  struct sf_num *want;
};

/* Inputs as a call gets them; c is valid for the target. SF_ENOMEM. */
enum sf_status sf_op_operands_create(struct sf_op_operands *out, const struct sf_op_target *target, const struct sf_op_case *c) SF_MUST_USE;
void sf_op_operands_destroy(struct sf_op_operands *values); /* takes what is zeroed */

/* Appends the inputs of one element of output `operand`: of each input the row or column that it shares with the element, or all of it; of
 * more than eight numbers those beside the element and the largest. */
void sf_op_operands_tell(struct sf_text *out, const struct sf_op_operands *values, int32_t operand, int64_t row, int64_t col);

/* Writes folder/operands.safetensors, and makes the folder: "in.NAME" of what is read, in the format that it is held in (integers as fp64),
 * "want.NAME" of what is written, before it is stored, and "bound.NAME", how far an fp32 computation may be from it: infinite where it is
 * not judged. SF_EIO, SF_ENOMEM. */
enum sf_status sf_op_operands_write(struct sf_op_operands *values, const struct sf_op_target *target, const char *folder,
                                    struct sf_error *error) SF_MUST_USE;

#endif
