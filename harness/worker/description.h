/* What a framework's worker says of itself: the fields that its cases have, and what it does not support (targets/worker.md, describe).
 *
 * Cases are JSON objects. A field's name is its path: "layout.tp" is the member tp of the object layout. */
#ifndef SF_WORKER_DESCRIPTION_H
#define SF_WORKER_DESCRIPTION_H

#include "harness/base/status.h"

#include <jansson.h>
#include <stdint.h>

struct sf_description;

/* From the value that a worker answered describe with. Strict: unknown keys, fields without choices, rules about fields that do not exist are refused with
 * one line that names the place. Copies what it keeps. SF_EINPUT, SF_ENOMEM. */
enum sf_status sf_description_create(struct sf_description **out, const json_t *value, struct sf_error *error) SF_MUST_USE;
void sf_description_destroy(struct sf_description *description); /* takes NULL */
const char *sf_description_name(const struct sf_description *description);
int32_t sf_description_draws(const struct sf_description *description); /* perturbed runs that the worker wants to be judged by */

/* The case with each left-out field at its first choice, fields in the description's order (a new reference). SF_EINPUT: a member that is no field,
 * or a value that is none of its choices; SF_ENOMEM. */
enum sf_status sf_description_complete(json_t **out, const struct sf_description *description, const json_t *c, struct sf_error *error) SF_MUST_USE;
/* Ranks of a complete case's candidate run: its field "ranks". */
int32_t sf_description_ranks(const json_t *complete);
/* Why the worker does not support a complete case; NULL when it does. The text belongs to the description. */
const char *sf_description_refusal(const struct sf_description *description, const json_t *complete);
/* A complete case without the fields that only say who computes what, as a text: cases with equal texts have one reference. To be freed with
 * free; NULL on no memory. */
char *sf_description_function_text(const struct sf_description *description, const json_t *complete);

#endif
