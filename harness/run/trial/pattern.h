/* Which tensors of a case are wrong, as a rule: "all 3 main gradients of biases from step 1 on are wrong". */
#ifndef SF_RUN_PATTERN_H
#define SF_RUN_PATTERN_H

#include "oracles/judge/judge.h"

enum { SF_PATTERN_TEXT = 200 };

/* Says of the kind of the first finding which of its judged tensors are wrong, in a rule that holds for all of these and for no other
 * judged one: parameters that every tp rank holds whole, those that tp cuts, experts, norms, biases, one layer, one class of modules; one
 * step or all from one on, one microbatch. "" where fewer than two are wrong, or no such rule holds. */
void sf_pattern_of(char out[SF_PATTERN_TEXT], const struct sf_case *c, const struct sf_catalog *catalog,
                   const struct sf_judgement *judgement);

#endif
