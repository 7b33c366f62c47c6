/* What the searches for plants and for mutants share: a pool that works until all are done, and what is told meanwhile. */
#ifndef SF_RUN_SEARCHING_H
#define SF_RUN_SEARCHING_H

#include "harness/run/campaign/campaign.h"
#include "harness/run/support/progress.h"

/* First member of the struct that a pool's client gets. */
struct sf_searching {
  int32_t count, done;   /* searches */
  enum sf_status status; /* first failure, with its text; no more jobs are handed out then */
  struct sf_error error;
  struct sf_progress told;
};
/* Runs the jobs that `next` hands out until it has none. SF_OK, or searching->status, or as a pool fails, with the error filled. */
enum sf_status sf_searching_run(struct sf_searching *searching, const struct sf_campaign_options *campaign,
                                const struct sf_pool_options *pool, int32_t (*next)(void *ctx, struct sf_job *jobs, int32_t max),
                                void (*done)(void *ctx, const struct sf_job *job, const struct sf_job_result *result),
                                struct sf_error *error) SF_MUST_USE;

#endif
