/* Witnesses of a diagnosis: the same case with other seeds. In a small case a supposed mistake ("as if ..") may fit by chance. */
#ifndef SF_RUN_WITNESS_H
#define SF_RUN_WITNESS_H

#include "harness/run/process/pool.h"

/* Has the case of a diagnosed job run with other seeds, if its diagnosis is a supposition of the built-in layers on simulated ranks. The
 * diagnosis stays if those that fail in the same way confirm it. Else another one that two of them agree on takes its place; or it becomes
 * UNKNOWN, and its text says what fits this seed. Without a witness nothing changes. */
void sf_diagnosis_confirm(struct sf_outcome *outcome, const struct sf_pool_options *options, const struct sf_job *job);
/* sf_pool_run_one of the job, with a diagnosis that is confirmed so. */
enum sf_status sf_diagnose_one(const struct sf_pool_options *options, struct sf_job *job, struct sf_job_result *result) SF_MUST_USE;

#endif
