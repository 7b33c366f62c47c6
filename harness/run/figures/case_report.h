/* The report of one case: what it showed, as texts and as figures. */
#ifndef SF_RUN_CASE_REPORT_H
#define SF_RUN_CASE_REPORT_H

#include "harness/run/campaign/finding_files.h"
#include "harness/run/evidence/evidence.h"
#include "harness/run/report/report.h"

/* Lets a process of its own run the case of a job, diagnose what it finds, and leave evidence. Of the job the case, the key of the culprit
 * to tell of (shrink_key; "": the one that the case expects) and the deadline are looked at. outcome: what came of it. Fails as
 * sf_pool_run_one, with a line that says why; a lack of evidence is no failure. evidence: zeroed. */
enum sf_status sf_case_show(struct sf_evidence *evidence, struct sf_outcome *outcome, struct sf_job *job,
                            const struct sf_pool_options *pool, struct sf_error *error) SF_MUST_USE;

/* Of a finding in a tensor that a launched set of ranks showed, which keep what they saw to themselves: lets simulated ranks run the job,
 * which must diagnose, and takes their evidence if they fail in the same way. Nothing happens to other outcomes. */
void sf_case_show_simulated(struct sf_evidence *evidence, const struct sf_outcome *outcome, const struct sf_job *job,
                            const struct sf_pool_options *pool);

/* What is told of a case beside its outcome. */
struct sf_case_told {
  const char *name;                   /* the heading: a signature, or the path */
  const char *path;                   /* of its file */
  const struct sf_replay_way *way;    /* NULL, or what a replay needs beside it */
  const char *text;                   /* the report for people */
  const struct sf_evidence *evidence; /* NULL: no figures */
  struct sf_shrunk_texts shrunk;
};
/* Fills a report that has a title with the one item that the case is. One that could not be judged counts as an error, not as a pass. */
void sf_case_report(struct sf_report *report, const struct sf_case *c, const struct sf_outcome *outcome, const struct sf_case_told *told);

#endif
