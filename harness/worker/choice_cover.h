/* Which functions the first blocks of a framework's campaign have, so that pairs of choices meet soon. A table made before the campaign
 * from its seed alone: a resumed campaign goes on with it, and any number of jobs follow it. */
#ifndef SF_WORKER_CHOICE_COVER_H
#define SF_WORKER_CHOICE_COVER_H

#include "harness/worker/choices.h"

struct sf_choice_cover;
/* Each row is the best of some drawn functions: the one with most pairs of choices, of fields that are not at their first one, that no row
 * before has. What is fixed stays so. Ends when rows bring nothing new, or at a limit. As sf_choices_draw fails, and SF_ENOMEM. */
enum sf_status sf_choice_cover_create(struct sf_choice_cover **out, const struct sf_choice_space *space, uint64_t seed,
                                      struct sf_error *error) SF_MUST_USE;
void sf_choice_cover_destroy(struct sf_choice_cover *cover); /* takes NULL */
/* Blocks that have a row: the first ones of the campaign. */
int64_t sf_choice_cover_rows(const struct sf_choice_cover *cover);
/* What sf_choices_draw takes as function, of the row's block. */
uint64_t sf_choice_cover_function(const struct sf_choice_cover *cover, int64_t row);

#endif
