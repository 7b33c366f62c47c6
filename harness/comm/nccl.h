/* The NCCL backend: the ranks are those of an MPI job, each with a GPU, and layers send their data by NCCL. nccl_absent.c stands in where
 * the build has no NCCL (both functions give SF_ENODEVICE). */
#ifndef SF_COMM_NCCL_H
#define SF_COMM_NCCL_H

#include "harness/comm/mpi.h"

/* Whether libnccl.so.2 and the CUDA driver can be opened here; nothing is started. SF_ENODEVICE with a line that says what is missing. */
enum sf_status sf_nccl_probe(struct sf_error *error) SF_MUST_USE;

/* From now on NCCL carries the data of this job's runs. All ranks make the call, once, before the first run, and all get the same result
 * and text. MPI stays for meetings (which ranks form a communicator, whether the members of a call agree, which is always checked before
 * any data move, and who sends to whom) and for the control channel. A rank computes on GPU sf_local_rank() modulo the number of GPUs that
 * it sees. Call it before anything in the process uses CUDA, whose environment it completes.
 *
 * Differences from MPI's own data: a send completes when its receiver has come; a call may be blocking on one member and asynchronous on
 * another; after a mismatch that the members' comparison found nothing is half made.
 *
 * SF_ENODEVICE: no library, no driver, no GPU, or ranks that share one (told by its UUID) with a library that cannot. SF_ENOMEM, SF_EIO. */
enum sf_status sf_mpi_use_nccl(struct sf_mpi *mpi, struct sf_error *error) SF_MUST_USE;

#endif
