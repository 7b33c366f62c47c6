/* A case of a framework as one choice for each field of the worker's description: what is drawn, and what is made smaller. */
#ifndef SF_WORKER_CHOICES_H
#define SF_WORKER_CHOICES_H

#include "harness/worker/description.h"

/* Place of each field's choice; 0 is the plainest. Plain data, for one description. */
struct sf_choices {
  int32_t at[SF_DESCRIPTION_FIELDS_MAX];
};

/* What cases are drawn from: the description's fields, some of them fixed, on at most so many ranks. Borrows the description. */
struct sf_choice_space {
  const struct sf_description *description;
  int32_t ranks_max;
  bool is_fixed[SF_DESCRIPTION_FIELDS_MAX];
  struct sf_choices fixed;
};

/* "PATH=VALUE": VALUE as JSON, or a text that needs no quotes. SF_EINPUT names field and reason. */
enum sf_status sf_choice_space_set(struct sf_choice_space *space, const char *assignment, struct sf_error *error) SF_MUST_USE;

/* The choices of a case, complete or not. SF_EINPUT: a member that is no field, or a value that is none of its choices. */
enum sf_status sf_choices_of_case(struct sf_choices *out, const struct sf_description *description, const json_t *c, struct sf_error *error) SF_MUST_USE;
/* The case (a new reference): all fields, or only those that are not at their first choice. NULL on no memory. */
json_t *sf_choices_case(const struct sf_choices *choices, const struct sf_description *description, bool all);

/* Whether the worker supports the case, as far as its rules say, on at most ranks_max ranks. False on no memory too. */
bool sf_choices_allowed(const struct sf_choices *choices, const struct sf_choice_space *space);

/* Draws what is computed from `function`, who computes it from `layout`: whatever the seeds are, a case of the space. The case is plain but for a drawn
 * share of its fields; on one rank only where nothing else was found. SF_EINPUT when what is fixed is not allowed together. */
enum sf_status sf_choices_draw(struct sf_choices *out, const struct sf_choice_space *space, uint64_t function, uint64_t layout, struct sf_error *error) SF_MUST_USE;

#endif
