/* Which of a machine's ranks this process is. */
#ifndef SF_BASE_LOCAL_RANK_H
#define SF_BASE_LOCAL_RANK_H

#include <stdint.h>

/* As the launcher says in the environment (Open MPI, MPICH, Slurm); 0 where none does. Ranks of a machine take its GPUs in turns by it. */
int32_t sf_local_rank(void);

#endif
