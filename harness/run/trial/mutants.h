/* Mutants of the built-in layers: which there are, by the labels' table, and what a case's `plant` names. */
#ifndef SF_RUN_MUTANTS_H
#define SF_RUN_MUTANTS_H

#include "harness/comm/mutate.h"
#include "targets/builtin/faults/plants.h"

/* Number of mutants, and the name of one, which must be below it: "mutant:LABEL:KIND", in the order of the labels' table, then of the
 * kinds. */
int32_t sf_mutant_count(void);
void sf_mutant_name(char out[SF_NAME_TEXT], int32_t index);

/* The mutation of a name, its label looked up. SF_EINPUT: no such label, or a kind that means nothing there. */
enum sf_status sf_mutant_find(struct sf_mutation *out, const char *name, struct sf_error *error) SF_MUST_USE;

/* The faults of a list of ids with commas between, as bits SF_FAULT_BIT; "" has none. SF_EINPUT: one of them is no plant's. */
enum sf_status sf_plants_read(uint64_t *faults, const char *ids, struct sf_error *error) SF_MUST_USE;
/* Whether `id` names something that can be planted: a fault, several with commas between, or a mutant. The text of SF_EINPUT says why
 * not. */
enum sf_status sf_plant_id_check(const char *id, struct sf_error *error) SF_MUST_USE;

#endif
