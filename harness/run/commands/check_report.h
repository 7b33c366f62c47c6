/* What `shardfuzz check` says of a candidate: as text, as a table, as JSON. */
#ifndef SF_RUN_CHECK_REPORT_H
#define SF_RUN_CHECK_REPORT_H

#include "harness/base/bytes.h"
#include "harness/check/check.h"

#include <jansson.h>
#include <stdio.h>

/* Appends the report for people, several lines. */
void sf_check_append(struct sf_text *out, const struct sf_check_report *report, const struct sf_trace_set *candidate);
/* One line per tensor, in the order of the results. */
void sf_check_table(FILE *to, const struct sf_check_report *report);
/* The candidate's object of --json; NULL when memory is out. */
json_t *sf_json_of_check(const struct sf_check_report *report, const struct sf_trace_set *candidate);

#endif
