/* A campaign inside an MPI job: every rank calls it with the same options; groups of ranks run cases side by side.
 *
 * Rank 0 keeps the store and sends each wave's indices; every rank derives from (options, indices, world size) which ranks run which case. A crash,
 * a hang or a mismatch ends the job, as MPI cannot undo half-made collectives: where each rank stood remains in page files beside the store, and
 * --resume records the case from them and goes on. */
#ifndef SF_RUN_MPI_CAMPAIGN_H
#define SF_RUN_MPI_CAMPAIGN_H

#include "harness/comm/mpi.h"
#include "harness/run/campaign.h"

/* The result is filled on rank 0 only. Never returns on any rank when the job has to end early (exit code 1 after the finding was noted). */
enum sf_status sf_campaign_mpi_run(struct sf_mpi *mpi, const struct sf_campaign_options *options, struct sf_campaign_result *result, struct sf_error *error) SF_MUST_USE;

#endif
