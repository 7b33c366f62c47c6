/* Cases of a framework as cases of a campaign: run, and looked up among triggers. */
#ifndef SF_RUN_FRAMEWORK_CASE_H
#define SF_RUN_FRAMEWORK_CASE_H

#include "harness/run/framework/framework.h"
#include "harness/run/trial/outcome.h"

/* The case as a worker takes it: with all its fields, and its seed if the worker has a field for one. *out is a new reference. */
enum sf_status sf_framework_case_complete(json_t **out, const struct sf_description *description, const struct sf_case *c,
                                          struct sf_error *error) SF_MUST_USE;
/* Runs a case. Whatever the worker does is an outcome; a fault of the case or of our own machine is outcome->status. */
void sf_framework_trial(struct sf_framework *framework, const struct sf_case *c, struct sf_outcome *outcome);
/* Asks the worker for a stand-alone program that shows a finding; "" when it writes none. */
enum sf_status sf_framework_script(struct sf_framework *framework, char *out, size_t size, const struct sf_case *c,
                                   const struct sf_outcome *outcome, struct sf_error *error) SF_MUST_USE;

/* Whether c contains trigger: each member of its object, numbers at least as large, other values equal. */
bool sf_framework_case_contains(const struct sf_case *c, const struct sf_case *trigger);
/* Whether both are cases of one framework, equal but for mode and seed, that ask for more than a layout. */
bool sf_framework_cases_ask_the_same(const struct sf_case *c, const struct sf_case *other);

#endif
