/* Shrinking: from a failing case to the smallest that still fails. The passes of its table propose candidates, one loop tries them.
 * Everything is a function of the case alone: no chance, no time. */
#ifndef SF_GENERATORS_SHRINK_H
#define SF_GENERATORS_SHRINK_H

#include "generators/table.h"

/* Step `step` (from 0) of a pass of the table, applied to `in`: a pure function of these. False when the pass has no such step for this
 * case (later steps neither). *usable says whether *out was written: a valid case that is simpler than `in`, so that shrinking ends. What a
 * step does not name keeps its value, except that fields follow that a rule binds to it (heads and kv_heads, layers and pp_first_layers,
 * ...). */
bool sf_shrink_candidate(const struct sf_table *table, struct sf_case *out, bool *usable, const struct sf_case *in, int pass, int64_t step);

/* Makes of c the case that lacks what `trigger` needs: fields that are not plain there become plain, and those follow that rules tie to
 * them. False: the table has no such case. */
bool sf_shrink_without(const struct sf_table *table, struct sf_case *out, const struct sf_case *c, const struct sf_case *trigger);

struct sf_shrink_report {
  int64_t evaluations; /* candidates that the caller tried */
  int64_t accepted;    /* of those, still failing */
  bool minimal;        /* no step of any pass leads to a simpler failing case; false: the budget ran out */
};

/* in: a valid case that fails. Tries candidates, none of them twice, until none is left or `budget` were tried. *out is the smallest
 * failing case found, written on success alone; report may be NULL. SF_EINPUT when in is not valid; SF_ENOMEM. */
enum sf_status sf_shrink_run(struct sf_case *out, const struct sf_case *in, const struct sf_table *table,
                             bool (*still_fails)(void *ctx, const struct sf_case *c), void *ctx, int64_t budget,
                             struct sf_shrink_report *report) SF_MUST_USE;

#endif
