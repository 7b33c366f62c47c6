/* Where traces of worker sets meet the oracle of traces (harness/check). */
#ifndef SF_RUN_FRAMEWORK_JUDGE_H
#define SF_RUN_FRAMEWORK_JUDGE_H

#include "harness/run/framework/framework.h"

/* What a failure to read a trace, or to write beside it, says of the case. Takes SF_OK, and does nothing. What is wrong with a trace is
 * wrong with the worker that wrote it: a finding of class protocol. What this machine lacks is not: then the case is inconclusive. Returns
 * SF_OK for these, any other status as it is. error: what happened, and where. */
enum sf_status sf_framework_blame(struct sf_framework_outcome *outcome, const char *run, enum sf_status status,
                                  const struct sf_error *error) SF_MUST_USE;

/* Writes a noise file of the reference. first: more draws will follow if the candidate does not pass by these. *good false, with what
 * sf_framework_blame makes of it in the outcome, when there is none: the traces are not what the format says, or no draw of all has moved
 * anything. */
enum sf_status sf_framework_noise(bool *good, struct sf_framework_outcome *outcome, const char *noise, const char *reference,
                                  const char (*draws)[SF_FRAMEWORK_PATH], int32_t draw_count, bool first,
                                  struct sf_error *error) SF_MUST_USE;
/* The candidate's verdict by these noise levels. *good false, with what sf_framework_blame makes of it in the outcome, when the traces
 * cannot be compared. */
enum sf_status sf_framework_judge(bool *good, struct sf_framework_outcome *outcome, const char *noise, const char *reference,
                                  const char *candidate, struct sf_error *error) SF_MUST_USE;

#endif
