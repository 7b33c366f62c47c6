/* Cases of a framework as a table (generators/table.h), made from what its worker describes. */
#ifndef SF_RUN_FRAMEWORK_TABLE_H
#define SF_RUN_FRAMEWORK_TABLE_H

#include "generators/shrink.h"
#include "generators/table.h"
#include "harness/worker/choices.h"

/* Cases of the space on more than one rank, or on one where it has no others. A field whose needs do not hold is plain. Borrows the space.
 */
struct sf_table sf_framework_table(const struct sf_choice_space *space);
/* Makes a case of the description's target. SF_EINPUT: too long for a case; SF_ENOMEM. */
enum sf_status sf_framework_case_put(struct sf_case *out, const int64_t *row, const struct sf_description *description,
                                     struct sf_error *error) SF_MUST_USE;
/* For sf_shrink_run: plain choices, many at once, then one by one, then choices nearer to plain. A choice only ever goes down, and no case
 * has more ranks. Borrows the description. */
struct sf_shrink_passes sf_framework_shrink_passes(const struct sf_description *description);

#endif
