/* One campaign over all processes of a launched job (base/system/launched.h), on one machine or many. Each runs its share of the cases and
 * keeps a store of its own beside the campaign's: "FILE.2-of-4". When all have ended, the first one joins them into FILE and runs what a
 * process that was lost has left over. The processes send each other nothing: they meet in the file system. */
#ifndef SF_RUN_JOB_CAMPAIGN_H
#define SF_RUN_JOB_CAMPAIGN_H

#include "harness/run/campaign/campaign.h"

/* The indices that follow each other in a process's share: few, so that shares are alike, and whole sets of layouts of one model. */
int64_t sf_job_campaign_block(const struct sf_campaign_options *options);
/* Runs this process's part. options: of the campaign, with the share of this process; store_path is FILE. On the first process it is the
 * whole campaign's afterwards, and so is *result; on the others, and after a stop, *result is the share's. *lost: on the first process, how
 * many others have not ended their shares. Fails as sf_campaign_run and sf_store_merge. */
enum sf_status sf_job_campaign_run(struct sf_campaign_options *options, struct sf_campaign_result *result, int32_t *lost,
                                   struct sf_error *error) SF_MUST_USE;

#endif
