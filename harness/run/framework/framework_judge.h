/* Where traces of worker sets meet the oracle of traces (harness/check). */
#ifndef SF_RUN_FRAMEWORK_JUDGE_H
#define SF_RUN_FRAMEWORK_JUDGE_H

#include "harness/run/framework/framework.h"

/* Writes a noise file of the reference. first: more draws will follow if the candidate does not pass by these. *good false, with a finding of class protocol
 * in the outcome, when the traces are not what the format says, or no draw of all has moved anything. SF_EIO, SF_ENOMEM. */
enum sf_status sf_framework_noise(bool *good, struct sf_framework_outcome *outcome, const char *noise, const char *reference, const char (*draws)[SF_FRAMEWORK_PATH],
                                  int32_t draw_count, bool first, struct sf_error *error) SF_MUST_USE;
/* The candidate's verdict by these noise levels. */
enum sf_status sf_framework_judge(struct sf_framework_outcome *outcome, const char *noise, const char *reference, const char *candidate, struct sf_error *error) SF_MUST_USE;

#endif
