/* Variations of a row: near ones, which share most fields with it, and mixtures of two. Fuzzers that look for what they have not seen
 * change the rows that showed something new. */
#ifndef SF_GENERATORS_VARY_H
#define SF_GENERATORS_VARY_H

#include "generators/table.h"

/* A row of the table that differs from `from`: some fields are drawn again or take a neighbouring value, the whole layout is drawn again,
 * or everything. Fields follow that rules tie to these. False where this draw leads to no row. */
bool sf_vary_row(int64_t *row, const int64_t *from, const struct sf_table *table, struct sf_draw *draw);
/* Some fields of `from` become those of `other`: single ones, or the whole layout. The rest stays as far as rules allow. */
bool sf_vary_mix(int64_t *row, const int64_t *from, const int64_t *other, const struct sf_table *table, struct sf_draw *draw);

#endif
