/* Cases of a framework as a table (generators/table.h), made from what its worker describes. */
#ifndef SF_RUN_FRAMEWORK_TABLE_H
#define SF_RUN_FRAMEWORK_TABLE_H

#include "generators/table.h"
#include "harness/worker/description.h"

/* What cases are drawn from: the description's fields, some of them fixed, on at most so many ranks. Borrows the description. */
struct sf_choice_space {
  const struct sf_description *description;
  int32_t ranks_max;
  bool is_fixed[SF_DESCRIPTION_FIELDS_MAX];
  int32_t fixed[SF_DESCRIPTION_FIELDS_MAX]; /* place of the choice */
};

/* "PATH=VALUE": VALUE as JSON, or a text that needs no quotes. SF_EINPUT names field and reason. */
enum sf_status sf_choice_space_set(struct sf_choice_space *space, const char *assignment, struct sf_error *error) SF_MUST_USE;

/* Cases of the space on more than one rank, or on one where it has no others. A field whose needs do not hold is plain. Borrows the space.
 */
struct sf_table sf_framework_table(const struct sf_choice_space *space);

#endif
