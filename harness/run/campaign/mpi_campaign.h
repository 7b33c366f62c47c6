/* A campaign inside an MPI job: every rank calls it with the same options; groups of ranks run cases side by side.
 *
 * Rank 0 keeps the store and sends each wave's indices; every rank derives from (options, indices, world size) which ranks run which case.
 * A crash, a hang or a mismatch ends the job, as MPI cannot undo half-made collectives: one line on stderr says why, where each rank stood
 * remains in page files beside the store, and --resume records the case from them (unconfirmed and as large as it was drawn) and goes on.
 */
#ifndef SF_RUN_MPI_CAMPAIGN_H
#define SF_RUN_MPI_CAMPAIGN_H

#include "harness/comm/mpi.h"
#include "harness/run/campaign/campaign.h"

/* Result and failures (a store that cannot be opened, ...) are rank 0's; the other ranks return SF_OK. The store's path is rank 0's too,
 * and cases have the job's number of ranks at most. Never returns on any rank when the job has to end early (exit code 1 after a case ended
 * it, 3 after a failure of the harness). */
enum sf_status sf_campaign_mpi_run(struct sf_mpi *mpi, struct sf_campaign_options *options, struct sf_campaign_result *result,
                                   struct sf_error *error) SF_MUST_USE;

#endif
