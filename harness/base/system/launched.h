/* The job that a launcher has started this process in, as it says in the environment: Open MPI, MPICH and its kin, Slurm. No MPI is
 * needed for that. */
#ifndef SF_BASE_LAUNCHED_H
#define SF_BASE_LAUNCHED_H

#include <stdint.h>

int32_t sf_launched_rank(void); /* of this process among those of the job; -1: no launcher has started it */
int32_t sf_launched_size(void); /* processes of the job; 0: no launcher, or it does not say */
/* Of this process among those of its machine; 0 where nobody says. Ranks of a machine take its GPUs in turns by it. */
int32_t sf_local_rank(void);
int32_t sf_local_size(void); /* processes of the job on this machine; 1 where nobody says */

#endif
