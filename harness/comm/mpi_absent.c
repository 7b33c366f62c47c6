#include "harness/base/assert.h"
#include "harness/comm/mpi.h"

#include <stdlib.h>

bool sf_mpi_available(void) { return false; }

bool sf_mpi_launched(void) { return false; }

int32_t sf_mpi_launched_world(void) { return 0; }

bool sf_mpi_may_complain(void) { return true; }

enum sf_status sf_mpi_create(struct sf_mpi **out, struct sf_error *error) {
  (void)out;
  return sf_error_set(error, SF_ENOTSUP, "this build has no MPI");
}

void sf_mpi_destroy(struct sf_mpi *mpi) { SF_ASSERT(mpi == NULL); }

int32_t sf_mpi_rank(const struct sf_mpi *mpi) {
  (void)mpi;
  return 0;
}

int32_t sf_mpi_world(const struct sf_mpi *mpi) {
  (void)mpi;
  return 1;
}

void sf_mpi_abort(struct sf_mpi *mpi, int exit_code) {
  (void)mpi;
  _Exit(exit_code);
}

enum sf_status sf_mpi_run(struct sf_mpi *mpi, int32_t first, int32_t world, struct sf_comm_progress *progress, sf_rank_main rank_main,
                          void *arg, struct sf_comm_report *report) {
  (void)mpi, (void)first, (void)world, (void)progress, (void)rank_main, (void)arg, (void)report;
  return SF_ENOTSUP;
}

enum sf_status sf_mpi_send_bytes(struct sf_mpi *mpi, int32_t to, const void *data, size_t size_bytes) {
  (void)mpi, (void)to, (void)data, (void)size_bytes;
  return SF_ENOTSUP;
}

enum sf_status sf_mpi_recv_bytes(struct sf_mpi *mpi, int32_t from, void **data, size_t *size_bytes) {
  (void)mpi, (void)from, (void)data, (void)size_bytes;
  return SF_ENOTSUP;
}

enum sf_status sf_mpi_bcast_bytes(struct sf_mpi *mpi, int32_t root, void **data, size_t *size_bytes) {
  (void)mpi, (void)root, (void)data, (void)size_bytes;
  return SF_ENOTSUP;
}

void sf_mpi_control_barrier(struct sf_mpi *mpi) { (void)mpi; }

enum sf_status sf_mpi_meet(struct sf_mpi *mpi, int32_t first, int32_t count) {
  (void)mpi, (void)first, (void)count;
  return SF_ENOTSUP;
}
