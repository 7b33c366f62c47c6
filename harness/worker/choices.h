/* A case of a framework as a row: one choice for each field of the worker's description (sf_description_row). */
#ifndef SF_WORKER_CHOICES_H
#define SF_WORKER_CHOICES_H

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

/* The row of a case, complete or not. SF_EINPUT: a member that is not a field, or a value that the field does not offer. */
enum sf_status sf_choices_of_case(int64_t *row, const struct sf_description *description, const json_t *c,
                                  struct sf_error *error) SF_MUST_USE;
/* The case (a new reference): all fields, or only those that are not at their first choice. NULL on no memory. */
json_t *sf_choices_case(const int64_t *row, const struct sf_description *description, bool all);

#endif
