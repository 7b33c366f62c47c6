/* What cases of a framework are drawn from. */
#ifndef SF_WORKER_CHOICES_H
#define SF_WORKER_CHOICES_H

#include "harness/worker/description.h"

/* The description's fields, some of them fixed, on at most so many ranks. Borrows the description. */
struct sf_choice_space {
  const struct sf_description *description;
  int32_t ranks_max;
  bool is_fixed[SF_DESCRIPTION_FIELDS_MAX];
  int32_t fixed[SF_DESCRIPTION_FIELDS_MAX]; /* place of the choice */
};

/* "PATH=VALUE": VALUE as JSON, or a text that needs no quotes. SF_EINPUT names field and reason. */
enum sf_status sf_choice_space_set(struct sf_choice_space *space, const char *assignment, struct sf_error *error) SF_MUST_USE;

#endif
