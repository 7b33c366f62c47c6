/* Shrinking: from a failing case to the smallest that still fails. Passes propose candidates, one loop tries them, whatever is fuzzed.
 * Everything is a function of the case alone: no chance, no time. */
#ifndef SF_GENERATORS_SHRINK_H
#define SF_GENERATORS_SHRINK_H

#include "generators/codec.h"

/* Passes, from big steps to small ones. Plain data; whoever makes it keeps what ctx points to. */
struct sf_shrink_passes {
  int count;
  /* Step `step` (from 0) of a pass (below the count), applied to `in`: a pure function of these. False when the pass has no such step for
   * this case (later steps neither). *usable says whether *out was written: a valid case that is simpler than `in`, so that shrinking
   * ends. */
  bool (*candidate)(const void *ctx, struct sf_case *out, bool *usable, const struct sf_case *in, int pass, int64_t step);
  const void *ctx;
};

/* Of the built-in layers, borrows space: schedule, the smallest case of all, axes, pairs, groups of fields (halves, quarters, ..., single
 * fields), layers and counts, sizes, features, seed. Fields that space sets keep to it; what a step does not name keeps its value, except
 * that fields bound to it by a rule (heads and kv_heads, layers and pp_first_layers, ...) follow. */
struct sf_shrink_passes sf_shrink_passes_of_layers(const struct sf_space *space);

/* A step of a pass over rows: fills *edit, which keeps all fields. *usable: false when this step does nothing. Returns false when there is
 * no such step. */
typedef bool sf_shrink_pass(struct sf_edit *edit, bool *usable, const int64_t *row, const struct sf_table *table, int64_t step);
/* The candidate of a step, for `candidate` of passes: fields that rules tie to the edited ones follow, and the row has to be simpler. */
bool sf_shrink_step(struct sf_case *out, bool *usable, const struct sf_case *in, const struct sf_table *table, sf_shrink_pass *pass,
                    int64_t step);
/* Delta debugging: resets all of these fields (step 0), each half (1-2), each quarter (3-6), ... each single field. Returns as a pass. */
bool sf_shrink_groups(struct sf_edit *edit, bool *usable, const int32_t *fields, int32_t count, int64_t step);
/* Lowers these fields one by one: to the simplest value, half way to it, one less, and if they are no sizes to the second simplest (for a
 * choice often "on", where the simplest is "off"). Returns as a pass. */
bool sf_shrink_lower(struct sf_edit *edit, bool *usable, const int64_t *row, const struct sf_table *table, const int32_t *fields,
                     int32_t count, int64_t step, bool are_sizes);

/* Whether a is simpler than b: fewer ranks, then layers, then fields that are not at their simplest, then smaller sizes. A total
 * order on what a case of the built-in layers computes and on its layout, so that shrinking ends. */
bool sf_shrink_is_simpler(const struct sf_case *a, const struct sf_case *b);

struct sf_shrink_report {
  int64_t evaluations; /* candidates that the caller tried */
  int64_t accepted;    /* of those, still failing */
  bool minimal;        /* no step of any pass leads to a simpler failing case; false: the budget ran out */
};

/* in: a valid case that fails. Tries candidates, none of them twice, until none is left or `budget` were tried. *out is the smallest
 * failing case found, written on success alone; report may be NULL. SF_EINPUT when in is not valid; SF_ENOMEM. */
enum sf_status sf_shrink_run(struct sf_case *out, const struct sf_case *in, struct sf_shrink_passes passes,
                             bool (*still_fails)(void *ctx, const struct sf_case *c), void *ctx, int64_t budget,
                             struct sf_shrink_report *report) SF_MUST_USE;

#endif
