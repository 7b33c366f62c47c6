/* The control channel: bytes between ranks on a communicator of its own. A message is its size and then pieces that MPI can count. */
#include "harness/base/alloc.h"
#include "harness/comm/mpi_internal.h"

#include <string.h>

enum { CONTROL_TAG = 1, MEET_TAG = 2 };
static const size_t piece_max_bytes = (size_t)1 << 30;

/* Only a message's size can take long to come: the rest follows at once. */
static int wait_for_size(int code, MPI_Request *request) { return code != MPI_SUCCESS ? code : mpi_wait_for(request, MPI_STATUS_IGNORE); }

static int piece_of(size_t size_bytes, size_t done) {
  const size_t left = size_bytes - done;
  return (int)(left < piece_max_bytes ? left : piece_max_bytes);
}

enum sf_status sf_mpi_send_bytes(struct sf_mpi *mpi, int32_t to, const void *data, size_t size_bytes) {
  uint64_t size = size_bytes;
  if (MPI_Send(&size, 1, MPI_UINT64_T, to, CONTROL_TAG, mpi->control) != MPI_SUCCESS) return SF_EIO;
  for (size_t done = 0; done < size_bytes; done += (size_t)piece_of(size_bytes, done))
    if (MPI_Send((const char *)data + done, piece_of(size_bytes, done), MPI_BYTE, to, CONTROL_TAG, mpi->control) != MPI_SUCCESS)
      return SF_EIO;
  return SF_OK;
}

enum sf_status sf_mpi_recv_bytes(struct sf_mpi *mpi, int32_t from, void **data, size_t *size_bytes) {
  uint64_t size = 0;
  MPI_Request request;
  if (wait_for_size(MPI_Irecv(&size, 1, MPI_UINT64_T, from, CONTROL_TAG, mpi->control, &request), &request) != MPI_SUCCESS) return SF_EIO;
  char *bytes = sf_alloc((size_t)size + 1);
  if (bytes == NULL) return SF_ENOMEM;
  for (size_t done = 0; done < size; done += (size_t)piece_of(size, done))
    if (MPI_Recv(bytes + done, piece_of(size, done), MPI_BYTE, from, CONTROL_TAG, mpi->control, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
      sf_free(bytes);
      return SF_EIO;
    }
  *data = bytes;
  *size_bytes = (size_t)size;
  return SF_OK;
}

enum sf_status sf_mpi_bcast_bytes(struct sf_mpi *mpi, int32_t root, void **data, size_t *size_bytes) {
  const bool is_root = mpi->rank == root;
  uint64_t size = is_root ? *size_bytes : 0;
  MPI_Request request;
  if (wait_for_size(MPI_Ibcast(&size, 1, MPI_UINT64_T, root, mpi->control, &request), &request) != MPI_SUCCESS) return SF_EIO;
  char *bytes = is_root ? *data : sf_alloc((size_t)size + 1);
  if (bytes == NULL) return SF_ENOMEM;
  for (size_t done = 0; done < size; done += (size_t)piece_of(size, done))
    if (MPI_Bcast(bytes + done, piece_of(size, done), MPI_BYTE, root, mpi->control) != MPI_SUCCESS) {
      if (!is_root) sf_free(bytes);
      return SF_EIO;
    }
  *data = bytes;
  *size_bytes = (size_t)size;
  return SF_OK;
}

void sf_mpi_control_barrier(struct sf_mpi *mpi) {
  MPI_Request request;
  if (MPI_Ibarrier(mpi->control, &request) == MPI_SUCCESS) mpi_wait_for(&request, MPI_STATUS_IGNORE);
}

/* Dissemination: in round k every rank hears from the rank 2^k before it, which has heard from the 2^k ranks before that. */
enum sf_status sf_mpi_meet(struct sf_mpi *mpi, int32_t first, int32_t count) {
  const int32_t place = mpi->rank - first;
  for (int32_t distance = 1; distance < count; distance *= 2) {
    const int to = first + (place + distance) % count, from = first + (place - distance + count) % count;
    MPI_Request sent, received;
    if (MPI_Irecv(NULL, 0, MPI_BYTE, from, MEET_TAG, mpi->control, &received) != MPI_SUCCESS) return SF_EIO;
    if (MPI_Isend(NULL, 0, MPI_BYTE, to, MEET_TAG, mpi->control, &sent) != MPI_SUCCESS) return SF_EIO;
    if (mpi_wait_for(&sent, MPI_STATUS_IGNORE) != MPI_SUCCESS || mpi_wait_for(&received, MPI_STATUS_IGNORE) != MPI_SUCCESS) return SF_EIO;
  }
  return SF_OK;
}
