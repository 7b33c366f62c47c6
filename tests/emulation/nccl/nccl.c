/* The library: communicators that do not block, and operations as transfers between members. What NCCL leaves undefined, calls of members
 * that do not fit, ends the program. */
#include "tests/emulation/nccl/emulated.h"
#include "tests/emulation/nccl/reduce.h"
#include "tests/emulation/nccl/segment.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum {
  UNHANDLED_CUDA_ERROR = 1,
  REMOTE_ERROR = 6,
  INVALID_ARGUMENT = 4,
  INVALID_USAGE = 5,
  TRANSFERS_MAX = 2 * SEGMENT_MEMBERS_MAX,
  ROUNDS_TO_LAUNCH = 3,
  CTAS_TO_SHARE = 2,
  ABORT_US = 20000
};
enum kind { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, MESSAGES };

/* Goes ahead of the bytes of a transfer, so that both ends know that they do the same. */
struct header {
  int64_t kind, type, op, root, bytes;
};
struct transfer {
  int peer;
  bool out;
  char *at;
  size_t header_done, done;
  struct header header;
};
struct operation {
  struct sf_nccl_comm *comm;
  enum kind kind;
  int type, op, count_of_transfers;
  size_t count;
  const char *send;
  char *recv, *parts[SEGMENT_MEMBERS_MAX];
  cu_stream stream;
  int broken; /* by a fault: the error that it never ends with by itself; 0: it is whole */
  size_t recv_bytes;
  struct transfer transfers[TRANSFERS_MAX];
};

struct sf_nccl_comm {
  struct segment *segment;
  char path[sizeof(struct nccl_id)];
  int size, rank, error, rounds;     /* rounds: until an operation that was asked for is launched */
  int under_way;                     /* operations */
  int max_ctas;
  bool aborted, finalized;
  bool ended; /* aborted, and its kernels stop */
  bool left;  /* by all members */
  struct operation *collected;       /* of the group, or until it is launched */
  struct sf_nccl_comm *next_in_group;
};

static _Thread_local struct {
  int depth;
  struct sf_nccl_comm *comms;
} group;

static const char *last_error = "";

static int version(void) {
  const char *text = getenv("SF_EMULATED_NCCL_VERSION");
  return text != NULL ? atoi(text) : 23203;
}

/* The error of the one operation that the environment names; 0 for the others. */
static int fault(void) {
  static int operations;
  const char *text = getenv("SF_EMULATED_NCCL_FAULT");
  const char *number = text != NULL ? strchr(text, ':') : NULL;
  operations++;
  if (number == NULL || !sf_emulated_names_rank(text) || atoi(number + 1) != operations) return NCCL_OK;
  return strstr(number, ":memory") != NULL ? UNHANDLED_CUDA_ERROR : REMOTE_ERROR;
}

/* --- operations ---------------------------------------------------------------------------------------------------- */

static void add_transfer(struct operation *operation, int peer, bool out, const void *at, size_t bytes, int root) {
  if (operation->count_of_transfers == TRANSFERS_MAX) sf_emulated_end("a group of more messages than the emulation has room for");
  operation->transfers[operation->count_of_transfers++] =
      (struct transfer){.peer = peer,
                        .out = out,
                        .at = (char *)(uintptr_t)at,
                        .header = {(int64_t)operation->kind, operation->type, operation->op, root, (int64_t)bytes}};
}

static void move_bytes(struct pipe_of *pipe, struct transfer *transfer, struct header *came) {
  char *header = (char *)came;
  if (transfer->header_done < sizeof *came) {
    const size_t left = sizeof *came - transfer->header_done;
    transfer->header_done += transfer->out ? pipe_write(pipe, (char *)&transfer->header + transfer->header_done, left)
                                           : pipe_read(pipe, header + transfer->header_done, left);
    if (transfer->header_done < sizeof *came) return;
    if (!transfer->out && memcmp(came, &transfer->header, sizeof *came) != 0)
      sf_emulated_end("NCCL: members make calls that do not fit each other");
  }
  const size_t left = (size_t)transfer->header.bytes - transfer->done;
  transfer->done +=
      transfer->out ? pipe_write(pipe, transfer->at + transfer->done, left) : pipe_read(pipe, transfer->at + transfer->done, left);
}

static bool is_done(const struct transfer *transfer) {
  return transfer->header_done == sizeof transfer->header && transfer->done == (size_t)transfer->header.bytes;
}

/* Transfers of one pair and direction one after the other. */
static bool move_all(struct operation *operation) {
  static struct header came[TRANSFERS_MAX]; /* a header is so short that the pipe has all of it or nothing */
  const struct sf_nccl_comm *comm = operation->comm;
  bool busy[2][SEGMENT_MEMBERS_MAX] = {{false}}, all = true;
  for (int i = 0; i < operation->count_of_transfers; i++) {
    struct transfer *transfer = &operation->transfers[i];
    if (is_done(transfer) || busy[transfer->out][transfer->peer]) continue;
    const int from = transfer->out ? comm->rank : transfer->peer, to = transfer->out ? transfer->peer : comm->rank;
    move_bytes(&comm->segment->pipes[from * comm->size + to], transfer, &came[i]);
    if (is_done(transfer)) continue;
    busy[transfer->out][transfer->peer] = true;
    all = false;
  }
  return all;
}

/* What an aborted operation leaves in its buffer is anything, and its kernel stops only a while later. */
static void spoil(const struct operation *operation) {
  if (operation->recv == NULL) return;
  if (!sf_emulated_owns(operation->recv, operation->recv_bytes)) sf_emulated_end("NCCL: memory was given back while a kernel ran on it");
  memset(operation->recv, 0x5a, operation->recv_bytes);
}

static void finish(struct operation *operation) {
  struct sf_nccl_comm *comm = operation->comm;
  if (!comm->aborted && (operation->kind == ALL_REDUCE || operation->kind == REDUCE_SCATTER))
    reduce_parts(operation->recv, operation->parts, comm->size, operation->count, operation->type, operation->op);
  for (int i = 0; i < comm->size; i++) free(operation->parts[i]);
  comm->under_way--;
  free(operation);
  if (comm->left && comm->under_way == 0) free(comm);
}

/* Whether another member has gone while this one works. */
static bool notices_abort(const struct sf_nccl_comm *comm) {
  const char *text = getenv("SF_EMULATED_NCCL_NOTICES");
  return text != NULL && strcmp(text, "1") == 0 && atomic_load(&comm->segment->aborted) > 0;
}

static bool run(void *argument) {
  struct operation *operation = argument;
  struct sf_nccl_comm *comm = operation->comm;
  if (operation->broken) {
    comm->error = operation->broken;
    if (operation->broken == UNHANDLED_CUDA_ERROR) last_error = "Cuda failure 2 'out of memory'";
  }
  if (comm->aborted && !comm->ended) {
    spoil(operation);
    return false;
  }
  if (!comm->aborted && notices_abort(comm)) comm->error = REMOTE_ERROR;
  if (!comm->aborted && (comm->error == REMOTE_ERROR || operation->broken || !move_all(operation))) return false;
  finish(operation);
  return true;
}

static struct operation *operation_create(struct sf_nccl_comm *comm, enum kind kind, size_t count, int type, int op, cu_stream stream) {
  struct operation *operation = calloc(1, sizeof *operation);
  if (operation == NULL) sf_emulated_end("out of memory");
  *operation = (struct operation){.comm = comm, .kind = kind, .count = count, .type = type, .op = op, .stream = stream};
  return operation;
}

/* A copy of one's own part, and room for the others'. Memory of the GPU is not read before the operation runs, so one's own part travels
 * too. */
static void take_parts(struct operation *operation, const char *send, size_t part_bytes, bool scatter) {
  const struct sf_nccl_comm *comm = operation->comm;
  for (int i = 0; i < comm->size; i++) {
    operation->parts[i] = malloc(part_bytes + 1);
    if (operation->parts[i] == NULL) sf_emulated_end("out of memory");
    add_transfer(operation, i, true, send + (scatter ? (size_t)i * part_bytes : 0), part_bytes, 0);
    add_transfer(operation, i, false, operation->parts[i], part_bytes, 0);
  }
}

/* --- groups ---------------------------------------------------------------------------------------------------------- */

/* What the group has for this communicator: one collective, or messages. */
static int collect(struct sf_nccl_comm *comm, struct operation *operation) {
  if (comm->collected != NULL) sf_emulated_end("NCCL: two collectives of one communicator in a group");
  comm->collected = operation;
  comm->next_in_group = group.comms;
  group.comms = comm;
  return NCCL_OK;
}

static int start_alone(void) { return group.depth > 0 ? NCCL_OK : (sf_emulated_end("NCCL: a call outside a group"), INVALID_USAGE); }

/* The call's arguments, and whether the communicator may be used yet. */
static int check(const struct sf_nccl_comm *comm, const void *send, size_t send_bytes, const void *recv, size_t recv_bytes) {
  (void)start_alone();
  if (comm->rounds > 0 || comm->error == NCCL_IN_PROGRESS) sf_emulated_end("NCCL: a call while the communicator has not done the last one");
  if (comm->error != NCCL_OK || comm->finalized) return INVALID_USAGE;
  if ((send != NULL && !sf_emulated_owns(send, send_bytes)) || (recv != NULL && !sf_emulated_owns(recv, recv_bytes)))
    return INVALID_ARGUMENT;
  return NCCL_OK;
}

EXPORT int ncclGroupStart(void) {
  group.depth++;
  return NCCL_OK;
}

EXPORT int ncclGroupEnd(void) {
  int result = NCCL_OK;
  if (--group.depth > 0) return NCCL_OK;
  while (group.comms != NULL) {
    struct sf_nccl_comm *comm = group.comms;
    group.comms = comm->next_in_group;
    comm->rounds = ROUNDS_TO_LAUNCH;
    result = NCCL_IN_PROGRESS;
  }
  return result;
}

/* --- collectives and messages -------------------------------------------------------------------------------------------- */

EXPORT int ncclAllReduce(const void *send, void *recv, size_t count, int type, int op, nccl_comm comm, cu_stream stream) {
  const size_t bytes = count * element_bytes(type);
  const int result = check(comm, send, bytes, recv, bytes);
  if (result != NCCL_OK) return result;
  struct operation *operation = operation_create(comm, ALL_REDUCE, count, type, op, stream);
  operation->recv = recv;
  operation->recv_bytes = bytes;
  take_parts(operation, send, bytes, false);
  return collect(comm, operation);
}

EXPORT int ncclReduceScatter(const void *send, void *recv, size_t count, int type, int op, nccl_comm comm, cu_stream stream) {
  const size_t bytes = count * element_bytes(type);
  const int result = check(comm, send, bytes * (size_t)comm->size, recv, bytes);
  if (result != NCCL_OK) return result;
  struct operation *operation = operation_create(comm, REDUCE_SCATTER, count, type, op, stream);
  operation->recv = recv;
  operation->recv_bytes = bytes;
  take_parts(operation, send, bytes, true);
  return collect(comm, operation);
}

EXPORT int ncclAllGather(const void *send, void *recv, size_t count, int type, nccl_comm comm, cu_stream stream) {
  const size_t bytes = count * element_bytes(type);
  const int result = check(comm, send, bytes, recv, bytes * (size_t)comm->size);
  if (result != NCCL_OK) return result;
  struct operation *operation = operation_create(comm, ALL_GATHER, count, type, 0, stream);
  for (int i = 0; i < comm->size; i++) {
    add_transfer(operation, i, true, send, bytes, 0);
    add_transfer(operation, i, false, (char *)recv + (size_t)i * bytes, bytes, 0);
  }
  return collect(comm, operation);
}

EXPORT int ncclBroadcast(const void *send, void *recv, size_t count, int type, int root, nccl_comm comm, cu_stream stream) {
  const size_t bytes = count * element_bytes(type);
  const int result = check(comm, comm->rank == root ? send : NULL, bytes, recv, bytes);
  if (result != NCCL_OK) return result;
  struct operation *operation = operation_create(comm, BROADCAST, count, type, 0, stream);
  for (int i = 0; i < comm->size && comm->rank == root; i++)
    if (i != root) add_transfer(operation, i, true, send, bytes, root);
  if (comm->rank != root) add_transfer(operation, root, false, recv, bytes, root);
  return collect(comm, operation);
}

static int add_message(nccl_comm comm, int peer, bool out, const void *at, size_t count, int type, cu_stream stream) {
  const size_t bytes = count * element_bytes(type);
  const int result = check(comm, at, bytes, NULL, 0);
  if (result != NCCL_OK) return result;
  if (peer < 0 || peer >= comm->size) return INVALID_ARGUMENT;
  if (comm->collected == NULL) (void)collect(comm, operation_create(comm, MESSAGES, 0, 0, 0, stream));
  struct operation *operation = comm->collected;
  if (operation->kind != MESSAGES || operation->stream != stream) sf_emulated_end("NCCL: messages and a collective in a group");
  add_transfer(operation, peer, out, at, bytes, 0);
  operation->transfers[operation->count_of_transfers - 1].header.type = type;
  return NCCL_OK;
}

EXPORT int ncclSend(const void *send, size_t count, int type, int peer, nccl_comm comm, cu_stream stream) {
  return add_message(comm, peer, true, send, count, type, stream);
}

EXPORT int ncclRecv(void *recv, size_t count, int type, int peer, nccl_comm comm, cu_stream stream) {
  return add_message(comm, peer, false, recv, count, type, stream);
}

/* --- communicators ------------------------------------------------------------------------------------------------------- */

EXPORT int ncclGetVersion(int *out) {
  *out = version();
  return NCCL_OK;
}

static void *stay(void *argument) {
  while (argument == NULL) sf_emulated_pause();
  return NULL;
}

EXPORT int ncclGetUniqueId(struct nccl_id *id) {
  static pthread_t own;
  if (own == 0 && pthread_create(&own, NULL, stay, NULL) != 0) sf_emulated_end("NCCL: no thread");
  memset(id, 0, sizeof *id);
  segment_name(id->bytes, sizeof id->bytes);
  return NCCL_OK;
}

EXPORT int ncclCommInitRankConfig(nccl_comm *out, int size, struct nccl_id id, int rank, struct nccl_config *config) {
  if (config == NULL || config->magic != (unsigned)NCCL_MAGIC || config->size < sizeof *config || rank < 0 || rank >= size)
    return INVALID_ARGUMENT;
  if (config->blocking != 0) sf_emulated_end("NCCL: a communicator that blocks");
  if (sf_emulated_device() < 0) return INVALID_USAGE;
  struct sf_nccl_comm *comm = calloc(1, sizeof *comm);
  if (comm == NULL) sf_emulated_end("out of memory");
  memcpy(comm->path, id.bytes, sizeof comm->path);
  comm->size = size;
  comm->rank = rank;
  comm->error = NCCL_IN_PROGRESS;
  comm->max_ctas = config->max_ctas;
  comm->segment = segment_join(comm->path, size, rank, sf_emulated_device());
  sf_emulated_log("open %d of %d, CTAs: %d\n", rank, size, config->max_ctas == NCCL_UNDEFINED ? 0 : config->max_ctas);
  *out = comm;
  return NCCL_IN_PROGRESS;
}

static bool shares_a_gpu(const struct sf_nccl_comm *comm) {
  for (int i = 0; i < comm->size; i++)
    for (int k = 0; k < i; k++)
      if (comm->segment->device[i] == comm->segment->device[k]) return true;
  return false;
}

/* All members have come; those on one GPU must be allowed to be, and leave room for each other's kernels. */
static int started(const struct sf_nccl_comm *comm) {
  const char *allowed = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  const bool may_share = version() >= NCCL_SHARES_GPUS_SINCE && allowed != NULL && strcmp(allowed, "1") == 0;
  if (atomic_load(&comm->segment->joined) < comm->size) return NCCL_IN_PROGRESS;
  if (!shares_a_gpu(comm)) return NCCL_OK;
  if (may_share && (comm->max_ctas == NCCL_UNDEFINED || comm->max_ctas > CTAS_TO_SHARE))
    sf_emulated_end("NCCL: kernels on a GPU that ranks share are too large");
  return may_share ? NCCL_OK : INVALID_USAGE;
}

static void launch(struct sf_nccl_comm *comm) {
  struct operation *operation = comm->collected;
  comm->collected = NULL;
  operation->broken = fault();
  comm->under_way++;
  sf_emulated_enqueue(operation->stream, run, operation);
}

EXPORT int ncclCommGetAsyncError(nccl_comm comm, int *error) {
  sf_emulated_lock();
  sf_emulated_advance();
  if (comm->finalized) comm->error = atomic_load(&comm->segment->finalized) < comm->size ? NCCL_IN_PROGRESS : NCCL_OK;
  else if (comm->error == NCCL_IN_PROGRESS) comm->error = started(comm);
  *error = comm->rounds > 0 ? NCCL_IN_PROGRESS : comm->error;
  if (comm->rounds > 0 && --comm->rounds == 0) launch(comm);
  sf_emulated_unlock();
  return NCCL_OK;
}

EXPORT int ncclCommFinalize(nccl_comm comm) {
  if (comm->under_way > 0 || comm->rounds > 0) sf_emulated_end("NCCL: a communicator ends with work under way");
  comm->finalized = true;
  atomic_fetch_add(&comm->segment->finalized, 1);
  return NCCL_IN_PROGRESS;
}

/* Comes back when all members that came have left. */
static void leave(struct sf_nccl_comm *comm) {
  const bool is_stuck = sf_emulated_names_rank(getenv("SF_EMULATED_NCCL_STUCK"));
  segment_say_left(comm->segment);
  while (is_stuck || !segment_all_left(comm->segment)) sf_emulated_pause();
  segment_unmap(comm->segment, comm->path, comm->size);
  comm->segment = NULL;
}

EXPORT int ncclCommDestroy(nccl_comm comm) {
  if (!comm->finalized || comm->error != NCCL_OK) sf_emulated_end("NCCL: a communicator is destroyed before it has ended");
  leave(comm);
  free(comm);
  return NCCL_OK;
}

/* What is under way ends when its stream comes to it, a while later. */
EXPORT int ncclCommAbort(nccl_comm comm) {
  sf_emulated_lock();
  sf_emulated_log("abort %d of %d%s\n", comm->rank, comm->size, comm->under_way > 0 ? " under way" : "");
  comm->aborted = true;
  atomic_store(&comm->segment->aborted, 1);
  if (comm->collected != NULL) {
    comm->under_way++;
    finish(comm->collected);
  }
  sf_emulated_unlock();
  usleep(ABORT_US);
  sf_emulated_lock();
  comm->ended = true;
  sf_emulated_unlock();
  leave(comm);
  sf_emulated_lock();
  comm->left = true;
  if (comm->under_way == 0) free(comm);
  sf_emulated_unlock();
  return NCCL_OK;
}

EXPORT const char *ncclGetErrorString(int error) {
  static const char *const texts[] = {"no error",
                                      "unhandled cuda error",
                                      "unhandled system error",
                                      "internal error",
                                      "invalid argument",
                                      "invalid usage",
                                      "remote process exited or there was a network error",
                                      "NCCL operation in progress"};
  return error >= 0 && error < (int)(sizeof texts / sizeof texts[0]) ? texts[error] : "unknown result code";
}

EXPORT const char *ncclGetLastError(nccl_comm comm) {
  (void)comm;
  return last_error;
}
