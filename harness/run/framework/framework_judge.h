/* Where traces of worker sets meet the oracle of traces (harness/check). */
#ifndef SF_RUN_FRAMEWORK_JUDGE_H
#define SF_RUN_FRAMEWORK_JUDGE_H

#include "harness/check/check.h"
#include "harness/run/framework/framework.h"

/* Turns a failure to read a trace, or to write beside it, into an outcome. A broken trace is the fault of the worker that wrote it: a
 * finding of class protocol. Where this machine lacks something the case is inconclusive. Returns SF_OK for these and for SF_OK, any other
 * status as it is. error: what happened, and where. */
enum sf_status sf_framework_blame(struct sf_framework_outcome *outcome, const char *run, enum sf_status status,
                                  const struct sf_error *error) SF_MUST_USE;

/* A culprit of a judged trace, without key and signature. SF_ENOMEM. */
enum sf_status sf_framework_culprit(struct sf_culprit *out, const struct sf_check_report *report, int32_t which) SF_MUST_USE;
/* Writes a noise file of the reference. first: more draws will follow if the candidate does not pass by these. *distinct: how many
 * of the draws moved anything. *good is false when there is no noise file: the traces break the format, or no draw moved anything; the
 * outcome then holds what sf_framework_blame makes of that. */
enum sf_status sf_framework_noise(bool *good, struct sf_framework_outcome *outcome, const char *noise, const char *reference,
                                  const char (*draws)[SF_FRAMEWORK_PATH], int32_t draw_count, bool first, int32_t *distinct,
                                  struct sf_error *error) SF_MUST_USE;
/* Judges the candidate by these noise levels. *good is false when the traces cannot be compared; the outcome then holds what
 * sf_framework_blame makes of that. *margin: as sf_check_report_margin gives it. */
enum sf_status sf_framework_judge(bool *good, double *margin, struct sf_framework_outcome *outcome, const char *noise,
                                  const char *reference, const char *candidate, const struct sf_suppositions *supposed,
                                  struct sf_error *error) SF_MUST_USE;

#endif
