/* The table of every tensor compared, in execution order. */
#ifndef SF_RUN_TABLE_H
#define SF_RUN_TABLE_H

#include "oracles/judge/judge.h"

#include <stdio.h>

/* One line per tensor: id, shape, norm, noise level, error / noise of the tensor and of its worst row, state. */
void sf_table_print(FILE *to, const struct sf_catalog *catalog, const struct sf_judgement *judgement);

#endif
