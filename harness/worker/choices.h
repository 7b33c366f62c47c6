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

/* The choices of a case, complete or not. SF_EINPUT: a member that is not a field, or a value that the field does not offer. */
enum sf_status sf_choices_of_case(struct sf_choices *out, const struct sf_description *description, const json_t *c,
                                  struct sf_error *error) SF_MUST_USE;
/* The case (a new reference): all fields, or only those that are not at their first choice. NULL on no memory. */
json_t *sf_choices_case(const struct sf_choices *choices, const struct sf_description *description, bool all);

/* Whether the worker supports the case, as far as its rules say, on at most ranks_max ranks. */
bool sf_choices_allowed(const struct sf_choices *choices, const struct sf_choice_space *space);

/* Draws a case of the space, whatever the numbers are: what is computed from `function`; who computes it from `function`, `place` (among
 * the function's layouts) and `redraw`. It is on one rank only where nothing else was found. Fields that need each other are drawn
 * together, and most groups of them stay plain (swarm testing). A case that a rule refuses is mended, not thrown away. Neighbouring places
 * begin with different axes. SF_EINPUT when the fixed fields are not allowed together. */
enum sf_status sf_choices_draw(struct sf_choices *out, const struct sf_choice_space *space, uint64_t function, int64_t place,
                               uint64_t redraw, struct sf_error *error) SF_MUST_USE;
/* A bit for each field that decides the number of ranks and is not fixed, in the fields' order: whether it can leave one rank for this
 * function. */
uint64_t sf_choices_axes(const struct sf_choices *function, const struct sf_choice_space *space);
/* How many of the groups the function leaves plain: its last two bits, 0 is most, 3 fewest. */
enum { SF_CHOICES_DENSITIES = 4 };

#endif
