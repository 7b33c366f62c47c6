/* One campaign over all processes of a launched job (base/system/launched.h), on one machine or many. Its cases are cut into shares, as
 * many as the first job has processes. Each share has a store of its own beside the campaign's: "FILE.2-of-4". A later job that goes on
 * with FILE may have another number of processes: they divide the same shares among them. When all have ended, the first one joins the
 * stores into FILE and runs what a process that was lost has left over. The processes send each other nothing: they meet in the file
 * system. */
#ifndef SF_RUN_JOB_CAMPAIGN_H
#define SF_RUN_JOB_CAMPAIGN_H

#include "harness/run/campaign/campaign.h"

/* The indices that follow each other in a process's share: few, so that shares are alike, and whole sets of layouts of one model. */
int64_t sf_job_campaign_block(const struct sf_campaign_options *options);
/* How many shares an earlier job has cut the campaign of FILE into; 0: none has. */
int32_t sf_job_campaign_shares(const char *path);

struct sf_job_member {
  int32_t process, processes; /* this one, counted from 0, and all of the job */
  int32_t lost;               /* out, on the first process: how many shares of others have not ended */
};
/* Runs this process's shares. options: of the campaign, with share_count; store_path is FILE. On the first process both are the whole
 * campaign's afterwards, and so is *result; on the others, and after a stop, *result is that of the share that ran last. Fails as
 * sf_campaign_run and sf_store_merge. */
enum sf_status sf_job_campaign_run(struct sf_campaign_options *options, struct sf_job_member *job, struct sf_campaign_result *result,
                                   struct sf_error *error) SF_MUST_USE;

#endif
