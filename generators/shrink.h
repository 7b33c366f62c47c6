/* Shrinking: from a failing case to the smallest that still fails. Passes propose candidates, a loop that the caller drives
 * tries them. Everything is a function of the case alone: no chance, no time. */
#ifndef SF_GENERATORS_SHRINK_H
#define SF_GENERATORS_SHRINK_H

#include "generators/codec.h"

/* --- passes ---------------------------------------------------------------------------------------------------- */

/* From big steps to small ones: schedule, the smallest case of all, axes, pairs, groups of fields (halves, quarters, ..., single
 * fields), layers and counts, sizes, features, seed. */
int sf_shrink_pass_count(void);
const char *sf_shrink_pass_name(int pass); /* pass below the count */

/* Step `step` of a pass, applied to `in`. False when the pass has no such step for this case (later steps neither). *usable says
 * whether *out was written: a valid case that is simpler than `in`. Fields that space sets keep to it; what a step does not name
 * keeps its value, except that fields bound to it by a rule (heads and kv_heads, layers and pp_first_layers, ...) follow. */
bool sf_shrink_candidate(struct sf_case *out, bool *usable, const struct sf_case *in, const struct sf_space *space, int pass, int64_t step);

/* Whether a is simpler than b: fewer ranks, then layers, then fields that are not at their simplest, then smaller sizes. A total
 * order on what a case computes and on its layout, so that shrinking ends. */
bool sf_shrink_is_simpler(const struct sf_case *a, const struct sf_case *b);

/* --- the loop -------------------------------------------------------------------------------------------------- */

struct sf_shrink; /* owns the set of cases that were tried */

struct sf_shrink_report {
  int64_t evaluations; /* candidates that the caller tried */
  int64_t accepted;    /* of those, still failing */
  bool minimal;        /* no step of any pass leads to a simpler failing case; false: the budget ran out */
  int32_t pass;        /* where the loop stands (or stopped) */
  int64_t step;
  bool progress; /* something was accepted since the present round of passes began */
};

/* in: a valid case that fails. Copies its arguments. A report of an earlier run with the case it ended with resumes there:
 * resume may be NULL. SF_EINPUT when in is not valid. */
enum sf_status sf_shrink_create(struct sf_shrink **out, const struct sf_case *in, const struct sf_space *space,
                                const struct sf_shrink_report *resume, struct sf_error *error) SF_MUST_USE;
/* The next case to try, never one that was tried before. False when the result is minimal (or memory is out: *status). */
bool sf_shrink_next(struct sf_shrink *shrink, struct sf_case *candidate, enum sf_status *status);
/* Whether the candidate that sf_shrink_next gave last still fails. */
void sf_shrink_tell(struct sf_shrink *shrink, bool still_fails);
const struct sf_case *sf_shrink_current(const struct sf_shrink *shrink); /* the smallest failing case so far */
struct sf_shrink_report sf_shrink_report(const struct sf_shrink *shrink); /* so far */
void sf_shrink_destroy(struct sf_shrink *shrink); /* takes NULL */

/* The whole loop: at most `budget` evaluations. *out is the smallest failing case found; report may be NULL. */
enum sf_status sf_shrink_run(struct sf_case *out, const struct sf_case *in, const struct sf_space *space,
                             bool (*still_fails)(void *ctx, const struct sf_case *c), void *ctx, int64_t budget,
                             struct sf_shrink_report *report) SF_MUST_USE;

#endif
