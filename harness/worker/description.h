/* What a framework's worker says of itself: the fields that its cases have, and what it does not support (targets/worker.md, describe).
 *
 * Cases are JSON objects. A field's name is its path: "layout.tp" is the member tp of the object layout. */
#ifndef SF_WORKER_DESCRIPTION_H
#define SF_WORKER_DESCRIPTION_H

#include "harness/space/rules.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct sf_description;
enum { SF_DESCRIPTION_FIELDS_MAX = 512, SF_DESCRIPTION_RANKS_MAX = 256 };

/* From a worker's answer to `describe`. Strict: unknown keys, fields without choices, and rules about fields that do not exist are refused
 * with one line that names the place. Copies what it keeps. SF_EINPUT, SF_ENOMEM. */
enum sf_status sf_description_create(struct sf_description **out, const json_t *value, struct sf_error *error) SF_MUST_USE;
void sf_description_destroy(struct sf_description *description);           /* takes NULL */
const char *sf_description_name(const struct sf_description *description); /* of the framework; belongs to the description */
/* One line that the user should read before a campaign, or NULL. Belongs to the description. */
const char *sf_description_note(const struct sf_description *description);
/* Perturbed runs that the worker asks for, to be judged by. */
int32_t sf_description_draws(const struct sf_description *description);
bool sf_description_has_scripts(const struct sf_description *description); /* the worker answers `script` */
/* Its runs can note the operations behind a tensor, and those of the reference say which one went wrong. */
bool sf_description_has_operations(const struct sf_description *description);
/* In one case of how many a campaign leaves the field's first choice; 0: not said. */
int32_t sf_description_field_one_in(const struct sf_description *description, int32_t field);
bool sf_description_simulates(const struct sf_description *description);   /* one process can stand for all ranks of a candidate */
bool sf_description_is_anchored(const struct sf_description *description); /* its reference can be given a candidate's own tensors */
/* Whether its ranks can compute there: "cpu", "cuda". */
bool sf_description_has_device(const struct sf_description *description, const char *name);

/* Fields, counted from 0 in the order in which the worker gave them. */
int32_t sf_description_field_count(const struct sf_description *description);
/* SF_EINPUT with a line: there is no such field, and which one may be meant. */
enum sf_status sf_description_unknown(const struct sf_description *description, const char *path, struct sf_error *error) SF_MUST_USE;
/* "model.heads"; belongs to the description. */
const char *sf_description_field_path(const struct sf_description *description, int32_t field);
/* Whether the field says only who computes what. */
bool sf_description_field_is_layout(const struct sf_description *description, int32_t field);
bool sf_description_field_has_ranks(const struct sf_description *description, int32_t field); /* the number of ranks depends on it */
int64_t sf_description_choice_count(const struct sf_description *description, int32_t field); /* at least 1 */
/* The value of a choice of the field; 0 is the plainest. A new reference, NULL on no memory. */
json_t *sf_description_choice(const struct sf_description *description, int32_t field, int64_t choice);
/* The same as compact JSON, as people write numbers. The caller frees it with free; NULL on no memory. */
char *sf_description_choice_text(const struct sf_description *description, int32_t field, int64_t choice);
/* Rules, counted from 0: what the worker does not support, and the reason in its words, which belongs to the description. */
int32_t sf_description_rule_count(const struct sf_description *description);
const char *sf_description_rule_reason(const struct sf_description *description, int32_t rule);
/* Place of the field with this path, and of the choice with this value; -1 when there is none. */
int32_t sf_description_find_field(const struct sf_description *description, const char *path);
int64_t sf_description_find_choice(const struct sf_description *description, int32_t field, const json_t *value);

/* A case as a row: the place of each field's choice, 0 for the plainest; behind them the case's own seed, and limits that are no part of a
 * case. */
enum sf_description_limit {
  SF_DESCRIPTION_SEED,
  SF_DESCRIPTION_RANKS_LEAST, /* how many ranks a case has at least, and at most */
  SF_DESCRIPTION_RANKS_MOST,
  SF_DESCRIPTION_NEEDS, /* 1: a field whose needs do not all hold is plain, as it changes nothing; 0: it need not be */
  SF_DESCRIPTION_LIMITS
};
int32_t sf_description_limit(const struct sf_description *description, enum sf_description_limit limit); /* its place in a row */
/* What is refused, what fields need, and the limits of ranks, as rules over rows. The first sf_description_rule_count are the refusals. */
const struct sf_rules *sf_description_rules(const struct sf_description *description);
/* The row of a case, complete or not: SF_SPACE_FIELDS_MAX numbers; seed 0, limits as wide as they can be. SF_EINPUT: a member that is not a
 * field, or a value that the field does not offer. */
enum sf_status sf_description_row(int64_t *row, const struct sf_description *description, const json_t *c,
                                  struct sf_error *error) SF_MUST_USE;
enum sf_description_part { SF_DESCRIPTION_ALL, SF_DESCRIPTION_SET, SF_DESCRIPTION_FUNCTION };
/* The case of a row, fields in the description's order (a new reference): all, those that are not plain, or those of the function. NULL on
 * no memory. */
json_t *sf_description_case(const int64_t *row, const struct sf_description *description, enum sf_description_part part);
/* The case with each left-out field at its first choice. As sf_description_row fails, and SF_ENOMEM. */
enum sf_status sf_description_complete(json_t **out, const struct sf_description *description, const json_t *c,
                                       struct sf_error *error) SF_MUST_USE;
/* Ranks of a complete case's candidate run: its field "ranks", or the product of the fields that the description names instead. */
int32_t sf_description_ranks(const struct sf_description *description, const json_t *complete);
int32_t sf_description_ranks_at(const struct sf_description *description, const int64_t *row); /* the same of a row */
/* Why the worker does not support a complete case; NULL when it does. The text belongs to the description. */
const char *sf_description_refusal(const struct sf_description *description, const json_t *complete);
/* A complete case without its layout fields, as a text: cases with equal texts share one reference. The caller frees it with free; NULL on
 * no memory. */
char *sf_description_function_text(const struct sf_description *description, const json_t *complete);

#endif
