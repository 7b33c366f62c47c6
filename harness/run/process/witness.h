/* Witnesses of a diagnosis: the same case with other seeds. In a small case a supposed mistake ("as if ..") may fit by chance. */
#ifndef SF_RUN_WITNESS_H
#define SF_RUN_WITNESS_H

#include "harness/run/process/pool.h"

/* Runs the case of a diagnosed job with other seeds. Only suppositions about the built-in layers on simulated ranks are checked so. The
 * witnesses are the runs that fail in the same way. The diagnosis stays if they confirm it. If two of them agree on another diagnosis, that
 * one takes its place; otherwise it becomes UNKNOWN, and its text says which mistake fits this seed. Without a witness nothing changes. */
void sf_diagnosis_confirm(struct sf_outcome *outcome, const struct sf_pool_options *options, const struct sf_job *job);
/* Runs one job as sf_pool_run_one does, diagnoses a finding, and confirms the diagnosis. */
enum sf_status sf_diagnose_one(const struct sf_pool_options *options, struct sf_job *job, struct sf_job_result *result) SF_MUST_USE;

#endif
