/* Cases of an operation as a table (generators/table.h), for shrinking: a row has each field's place among its values, 0 for the smallest.
 * They are drawn by sf_op_case_draw, which is faster: a trial takes microseconds. */
#ifndef SF_RUN_OP_TABLE_H
#define SF_RUN_OP_TABLE_H

#include "generators/table.h"
#include "harness/run/opfuzz/op_target.h"

/* Candidates for a case whose trial takes its whole deadline. */
enum { SF_OP_SLOW_BUDGET = 12 };

/* What the table is made from; both borrowed. */
struct sf_op_table {
  const struct sf_op_target *target;
  const struct sf_op_entry *entry;
};
/* is_slow: a trial takes its whole deadline, so a step is not tried again with other seeds. Borrows `of`. */
struct sf_table sf_op_table(const struct sf_op_table *of, bool is_slow);

#endif
