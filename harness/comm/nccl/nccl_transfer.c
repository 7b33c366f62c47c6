/* Moves data between GPUs: makes communicators, runs requests on them one by one, and converts values on their way to and from buffers on
 * the GPU. Communicators do not block: each round asks for what NCCL has still to do, so that an error or an abort reaches a rank that
 * waits. */
#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/comm/nccl/nccl_internal.h"

#include <string.h>

enum { BUFFER_LEAST_BYTES = 4096 };
/* Blocks of a communicator's kernel if ranks share a GPU. The blocks of all communicators of all ranks must be resident at once, since they
 * wait for each other. */
enum { SHARED_CTAS_MOST = 2 };

/* NCCL has no result code for lack of memory, on the GPU, on the host, or in what processes share (/dev/shm). These are the messages that
 * it writes for that. */
static bool is_want_of_memory(int result, const char *words) {
  static const char *const known[] = {"out of memory",    "Failed to CUDA malloc",  "Failed to CUDA calloc",  "Failed to CUDA host alloc",
                                      "Failed to malloc", "Cannot allocate memory", "No space left on device"};
  if (result != NCCL_CUDA_ERROR && result != NCCL_SYSTEM_ERROR) return false;
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
    if (strstr(words, known[i]) != NULL) return true;
  return false;
}

void nccl_must(struct sf_nccl *nccl, int result, const struct nccl_channel *channel, const struct sf_comm_call *call) {
  if (result == NCCL_OK || result == NCCL_IN_PROGRESS) return;
  const char *more = nccl->api.nccl.GetLastError(channel != NULL ? channel->comm : NULL);
  if (more == NULL) more = "";
  nccl->mpi->report->manner = SF_MANNER_LIBRARY;
  mpi_leave(nccl->mpi, is_want_of_memory(result, more) ? SF_ENOMEM : SF_ERANK, call->label, "rank %d, %s '%s' #%u: NCCL: %.200s%s%.300s",
            nccl->mpi->comm.rank, sf_comm_op_name(call->op), call->label, call->occurrence, nccl->api.nccl.GetErrorString(result),
            *more ? ": " : "", more);
}

void nccl_cuda_must(struct sf_nccl *nccl, int result, const struct sf_comm_call *call) {
  const char *text = NULL;
  if (result == CU_OK) return;
  (void)nccl->api.cuda.GetErrorString(result, &text);
  nccl->mpi->report->manner = SF_MANNER_LIBRARY;
  mpi_leave(nccl->mpi, result == CU_OUT_OF_MEMORY ? SF_ENOMEM : SF_ERANK, call->label, "rank %d, %s '%s' #%u: CUDA: %.300s",
            nccl->mpi->comm.rank, sf_comm_op_name(call->op), call->label, call->occurrence, text != NULL ? text : "unknown error");
}

/* --- buffers on the GPU -------------------------------------------------------------------------------------------- */

/* Takes a buffer, which is kept until the job ends: freeing memory waits for everything that runs on the GPU. */
static void *buffer_take(struct sf_nccl *nccl, size_t size_bytes, const struct sf_comm_call *call) {
  size_t rounded = BUFFER_LEAST_BYTES;
  while (rounded < size_bytes) rounded *= 2;
  for (int32_t i = 0; i < nccl->buffer_count; i++) {
    struct nccl_buffer *buffer = &nccl->buffers[i];
    if (buffer->used || buffer->size_bytes != rounded) continue;
    buffer->used = true;
    return buffer->memory;
  }
  if (nccl->buffer_count == nccl->buffer_capacity) {
    const int32_t capacity = 2 * nccl->buffer_capacity + 16;
    struct nccl_buffer *grown = sf_realloc(nccl->buffers, (size_t)capacity * sizeof *grown);
    if (grown == NULL) mpi_leave(nccl->mpi, SF_ENOMEM, call->label, "no memory for the table of buffers");
    nccl->buffers = grown;
    nccl->buffer_capacity = capacity;
  }
  cu_pointer memory = 0;
  if (nccl->api.cuda.MemAlloc(&memory, rounded) != CU_OK)
    mpi_leave(nccl->mpi, SF_ENOMEM, call->label, "no memory on the GPU for %zu bytes on their way", rounded);
  nccl->buffers[nccl->buffer_count++] = (struct nccl_buffer){.memory = (void *)(uintptr_t)memory, .size_bytes = rounded, .used = true};
  return (void *)(uintptr_t)memory;
}

static void buffer_give(struct sf_nccl *nccl, const void *memory) {
  for (int32_t i = 0; i < nccl->buffer_count; i++)
    if (nccl->buffers[i].memory == memory) nccl->buffers[i].used = false;
}

void nccl_request_clear(struct sf_nccl *nccl, struct nccl_request *request) {
  if (request->in != NULL) buffer_give(nccl, request->in);
  if (request->out != NULL) buffer_give(nccl, request->out);
  sf_free(request->host);
  request->in = request->out = request->host = NULL;
}

/* --- values on their way --------------------------------------------------------------------------------------------- */

/* Two's complement orders non-negative floats; for negative ones all bits but the sign are inverted. */
static inline int32_t key_f32(int32_t bits) { return bits ^ (int32_t)((uint32_t)(bits >> 31) >> 1); }
static inline int64_t key_f64(int64_t bits) { return bits ^ (int64_t)((uint64_t)(bits >> 63) >> 1); }

void nccl_keys_of_values(void *keys, const void *values, int64_t count, enum sf_dtype wire) {
  for (int64_t i = 0; i < count; i++) {
    if (wire == SF_F64) {
      const double x = ((const double *)values)[i];
      int64_t bits;
      memcpy(&bits, &x, sizeof bits);
      ((int64_t *)keys)[i] = x == x ? key_f64(bits) : INT64_MAX;
    } else {
      const float x = sf_round(((const float *)values)[i], wire);
      int32_t bits;
      memcpy(&bits, &x, sizeof bits);
      ((int32_t *)keys)[i] = x == x ? key_f32(bits) : INT32_MAX;
    }
  }
}

void nccl_values_of_keys(void *values, const void *keys, int64_t count, enum sf_dtype wire) {
  for (int64_t i = 0; i < count; i++) {
    if (wire == SF_F64) {
      const int64_t key = ((const int64_t *)keys)[i], bits = key_f64(key);
      double x;
      memcpy(&x, &bits, sizeof x);
      ((double *)values)[i] = key == INT64_MAX ? __builtin_nan("") : x;
    } else {
      const int32_t key = ((const int32_t *)keys)[i], bits = key_f32(key);
      float x;
      memcpy(&x, &bits, sizeof x);
      ((float *)values)[i] = key == INT32_MAX ? __builtin_nanf("") : x;
    }
  }
}

struct form {
  bool keys, packed; /* how `host` holds values; neither: values travel as the caller holds them */
  int type;
  size_t element_bytes;
  int64_t in, out; /* elements that go to the GPU and come back */
};

static bool is_reduction(const struct sf_comm_call *call) { return call->op == SF_COMM_ALL_REDUCE || call->op == SF_COMM_REDUCE_SCATTER; }

static struct form form_of(const struct nccl_request *request) {
  static const int types[SF_WIRE_DTYPE_COUNT] = {
      [SF_F32] = NCCL_FLOAT32, [SF_BF16] = NCCL_BFLOAT16, [SF_F16] = NCCL_FLOAT16, [SF_F64] = NCCL_FLOAT64};
  const struct sf_comm_call *call = &request->call;
  struct form form = {.in = call->sends, .out = call->receives};
  form.keys = is_reduction(call) && call->reduce == SF_REDUCE_MAX;
  form.packed = !form.keys && sf_dtype_is_packed(call->wire);
  form.type = form.keys ? (call->wire == SF_F64 ? NCCL_INT64 : NCCL_INT32) : types[call->wire];
  form.element_bytes = form.packed ? 2 : call->wire == SF_F64 ? 8 : 4;
  if (call->op == SF_COMM_BROADCAST && request->channel->index != call->root) form.in = 0;
  return form;
}

static bool works_in_place(const struct sf_comm_call *call) { return call->op == SF_COMM_ALL_REDUCE || call->op == SF_COMM_BROADCAST; }

/* Takes buffers and copies the values into them. */
static void bring_in(struct sf_nccl *nccl, struct nccl_request *request, const struct form *form) {
  const struct sf_comm_call *call = &request->call;
  const size_t in_bytes = (size_t)form->in * form->element_bytes, out_bytes = (size_t)form->out * form->element_bytes;
  const size_t most_bytes = in_bytes > out_bytes ? in_bytes : out_bytes;
  const void *from = call->send;
  if (form->in > 0 || works_in_place(call)) request->in = buffer_take(nccl, works_in_place(call) ? most_bytes : in_bytes, call);
  if (form->out > 0) request->out = works_in_place(call) ? request->in : buffer_take(nccl, out_bytes, call);
  if (form->keys || form->packed) {
    request->host = sf_alloc(most_bytes + 1);
    if (request->host == NULL) mpi_leave(nccl->mpi, SF_ENOMEM, call->label, "no memory for %zu bytes on their way", most_bytes);
    if (form->keys) nccl_keys_of_values(request->host, call->send, form->in, call->wire);
    else if (form->in > 0) mpi_pack(request->host, call->send, form->in, call->wire);
    from = request->host;
  }
  if (form->in > 0)
    nccl_cuda_must(
        nccl,
        nccl->api.cuda.MemcpyAsync((cu_pointer)(uintptr_t)request->in, (cu_pointer)(uintptr_t)from, in_bytes, request->channel->stream),
        call);
}

/* Copies what has arrived to the caller. */
static void bring_out(struct sf_nccl *nccl, struct nccl_request *request) {
  const struct sf_comm_call *call = &request->call;
  const struct form form = form_of(request);
  if (call->op == SF_COMM_BARRIER || form.out == 0) return;
  void *to = request->host != NULL ? request->host : call->recv;
  cu_stream stream = request->channel->stream;
  nccl_cuda_must(nccl,
                 nccl->api.cuda.MemcpyAsync((cu_pointer)(uintptr_t)to, (cu_pointer)(uintptr_t)request->out,
                                            (size_t)form.out * form.element_bytes, stream),
                 call);
  nccl_cuda_must(nccl, nccl->api.cuda.StreamSynchronize(stream), call);
  if (form.keys)
    nccl_values_of_keys(call->recv, request->host, form.out, call->wire);
  else if (is_reduction(call))
    mpi_finish_reduction(call, request->host, form.out, request->channel->size);
  else if (form.packed)
    sf_unpack(call->recv, request->host, form.out, call->wire);
}

/* --- running --------------------------------------------------------------------------------------------------------- */

/* Exchanges every pair's piece, including a rank's own, in one group. */
static int exchange(struct sf_nccl *nccl, const struct nccl_request *request, const struct form *form) {
  const struct nccl_channel *channel = request->channel;
  const char *out = request->in;
  char *in = request->out;
  int result = NCCL_OK;
  for (int32_t i = 0; i < channel->size && result == NCCL_OK; i++) {
    const int64_t sent = request->call.send_counts[i], received = request->call.recv_counts[i];
    if (sent > 0) result = nccl->api.nccl.Send(out, (size_t)sent, form->type, i, channel->comm, channel->stream);
    if (received > 0 && result == NCCL_OK)
      result = nccl->api.nccl.Recv(in, (size_t)received, form->type, i, channel->comm, channel->stream);
    if (sent > 0) out += (size_t)sent * form->element_bytes;
    if (received > 0) in += (size_t)received * form->element_bytes;
  }
  return result;
}

static int message(struct sf_nccl *nccl, struct nccl_request *request, const struct form *form) {
  const struct nccl_channel *channel = request->channel;
  const size_t count = (size_t)request->call.count;
  if (request->call.op == SF_COMM_SEND) return nccl->api.nccl.Send(request->in, count, form->type, 1, channel->comm, channel->stream);
  if (request->own_send == NULL) return nccl->api.nccl.Recv(request->out, count, form->type, 0, channel->comm, channel->stream);
  const int result = nccl->api.nccl.Send(request->own_send->in, count, form->type, 0, channel->comm, channel->stream);
  return result != NCCL_OK ? result : nccl->api.nccl.Recv(request->out, count, form->type, 0, channel->comm, channel->stream);
}

static int call_nccl(struct sf_nccl *nccl, struct nccl_request *request, const struct form *form) {
  const struct sf_comm_call *call = &request->call;
  const struct nccl_channel *channel = request->channel;
  const int op = form->keys ? NCCL_MAX : NCCL_SUM;
  const size_t count = (size_t)call->count;
  switch (call->op) {
  case SF_COMM_ALL_REDUCE:
    return nccl->api.nccl.AllReduce(request->in, request->out, count, form->type, op, channel->comm, channel->stream);
  case SF_COMM_REDUCE_SCATTER:
    return nccl->api.nccl.ReduceScatter(request->in, request->out, count, form->type, op, channel->comm, channel->stream);
  case SF_COMM_ALL_GATHER:
    return nccl->api.nccl.AllGather(request->in, request->out, count, form->type, channel->comm, channel->stream);
  case SF_COMM_BROADCAST:
    return nccl->api.nccl.Broadcast(request->in, request->out, count, form->type, call->root, channel->comm, channel->stream);
  case SF_COMM_ALL_TO_ALL:
    return exchange(nccl, request, form);
  case SF_COMM_BARRIER:
    return nccl->api.nccl.AllReduce(request->in, request->in, 1, NCCL_INT32, NCCL_SUM, channel->comm, channel->stream);
  default:
    return message(nccl, request, form);
  }
}

static void issue(struct sf_nccl *nccl, struct nccl_request *request) {
  const struct sf_comm_call *call = &request->call;
  const struct form form = form_of(request);
  request->state = REQUEST_ISSUED; /* its buffers are in use from the first copy on, however this ends */
  bring_in(nccl, request, &form);
  if (call->op == SF_COMM_BARRIER) {
    request->in = buffer_take(nccl, sizeof(int32_t), call);
    nccl_cuda_must(nccl, nccl->api.cuda.MemsetAsync((cu_pointer)(uintptr_t)request->in, 0, sizeof(int32_t), request->channel->stream),
                   call);
  }
  if (request->own_send != NULL) {
    const struct form sent = form_of(request->own_send);
    bring_in(nccl, request->own_send, &sent);
  }
  nccl_must(nccl, nccl->api.nccl.GroupStart(), request->channel, call);
  const int result = call_nccl(nccl, request, &form);
  const int ended = nccl->api.nccl.GroupEnd(); /* also after an error; otherwise the next group would become part of this one */
  nccl_must(nccl, result, request->channel, call);
  nccl_must(nccl, ended, request->channel, call);
}

static void finish(struct sf_nccl *nccl, struct nccl_request *request) {
  struct nccl_channel *channel = request->channel;
  bring_out(nccl, request);
  channel->first = request->next_in_channel;
  if (channel->first == NULL) channel->last = NULL;
  request->state = REQUEST_DONE;
  if (request->own_send != NULL) request->own_send->state = REQUEST_DONE;
}

/* Whether the communicator has done its work; leaves the run on its error. */
static bool is_ready(struct sf_nccl *nccl, const struct nccl_channel *channel, const struct sf_comm_call *call) {
  int error = NCCL_OK;
  nccl_must(nccl, nccl->api.nccl.CommGetAsyncError(channel->comm, &error), channel, call);
  nccl_must(nccl, error, channel, call);
  return error == NCCL_OK;
}

static void advance(struct sf_nccl *nccl, struct nccl_channel *channel) {
  struct nccl_request *request = channel->first;
  const struct sf_comm_call *call = &request->call;
  if (!is_ready(nccl, channel, call)) return;
  channel->state = CHANNEL_OPEN;
  if (request->state == REQUEST_QUEUED) nccl_bind(nccl, request);
  if (request->state == REQUEST_BOUND && channel->index == 0) nccl_start_bound(nccl, request);
  if (request->state == REQUEST_BOUND) return;
  if (request->state == REQUEST_STARTED) {
    issue(nccl, request);
    channel->turn++;
  } else if (request->state == REQUEST_ISSUED) {
    nccl_cuda_must(nccl, nccl->api.cuda.EventRecord(channel->event, channel->stream), call);
    request->state = REQUEST_RUNNING;
  } else {
    const int result = nccl->api.cuda.EventQuery(channel->event);
    if (result == CU_NOT_READY) return;
    nccl_cuda_must(nccl, result, call);
    finish(nccl, request);
  }
}

void nccl_move(struct sf_nccl *nccl) {
  for (struct nccl_channel *channel = nccl->channels; channel != NULL; channel = channel->next)
    if (channel->first != NULL) advance(nccl, channel);
}

bool nccl_is_bound(const struct sf_nccl *nccl) {
  for (const struct nccl_channel *channel = nccl->channels; channel != NULL; channel = channel->next)
    if (channel->first != NULL && channel->first->state >= REQUEST_BOUND && channel->first->state <= REQUEST_ISSUED) return true;
  return false;
}

/* --- channels -------------------------------------------------------------------------------------------------------- */

static void open_channel(struct sf_nccl *nccl, struct nccl_channel *channel, const struct nccl_id *id, const struct sf_comm_call *call) {
  struct nccl_config config = {.size = sizeof config,
                               .magic = (unsigned)NCCL_MAGIC,
                               .version = NCCL_CONFIG_VERSION,
                               .blocking = 0,
                               .cga_cluster_size = NCCL_UNDEFINED,
                               .min_ctas = nccl->sharers > 1 ? 1 : NCCL_UNDEFINED,
                               .max_ctas = nccl->sharers > 1 ? SHARED_CTAS_MOST : NCCL_UNDEFINED,
                               .net_name = NULL,
                               .split_share = NCCL_UNDEFINED};
  if (channel->state != CHANNEL_ABSENT && memcmp(&channel->opened, id, sizeof *id) == 0) return;
  nccl_channel_end(nccl, channel, false);
  if (channel->ending == NULL) channel->ending = nccl_ending_create();
  if (channel->ending == NULL) mpi_leave(nccl->mpi, SF_ENOMEM, call->label, "no memory for a communicator");
  if (channel->stream == NULL) nccl_cuda_must(nccl, nccl->api.cuda.StreamCreate(&channel->stream, CU_STREAM_OF_ITS_OWN), call);
  if (channel->event == NULL) nccl_cuda_must(nccl, nccl->api.cuda.EventCreate(&channel->event, CU_EVENT_WITHOUT_TIME), call);
  nccl_must(nccl, nccl->api.nccl.CommInitRankConfig(&channel->comm, channel->size, *id, channel->index, &config), channel, call);
  channel->opened = *id;
  channel->state = CHANNEL_STARTING;
}

void nccl_enqueue(struct sf_nccl *nccl, struct nccl_request *request, const struct nccl_id *id) {
  struct nccl_channel *channel = request->channel;
  const enum sf_comm_op op = request->call.op;
  if (request->call.count == 0 && op != SF_COMM_BARRIER && op != SF_COMM_ALL_TO_ALL) { /* the same on all members */
    request->state = REQUEST_DONE;
    if (request->own_send != NULL) request->own_send->state = REQUEST_DONE;
    return;
  }
  if (id != NULL) open_channel(nccl, channel, id, &request->call);
  request->state = REQUEST_QUEUED;
  if (channel->last != NULL) channel->last->next_in_channel = request;
  else channel->first = request;
  channel->last = request;
}

void nccl_channel_destroy(struct sf_nccl *nccl, struct nccl_channel *channel) {
  SF_ASSERT(channel->comm == NULL);
  if (channel->event != NULL) (void)nccl->api.cuda.EventDestroy(channel->event);
  if (channel->stream != NULL) (void)nccl->api.cuda.StreamDestroy(channel->stream);
  nccl_ending_destroy(channel->ending);
  sf_free(channel->ranks);
  sf_free(channel);
}
