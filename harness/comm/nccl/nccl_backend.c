/* The NCCL backend: its life, one run, calls and waits. */
#include "harness/comm/nccl.h"

#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/base/system/launched.h"
#include "harness/comm/nccl/nccl_internal.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EPOCH_TAG = 2, ENDING_SECONDS = 10, ABORT_SECONDS = 1 };
static const char share_gpus[] = "NCCL_MULTI_RANK_GPU_ENABLE";
/* The maximum of a context's hardware queues. Streams that share a queue wait for each other's kernels, and a kernel of NCCL waits for
 * another rank. */
static const char queues[] = "CUDA_DEVICE_MAX_CONNECTIONS", queues_most[] = "32";

void nccl_progress(struct sf_nccl *nccl) {
  nccl_read_notes(nccl);
  nccl_move(nccl);
}

/* --- the backend's operations ------------------------------------------------------------------------------------- */

static struct nccl_request *request_open(struct sf_nccl *nccl, const struct sf_comm_call *call) {
  struct nccl_request *request = sf_alloc(sizeof *request);
  if (request == NULL) mpi_leave(nccl->mpi, SF_ENOMEM, call->label, "no memory for a request");
  request->call = *call;
  request->id = ++nccl->last_id;
  if (nccl->last != NULL) nccl->last->next = request;
  else nccl->first = request;
  nccl->last = request;
  nccl_post(nccl, request);
  return request;
}

void nccl_request_unlink(struct sf_nccl *nccl, struct nccl_request *request) {
  struct nccl_request **at = &nccl->first, *previous = NULL;
  for (; *at != request; at = &(*at)->next) previous = *at;
  *at = request->next;
  if (nccl->last == request) nccl->last = previous;
}

static void request_close(struct sf_nccl *nccl, struct nccl_request *request) {
  nccl_request_unlink(nccl, request);
  nccl_request_clear(nccl, request);
  sf_free(request);
}

/* Works until the request, if there is one, is done and the rank may leave. */
static void stay(struct sf_nccl *nccl, const struct nccl_request *request) {
  for (const double start = MPI_Wtime(); (request != NULL && request->state != REQUEST_DONE) || nccl_is_bound(nccl); mpi_pause(start)) {
    nccl_progress(nccl);
    sched_yield();
  }
}

static void complete(struct sf_nccl *nccl, struct nccl_request *request) {
  stay(nccl, request);
  request_close(nccl, request);
}

static struct sf_nccl *nccl_of(struct sf_comm *comm) { return ((struct sf_mpi *)comm->impl)->transport_state; }

static sf_request nccl_start(struct sf_comm *comm, const struct sf_comm_call *call, bool blocking) {
  struct sf_nccl *nccl = nccl_of(comm);
  nccl->mpi->report->calls++;
  struct nccl_request *request = request_open(nccl, call);
  const sf_request id = request->id;
  nccl_progress(nccl);
  if (!blocking) {
    stay(nccl, NULL);
    return id;
  }
  complete(nccl, request);
  return 0;
}

static void nccl_wait(struct sf_comm *comm, sf_request id) {
  struct sf_nccl *nccl = nccl_of(comm);
  struct nccl_request *request = nccl->first;
  while (request != NULL && request->id != id) request = request->next;
  if (request == NULL) mpi_leave_not_open(nccl->mpi, id);
  sf_comm_show_progress(comm, request->call.label);
  complete(nccl, request);
}

static const struct sf_comm_ops nccl_ops = {.name = "nccl", .start = nccl_start, .wait = nccl_wait, .fail = mpi_fail};

/* --- one run ------------------------------------------------------------------------------------------------------ */

/* The ranks agree on the run's number, which tells their notes from those of earlier runs. In ever larger steps, each hears the largest
 * number that the others know. */
static void run_begin(struct sf_mpi *mpi, int32_t first, int32_t world) {
  struct sf_nccl *nccl = mpi->transport_state;
  const struct sf_comm_call begin = {.op = SF_COMM_BARRIER, .label = "begin"};
  const int32_t place = mpi->rank - first;
  nccl_endings_clear(nccl);
  for (int32_t distance = 1; distance < world; distance *= 2) {
    const int to = first + (place + distance) % world, from = first + (place - distance + world) % world;
    uint32_t other = 0;
    mpi_must(mpi,
             MPI_Sendrecv(&nccl->epoch, 1, MPI_UINT32_T, to, EPOCH_TAG, &other, 1, MPI_UINT32_T, from, EPOCH_TAG, nccl->notes,
                          MPI_STATUS_IGNORE),
             &begin);
    if (other > nccl->epoch) nccl->epoch = other;
  }
  nccl->epoch++;
  for (struct nccl_channel *channel = nccl->channels; channel != NULL; channel = channel->next) channel->sequence = channel->turn = 0;
}

static void run_check(struct sf_mpi *mpi) {
  const struct sf_nccl *nccl = mpi->transport_state;
  int32_t more = -1;
  for (const struct nccl_request *request = nccl->first; request != NULL; request = request->next) more++;
  if (more < 0) return;
  const struct sf_comm_call *call = &nccl->first->call;
  mpi->report->manner = SF_MANNER_REQUEST;
  mpi_leave(mpi, SF_ERANK, call->label, "rank %d ended without waiting for %s '%s' #%u and %d more requests", mpi->comm.rank,
            sf_comm_op_name(call->op), call->label, call->occurrence, more);
}

/* Operations that are under way when a rank leaves can only end with their communicator. Operations that have not begun leave it intact. */
static void run_end(struct sf_mpi *mpi, enum sf_status status) {
  struct sf_nccl *nccl = mpi->transport_state;
  for (struct nccl_channel *channel = nccl->channels; channel != NULL; channel = channel->next) {
    if (channel->first != NULL && (channel->first->state != REQUEST_QUEUED || channel->state == CHANNEL_STARTING))
      nccl_channel_end(nccl, channel, false);
    channel->first = channel->last = NULL;
  }
  SF_ASSERT(status != SF_OK || nccl->first == NULL);
  while (nccl->first != NULL) request_close(nccl, nccl->first);
  nccl_drop_notes(nccl);
}

/* --- the job ------------------------------------------------------------------------------------------------------ */

enum sf_status sf_nccl_probe(struct sf_error *error) {
  struct nccl_api api;
  const enum sf_status status = nccl_api_open(&api, error);
  nccl_api_close(&api);
  return status;
}

/* Returns false if a communicator did not end in time. */
static bool channels_end(struct sf_nccl *nccl) {
  while (nccl->channels != NULL) {
    struct nccl_channel *channel = nccl->channels;
    nccl->channels = channel->next;
    nccl_channel_end(nccl, channel, channel->state == CHANNEL_OPEN);
    nccl_channel_destroy(nccl, channel);
  }
  return nccl_endings_wait(nccl, ENDING_SECONDS);
}

static void notes_end(struct sf_nccl *nccl) {
  nccl_drop_notes(nccl);
  MPI_Barrier(nccl->notes); /* unread notes have been sent too */
  while (nccl->outbox != NULL) {
    struct nccl_note *note = nccl->outbox;
    nccl->outbox = note->next;
    MPI_Wait(&note->sending, MPI_STATUS_IGNORE);
    sf_free(note);
  }
  MPI_Comm_free(&nccl->notes);
}

static void job_end(struct sf_mpi *mpi) {
  struct sf_nccl *nccl = mpi->transport_state;
  const bool all_ended = channels_end(nccl);
  notes_end(nccl);
  mpi->transport = NULL;
  mpi->transport_state = NULL;
  if (!all_ended) return; /* the threads use the rest until the process ends */
  for (int32_t i = 0; i < nccl->buffer_count; i++) (void)nccl->api.cuda.MemFree((cu_pointer)(uintptr_t)nccl->buffers[i].memory);
  sf_free(nccl->buffers);
  if (nccl->context != NULL) (void)nccl->api.cuda.PrimaryCtxRelease(nccl->device);
  nccl_api_close(&nccl->api);
  sf_free(nccl);
}

/* Before the process ends: gives the failed run's communicators time to be aborted, which waits for the other members. */
static void job_abort(struct sf_mpi *mpi) { (void)nccl_endings_wait(mpi->transport_state, ABORT_SECONDS); }

static const struct mpi_transport transport = {
    .ops = &nccl_ops, .begin = run_begin, .check = run_check, .end = run_end, .destroy = job_end, .abort = job_abort};

static enum sf_status refuse_cuda(const struct sf_nccl *nccl, int result, struct sf_error *error) {
  const char *text = NULL;
  (void)nccl->api.cuda.GetErrorString(result, &text);
  return sf_error_set(error, SF_ENODEVICE, "%s", text != NULL ? text : "the CUDA driver fails");
}

/* Ranks that share a GPU need a library that allows it, and must ask for it. */
static enum sf_status allow_sharing(const struct sf_nccl *nccl, struct sf_error *error) {
  char version[24];
  if (nccl->sharers == 1) return SF_OK;
  nccl_version_text(version, nccl->api.version);
  if (nccl->api.version < NCCL_SHARES_GPUS_SINCE)
    return sf_error_set(error, SF_ENODEVICE, "%d ranks on one GPU: NCCL %s needs one for each, 2.30.4 and later can share", nccl->sharers,
                        version);
  if (setenv(share_gpus, "1", 0) != 0) return sf_error_set(error, SF_ENOMEM, "%s", sf_status_text(SF_ENOMEM));
  if (strcmp(getenv(share_gpus), "1") != 0)
    return sf_error_set(error, SF_ENODEVICE, "%d ranks on one GPU, which %s=%s forbids", nccl->sharers, share_gpus, getenv(share_gpus));
  return SF_OK;
}

/* Chooses this rank's GPU. The driver reads its environment when it begins. */
static enum sf_status choose_gpu(struct sf_nccl *nccl, struct cu_uuid *uuid, struct sf_error *error) {
  const struct nccl_api *api = &nccl->api;
  int gpus = 0;
  if (setenv(queues, queues_most, 0) != 0) return sf_error_set(error, SF_ENOMEM, "%s", sf_status_text(SF_ENOMEM));
  int result = api->cuda.Init(0);
  if (result == CU_OK) result = api->cuda.DeviceGetCount(&gpus);
  if (result != CU_OK) return refuse_cuda(nccl, result, error);
  if (gpus == 0) return sf_error_set(error, SF_ENODEVICE, "there is no GPU on this machine");
  result = api->cuda.DeviceGet(&nccl->device, sf_local_rank() % gpus);
  if (result == CU_OK) result = api->cuda.DeviceGetUuid(uuid, nccl->device);
  return result == CU_OK ? SF_OK : refuse_cuda(nccl, result, error);
}

static enum sf_status open_gpu(struct sf_nccl *nccl, struct sf_error *error) {
  const struct nccl_api *api = &nccl->api;
  const enum sf_status status = allow_sharing(nccl, error);
  if (status != SF_OK) return status;
  int result = api->cuda.PrimaryCtxRetain(&nccl->context, nccl->device);
  if (result == CU_OK) result = api->cuda.CtxSetCurrent(nccl->context);
  return result == CU_OK ? SF_OK : refuse_cuda(nccl, result, error);
}

/* Gives all ranks the first failing rank's failure, if there is one. */
static enum sf_status agree(const struct sf_nccl *nccl, enum sf_status status, struct sf_error *error) {
  struct sf_error shared = {SF_OK, ""};
  int first = status != SF_OK ? nccl->mpi->rank : nccl->mpi->world;
  if (MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, nccl->notes) != MPI_SUCCESS)
    return sf_error_set(error, SF_EIO, "MPI: a collective failed: have ranks called different ones?");
  if (first == nccl->mpi->world) return SF_OK;
  if (error != NULL) shared = *error;
  shared.status = status;
  if (MPI_Bcast(&shared, sizeof shared, MPI_BYTE, first, nccl->notes) != MPI_SUCCESS)
    return sf_error_set(error, SF_EIO, "MPI: a collective failed: have ranks called different ones?");
  return sf_error_set(error, shared.status, "--backend nccl: %.400s", shared.text);
}

/* Counts the ranks of the machine `local` that share this rank's GPU. A process's own numbers of GPUs do not identify them: a launcher may
 * show each rank its own GPU as the first. */
static enum sf_status count_here(MPI_Comm local, int *sharers, const struct cu_uuid *own) {
  int size = 0;
  int code = MPI_Comm_size(local, &size);
  *sharers = 0;
  for (int i = 0; i < size && code == MPI_SUCCESS; i++) {
    struct cu_uuid uuid = *own;
    code = MPI_Bcast(&uuid, sizeof uuid, MPI_BYTE, i, local);
    *sharers += memcmp(&uuid, own, sizeof uuid) == 0;
  }
  return code == MPI_SUCCESS ? SF_OK : SF_EIO;
}

/* The largest number of ranks on any GPU of the job, since the members of a communicator must ask for the same. */
static enum sf_status count_sharers(struct sf_nccl *nccl, const struct cu_uuid *uuid, struct sf_error *error) {
  MPI_Comm local;
  int sharers = 1;
  if (MPI_Comm_split_type(nccl->notes, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &local) != MPI_SUCCESS)
    return sf_error_set(error, SF_EIO, "MPI: a collective failed: have ranks called different ones?");
  enum sf_status status = count_here(local, &sharers, uuid);
  MPI_Comm_free(&local);
  if (MPI_Allreduce(&sharers, &nccl->sharers, 1, MPI_INT, MPI_MAX, nccl->notes) != MPI_SUCCESS) status = SF_EIO;
  return status == SF_OK ? SF_OK : sf_error_set(error, status, "the ranks of a GPU could not be counted: %s", sf_status_text(status));
}

/* All ranks take every step together. */
static enum sf_status job_begin(struct sf_nccl *nccl, struct sf_error *error) {
  struct cu_uuid uuid;
  enum sf_status status = nccl_api_open(&nccl->api, error);
  if (status == SF_OK) status = choose_gpu(nccl, &uuid, error);
  status = agree(nccl, status, error);
  if (status != SF_OK) return status;
  status = agree(nccl, count_sharers(nccl, &uuid, error), error);
  return status != SF_OK ? status : agree(nccl, open_gpu(nccl, error), error);
}

enum sf_status sf_mpi_use_nccl(struct sf_mpi *mpi, struct sf_error *error) {
  struct sf_error own = {SF_OK, ""};
  SF_ASSERT(mpi->transport == NULL);
  struct sf_nccl *nccl = sf_alloc(sizeof *nccl);
  if (nccl == NULL) return sf_error_set(error, SF_ENOMEM, "%s", sf_status_text(SF_ENOMEM));
  nccl->mpi = mpi;
  if (MPI_Comm_dup(mpi->control, &nccl->notes) != MPI_SUCCESS) {
    sf_free(nccl);
    return sf_error_set(error, SF_EIO, "MPI could not make the communicators");
  }
  mpi->transport_state = nccl;
  const enum sf_status status = job_begin(nccl, &own);
  if (status == SF_OK) {
    mpi->transport = &transport;
    return SF_OK;
  }
  if (error != NULL) *error = own;
  job_end(mpi);
  return status;
}
