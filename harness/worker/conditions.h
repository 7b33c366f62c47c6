/* Rows of conditions of a worker's description as places of choices: made once, asked for each draw. */
#ifndef SF_WORKER_CONDITIONS_H
#define SF_WORKER_CONDITIONS_H

#include "harness/worker/description.h"

struct sf_condition_table;
enum sf_status sf_condition_table_create(struct sf_condition_table **out) SF_MUST_USE; /* SF_ENOMEM */
void sf_condition_table_destroy(struct sf_condition_table *table); /* takes NULL */
/* The next row: {FIELD: [VALUE, ..]}, checked before, or NULL for a row without conditions. Values that the field does not offer are left
 * out; a condition without any value never holds. SF_ENOMEM. */
enum sf_status sf_condition_table_add(struct sf_condition_table *table, const struct sf_description *description,
                                      const json_t *conditions) SF_MUST_USE;
/* Row `row`, counted from 0 in the order of adding; valid until the next row is added. */
struct sf_conditions sf_condition_table_row(const struct sf_condition_table *table, int32_t row);

#endif
