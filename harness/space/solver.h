/* What rules leave of a row's ranges: whether some row lies in them, and which values a field may still take.
 *
 * A solver keeps, for each field, the range that is left to it, narrowed by what the rules imply, and a witness: a row that lies in the
 * ranges and keeps all rules. To ask for a value is to look for another witness that has it, which is mostly the old one with a few fields
 * changed. The search is complete but for a limit on its steps, which no space that people ask for comes near. */
#ifndef SF_SPACE_SOLVER_H
#define SF_SPACE_SOLVER_H

#include "harness/space/rules.h"

struct sf_range {
  int64_t lo, hi; /* both are in it */
};

/* Plain data: copy by assignment. */
struct sf_solver {
  const struct sf_rules *rules; /* borrowed */
  bool feasible;                /* the witness is one */
  struct sf_range at[SF_SPACE_FIELDS_MAX];
  int64_t witness[SF_SPACE_FIELDS_MAX];
};

/* ranges: one for each field, none empty. Starts from the row that is nearest to the plainest one. */
void sf_solver_init(struct sf_solver *solver, const struct sf_rules *rules, const struct sf_range *ranges);
/* Whether a row has this field within the range, too. False when the solver is not feasible. */
bool sf_solver_allows(struct sf_solver *solver, int32_t field, struct sf_range range);
/* Narrows the field to the range; the same answer, and when it is false the solver is not feasible any more. */
bool sf_solver_narrow(struct sf_solver *solver, int32_t field, struct sf_range range);

#endif
