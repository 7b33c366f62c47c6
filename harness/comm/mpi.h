/* The Open MPI backend: one rank per process. mpi_absent.c stands in where the build has no MPI (sf_mpi_available is false,
 * everything else SF_ENOTSUP). */
#ifndef SF_COMM_MPI_H
#define SF_COMM_MPI_H

#include "harness/comm/comm.h"

#include <stddef.h>

/* Whether this build has MPI. Without it the calls below that have a status give SF_ENOTSUP. */
bool sf_mpi_available(void);
/* Whether this process was started by mpirun or a PMI launcher (looks at the environment only). */
bool sf_mpi_launched(void);
/* How many ranks the job of this process has (looks at the environment only). 0: it is not in a job, or the environment does not say. */
int32_t sf_mpi_launched_world(void);
/* Whether the caller prints its error. Call this before printing an error that every process of the job may see, such as a wrong
 * option. Rank 0 prints at once. Before MPI starts, every other rank waits 10 s. In that time rank 0 normally prints the error and
 * exits, and mpirun ends the waiting ranks by a signal; then the result is false. If no signal came, rank 0 saw no error, and the
 * result is true. Without the wait, mpirun could kill rank 0 before it had printed. */
bool sf_mpi_may_complain(void);

/* Differences from the simulated world: the first use of a group makes its members meet, also in an asynchronous call (as in NCCL); a call
 * that one member makes blocking and another asynchronously does not match; a deadlock is a hang, and `progress` tells where. */
struct sf_mpi;
/* MPI_Init, reduction operations for bf16, a duplicated world for the control channel. Once per process. An MPI_Init that does not come
 * back within 3 minutes ends the process with a line on stderr and code 3. */
enum sf_status sf_mpi_create(struct sf_mpi **out, struct sf_error *error) SF_MUST_USE;
void sf_mpi_destroy(struct sf_mpi *mpi); /* MPI_Finalize */
/* Of this process, and how many the job has: of MPI_COMM_WORLD. */
int32_t sf_mpi_rank(const struct sf_mpi *mpi);
int32_t sf_mpi_world(const struct sf_mpi *mpi);
/* Ends every rank of the job at once (MPI_Abort). */
_Noreturn void sf_mpi_abort(struct sf_mpi *mpi, int exit_code);

/* Runs rank_main on the ranks [first, first + world) of the job, which all make this call; comm.rank is counted from first. A count
 * mismatch that MPI reports, or a rank that fails, ends the run on this rank, and the report says so. MPI cannot undo a collective that is
 * half made: after a report other than SF_OK the job has to be ended or restarted. It can go on only after a mismatch that the agreement
 * check found before a blocking collective. Communicators are cached by member list. Before the data of a
 * collective its members compare operation, count, format, reduction and root by one small all-reduce (and all-to-all the counts of its
 * pieces), so that calls which differ are SF_EMISMATCH on all members and not a hang. */
enum sf_status sf_mpi_run(struct sf_mpi *mpi, int32_t first, int32_t world, struct sf_comm_progress *progress, sf_rank_main rank_main,
                          void *arg, struct sf_comm_report *report) SF_MUST_USE;

/* Control channel, apart from the communicator under test: messages of any size. SF_EIO when MPI fails; what receives also SF_ENOMEM. */
enum sf_status sf_mpi_send_bytes(struct sf_mpi *mpi, int32_t to, const void *data, size_t size_bytes) SF_MUST_USE;
/* Receives the next message of rank `from`; *data is freed by the caller with sf_free. */
enum sf_status sf_mpi_recv_bytes(struct sf_mpi *mpi, int32_t from, void **data, size_t *size_bytes) SF_MUST_USE;
/* Sends *data of root to every rank of the job; on the others *data is allocated, and freed by the caller with sf_free. */
enum sf_status sf_mpi_bcast_bytes(struct sf_mpi *mpi, int32_t root, void **data, size_t *size_bytes) SF_MUST_USE;
/* Returns when all ranks of the job have called it. */
void sf_mpi_control_barrier(struct sf_mpi *mpi);
/* Returns when all of the job's ranks [first, first + count) have called it. No other rank calls it. */
enum sf_status sf_mpi_meet(struct sf_mpi *mpi, int32_t first, int32_t count) SF_MUST_USE;

#endif
