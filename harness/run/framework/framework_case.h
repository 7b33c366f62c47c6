/* Cases of a framework as cases of a campaign: drawn, run and shrunk by the worker's description. */
#ifndef SF_RUN_FRAMEWORK_CASE_H
#define SF_RUN_FRAMEWORK_CASE_H

#include "generators/shrink.h"
#include "harness/run/framework/framework.h"
#include "harness/run/trial/outcome.h"
#include "harness/worker/choice_cover.h"

/* Makes a case of the description's target from choices. SF_EINPUT: too long for a case; SF_ENOMEM. */
enum sf_status sf_framework_case_put(struct sf_case *out, const struct sf_choices *choices, const struct sf_description *description,
                                     int64_t seed, struct sf_error *error) SF_MUST_USE;
enum { SF_FRAMEWORK_LAYOUT_ATTEMPTS = 8 }; /* layouts of one function before another function is drawn */
/* Case `index` of a campaign: cases of one block of `layouts` differ in their layout alone. cover: NULL, or which functions the first
 * blocks have. attempt: another case for the same index, of the same function first, so that its reference serves all the same. Fails as
 * sf_choices_draw. */
enum sf_status sf_framework_case_draw(struct sf_case *out, const struct sf_choice_space *space, const struct sf_choice_cover *cover,
                                      uint64_t seed, int64_t layouts, int64_t index, uint64_t attempt, struct sf_error *error) SF_MUST_USE;

/* Runs a case. Whatever the worker does is an outcome; a fault of the case or of our own machine is outcome->status. */
void sf_framework_trial(struct sf_framework *framework, const struct sf_case *c, struct sf_outcome *outcome);
/* Asks the worker for a stand-alone program that shows a finding; "" when it writes none. */
enum sf_status sf_framework_script(struct sf_framework *framework, char *out, size_t size, const struct sf_case *c,
                                   const struct sf_outcome *outcome, struct sf_error *error) SF_MUST_USE;

/* For sf_shrink_run: fewer ranks, plain choices, then choices nearer to plain ones. Borrows the description. */
struct sf_shrink_passes sf_framework_shrink_passes(const struct sf_description *description);

/* Whether c contains trigger: each member of its object, numbers at least as large, other values equal. */
bool sf_framework_case_contains(const struct sf_case *c, const struct sf_case *trigger);

#endif
