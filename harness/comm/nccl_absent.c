/* A build without NCCL. */
#include "harness/comm/nccl.h"

enum sf_status sf_nccl_probe(struct sf_error *error) { return sf_error_set(error, SF_ENODEVICE, "this build has no NCCL (SF_NCCL)"); }

enum sf_status sf_mpi_use_nccl(struct sf_mpi *mpi, struct sf_error *error) {
  (void)mpi;
  return sf_nccl_probe(error);
}
