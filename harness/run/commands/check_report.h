/* What `shardfuzz check` says of a candidate: as text, as a table, as JSON. */
#ifndef SF_RUN_CHECK_REPORT_H
#define SF_RUN_CHECK_REPORT_H

#include "harness/check/check.h"
#include "harness/run/support/json_out.h"

#include <stdio.h>

/* Appends the report for people, several lines. */
void sf_check_append(struct sf_text *out, const struct sf_check_report *report, const struct sf_trace_set *candidate);
/* One line per tensor, in the order of the results. */
void sf_check_table(FILE *to, const struct sf_check_report *report);
/* Adds a member {class, text, left}; null where there is no diagnosis. */
void sf_json_diagnosis(struct sf_json_out *json, const char *key, const struct sf_diagnosis *diagnosis);
/* Appends the candidate's object to the array that is open. */
void sf_check_json(struct sf_json_out *json, const struct sf_check_report *report, const struct sf_trace_set *candidate);

#endif
