/* The pattern of what is wrong in a case of the built-in layers. */
#ifndef SF_RUN_PATTERN_H
#define SF_RUN_PATTERN_H

#include "oracles/diagnose/pattern.h"
#include "oracles/judge/judge.h"

/* As sf_pattern_say, of the first finding and of all judged tensors; "" where there is one finding, or no memory. */
void sf_pattern_of(char out[SF_PATTERN_TEXT], const struct sf_case *c, const struct sf_catalog *catalog,
                   const struct sf_judgement *judgement);

#endif
