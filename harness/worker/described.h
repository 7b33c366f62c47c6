/* What a description refuses and needs, as rules between the fields of a row (harness/space/rules.h). A row has a place among its choices
 * for each field; behind them stand the case's seed and limits that are no part of a case. */
#ifndef SF_WORKER_DESCRIBED_H
#define SF_WORKER_DESCRIBED_H

#include "harness/worker/description.h"

struct sf_described;
/* refuses: the description's list, or NULL; needs: an object for each field, or NULL. Both checked before. SF_EINPUT: more rules than a
 * table takes; SF_ENOMEM. */
enum sf_status sf_described_create(struct sf_described **out, const struct sf_description *description, const json_t *refuses,
                                   const json_t *const *needs, struct sf_error *error) SF_MUST_USE;
void sf_described_destroy(struct sf_described *described); /* takes NULL */
/* The first rules are the refusals, in their order. */
const struct sf_rules *sf_described_rules(const struct sf_described *described);
/* What the fields that say how many ranks there are multiply to, at most SF_DESCRIPTION_RANKS_MAX + 1. */
int32_t sf_described_ranks(const struct sf_described *described, const int64_t *row);

#endif
