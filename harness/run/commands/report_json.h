/* The JSON objects that --json prints on the last line of stdout. Keys are documented in harness/docs/reference.md. */
#ifndef SF_RUN_REPORT_JSON_H
#define SF_RUN_REPORT_JSON_H

#include "harness/run/campaign/signatures.h"
#include "harness/run/gate/gate.h"
#include "harness/run/power/power.h"
#include "harness/run/power/power_mutants.h"

#include <jansson.h>

/* Each returns a new object, or NULL when memory is out. */
json_t *sf_json_of_outcome(const struct sf_outcome *outcome, const struct sf_case *c);
/* signatures: NULL, or the member `by_signature`. */
json_t *sf_json_of_campaign(const struct sf_campaign_result *result, const struct sf_signatures *signatures);
json_t *sf_json_of_power(const struct sf_power_options *options, const struct sf_power_result *result);
/* The searches for mutants, and how many met each fate, for each kind and in all. */
json_t *sf_json_of_mutants(const struct sf_mutant_power_result *result);
json_t *sf_json_of_gate(const struct sf_gate_result *result);
/* What `shrink` found; min with `expect`. */
json_t *sf_json_of_shrink(const struct sf_job_result *result, const struct sf_case *min, const char *min_path);
/* There was nothing to shrink ("PASS" and the like), or it did not fail twice in the same way ("flaky"). */
json_t *sf_json_of_no_shrink(const char *verdict, int32_t evaluations);
json_t *sf_json_of_case(const struct sf_case *c);

/* {class, text, left}; null where there is no diagnosis. */
json_t *sf_json_diagnosis(const struct sf_diagnosis *diagnosis);

#endif
