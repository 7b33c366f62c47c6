/* What joins the fields of a case, as rules (harness/space/rules.h): the one place where they stand. */
#ifndef SF_SPEC_CASE_RULES_H
#define SF_SPEC_CASE_RULES_H

#include "harness/space/rules.h"
#include "harness/spec/case.h"

/* A case as a row: number i is the field sf_case_fields[i], 0 for a text; behind them stand limits that are no part of a case. */
enum sf_case_limit {
  SF_LIMIT_RANKS,                                           /* how many ranks a world may have */
  SF_LIMIT_FORMATS,                                         /* one for each enum sf_compute: 1 where it may be computed with */
  SF_LIMIT_UNTRAINED = SF_LIMIT_FORMATS + SF_COMPUTE_COUNT, /* 1 where every parameter may be frozen */
  SF_LIMIT_COUNT
};
enum { SF_CASE_RANKS_MAX = 65536 };
/* The limit's place in a row. */
static inline int32_t sf_case_row_limit(enum sf_case_limit limit) { return sf_case_field_count + (int32_t)limit; }
/* The rules over such rows; made once, for all threads. */
const struct sf_rules *sf_case_rules(void);
/* row: SF_SPACE_FIELDS_MAX numbers; the limits are as wide as a file may have them. */
void sf_case_row(int64_t *row, const struct sf_case *c);

#endif
