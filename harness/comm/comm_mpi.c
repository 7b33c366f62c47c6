/* The Open MPI backend: life of the job, one run, messages and requests. */
#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/base/system/launched.h"
#include "harness/comm/mpi_internal.h"

#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { INIT_SECONDS = 180, INIT_FAILED = 3 }; /* the exit code of a machine that fails */

/* --- leaving ---------------------------------------------------------------------------------------------------- */

void mpi_leave(struct sf_mpi *mpi, enum sf_status status, const char *label, const char *format, ...) {
  struct sf_comm_report *report = mpi->report;
  report->status = status;
  if (report->manner == SF_MANNER_NONE && status != SF_EMISMATCH) report->manner = SF_MANNER_REFUSED;
  if (report->rank < 0) report->rank = mpi->comm.rank;
  snprintf(report->label, sizeof report->label, "%s", label != NULL ? label : "");
  va_list args;
  va_start(args, format);
  vsnprintf(report->text, sizeof report->text, format, args);
  va_end(args);
  longjmp(mpi->escape, 1);
}

void mpi_must(struct sf_mpi *mpi, int code, const struct sf_comm_call *call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0, class = MPI_ERR_OTHER;
  MPI_Error_string(code, text, &length);
  MPI_Error_class(code, &class);
  mpi->report->manner = class == MPI_ERR_TRUNCATE ? SF_MANNER_COUNT : SF_MANNER_LIBRARY;
  mpi_leave(mpi, class == MPI_ERR_TRUNCATE ? SF_EMISMATCH : SF_ERANK, call->label, "rank %d, %s '%s' #%u: %.300s", mpi->comm.rank,
            sf_comm_op_name(call->op), call->label, call->occurrence, text);
}

void *mpi_scratch(struct sf_mpi *mpi, int index, size_t size_bytes) {
  struct mpi_scratch *scratch = &mpi->scratch[index];
  if (scratch->size_bytes >= size_bytes && scratch->data != NULL) return scratch->data;
  void *grown = sf_realloc(scratch->data, size_bytes + 64);
  if (grown == NULL) mpi_leave(mpi, SF_ENOMEM, mpi->comm.last_label, "no memory for %zu bytes on their way", size_bytes);
  *scratch = (struct mpi_scratch){.data = grown, .size_bytes = size_bytes};
  return grown;
}

int mpi_count(struct sf_mpi *mpi, int64_t count, const struct sf_comm_call *call) {
  if (count > INT_MAX) mpi_leave(mpi, SF_ENOTSUP, call->label, "%lld elements are more than MPI counts", (long long)count);
  return (int)count;
}

MPI_Datatype mpi_type_of(enum sf_dtype wire) { return wire == SF_F64 ? MPI_DOUBLE : sf_dtype_is_packed(wire) ? MPI_UINT16_T : MPI_FLOAT; }

/* --- messages and requests -------------------------------------------------------------------------------------- */

static uint16_t *wire_create(struct sf_mpi *mpi, const struct sf_comm_call *call) {
  const int64_t total = call->op == SF_COMM_ALL_REDUCE ? call->sends : call->sends + call->receives;
  uint16_t *wire = sf_alloc((size_t)total * sizeof *wire + 1);
  if (wire == NULL) mpi_leave(mpi, SF_ENOMEM, call->label, "no memory for %lld elements on their way", (long long)total);
  if (call->sends > 0) mpi_pack(wire, call->send, call->sends, call->wire);
  return wire;
}

static struct mpi_request *request_open(struct sf_mpi *mpi, const struct sf_comm_call *call) {
  uint16_t *wire = sf_dtype_is_packed(call->wire) ? wire_create(mpi, call) : NULL;
  struct mpi_request *request = sf_alloc(sizeof *request);
  if (request == NULL) {
    sf_free(wire);
    mpi_leave(mpi, SF_ENOMEM, call->label, "no memory for a request");
  }
  request->call = *call;
  request->wire = wire;
  request->check = request->data = MPI_REQUEST_NULL;
  request->id = ++mpi->last_id;
  request->next = mpi->open;
  if (mpi->open != NULL) mpi->open->prev = request;
  mpi->open = request;
  return request;
}

static void request_close(struct sf_mpi *mpi, struct mpi_request *request) {
  if (request->prev != NULL)
    request->prev->next = request->next;
  else
    mpi->open = request->next;
  if (request->next != NULL) request->next->prev = request->prev;
  sf_free(request->wire);
  sf_free(request);
}

static void start_message(struct sf_mpi *mpi, struct mpi_request *request) {
  const struct sf_comm_call *call = &request->call;
  const int count = mpi_count(mpi, call->count, call), peer = mpi->first + call->peer;
  const MPI_Datatype type = mpi_type_of(call->wire);
  int code;
  if (call->op == SF_COMM_SEND)
    code = MPI_Isend(request->wire != NULL ? request->wire : call->send, count, type, peer, call->tag, mpi->messages, &request->data);
  else
    code = MPI_Irecv(request->wire != NULL ? request->wire : call->recv, count, type, peer, call->tag, mpi->messages, &request->data);
  mpi_must(mpi, code, call);
}

/* Sends the agreement together with the data: a check that waits here would make the post wait for the other members. */
static void start_reduction(struct sf_mpi *mpi, struct mpi_request *request) {
  const struct sf_comm_call *call = &request->call;
  request->comm = mpi_group_comm(mpi, call->group, call);
  mpi_fingerprint(request->fingerprint, call);
  mpi_must(mpi, MPI_Iallreduce(MPI_IN_PLACE, request->fingerprint, 2, MPI_INT64_T, MPI_MIN, request->comm, &request->check), call);
  if (call->count == 0) return;
  const int count = mpi_count(mpi, call->sends, call);
  const MPI_Datatype type = mpi_type_of(call->wire);
  uint16_t *wire = request->wire;
  if (call->op == SF_COMM_ALL_REDUCE) {
    void *data = wire != NULL ? wire : call->recv;
    mpi_must(mpi, MPI_Iallreduce(MPI_IN_PLACE, data, count, type, mpi_op_of(mpi, call), request->comm, &request->data), call);
    return;
  }
  const void *out = wire != NULL ? wire : call->send;
  void *in = wire != NULL ? wire + count : call->recv;
  mpi_must(mpi, MPI_Ireduce_scatter_block(out, in, (int)call->count, type, mpi_op_of(mpi, call), request->comm, &request->data), call);
}

static void finish_message(struct sf_mpi *mpi, struct mpi_request *request) {
  const struct sf_comm_call *call = &request->call;
  MPI_Status status;
  mpi_must(mpi, mpi_wait_for(&request->data, &status), call);
  if (call->op == SF_COMM_SEND) return;
  int count = 0;
  mpi_must(mpi, MPI_Get_count(&status, mpi_type_of(call->wire), &count), call);
  if (count != call->count) {
    mpi->report->manner = SF_MANNER_COUNT;
    mpi_leave(mpi, SF_EMISMATCH, call->label, "rank %d expects %lld x %s in recv '%s' #%u from rank %d, which sent %d", mpi->comm.rank,
              (long long)call->count, sf_dtype_name(call->wire), call->label, call->occurrence, call->peer, count);
  }
  if (request->wire != NULL) sf_unpack(call->recv, request->wire, call->count, call->wire);
}

static void finish_reduction(struct sf_mpi *mpi, struct mpi_request *request) {
  const struct sf_comm_call *call = &request->call;
  int size = 0;
  mpi_must(mpi, MPI_Comm_size(request->comm, &size), call);
  mpi_must(mpi, mpi_wait_for(&request->check, MPI_STATUS_IGNORE), call);
  if (request->fingerprint[0] != -request->fingerprint[1]) mpi_report_disagreement(mpi, request->comm, call);
  mpi_must(mpi, mpi_wait_for(&request->data, MPI_STATUS_IGNORE), call);
  const uint16_t *in = request->wire;
  if (in != NULL && call->op == SF_COMM_REDUCE_SCATTER) in += call->count * size;
  mpi_finish_reduction(call, in, call->count, size);
}

static void request_finish(struct sf_mpi *mpi, struct mpi_request *request) {
  if (request->call.op == SF_COMM_ALL_REDUCE || request->call.op == SF_COMM_REDUCE_SCATTER)
    finish_reduction(mpi, request);
  else
    finish_message(mpi, request);
  request_close(mpi, request);
}

/* --- the backend's operations ----------------------------------------------------------------------------------- */

static sf_request mpi_start(struct sf_comm *comm, const struct sf_comm_call *call, bool blocking) {
  struct sf_mpi *mpi = comm->impl;
  mpi->report->calls++;
  if (call->group != NULL && blocking) {
    mpi_collective(mpi, call);
    return 0;
  }
  struct mpi_request *request = request_open(mpi, call);
  if (call->group != NULL)
    start_reduction(mpi, request);
  else
    start_message(mpi, request);
  if (!blocking) return request->id;
  request_finish(mpi, request);
  return 0;
}

static void mpi_wait(struct sf_comm *comm, sf_request id) {
  struct sf_mpi *mpi = comm->impl;
  struct mpi_request *request = mpi->open;
  while (request != NULL && request->id != id) request = request->next;
  if (request == NULL) mpi_leave_not_open(mpi, id);
  sf_comm_show_progress(comm, request->call.label);
  request_finish(mpi, request);
}

void mpi_leave_not_open(struct sf_mpi *mpi, sf_request id) {
  mpi->report->manner = SF_MANNER_REQUEST;
  mpi_leave(mpi, SF_ERANK, mpi->comm.last_label, "rank %d waits for request %llx, which it has not open (waited for twice?)",
            mpi->comm.rank, (unsigned long long)id);
}

void mpi_fail(struct sf_comm *comm, enum sf_status status, enum sf_manner manner, const char *text) {
  struct sf_mpi *mpi = comm->impl;
  mpi->report->manner = manner;
  mpi_leave(mpi, status == SF_OK ? SF_ERANK : status, comm->last_label, "%s", text);
}

static const struct sf_comm_ops mpi_ops = {.name = "mpi", .start = mpi_start, .wait = mpi_wait, .fail = mpi_fail};

/* --- waiting ---------------------------------------------------------------------------------------------------- */

void mpi_pause(double since) {
  static const double long_s = 0.01;
  if (MPI_Wtime() - since > long_s) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

int mpi_wait_for(MPI_Request *request, MPI_Status *status) {
  for (const double start = MPI_Wtime();; mpi_pause(start)) {
    int done = 0;
    const int code = MPI_Test(request, &done, status);
    if (code != MPI_SUCCESS || done) return code;
  }
}

/* --- one run ---------------------------------------------------------------------------------------------------- */

/* MPI may still write to the buffers of open requests, so their memory is kept until the job ends; receives can be cancelled. */
static void abandon_open(struct sf_mpi *mpi) {
  while (mpi->open != NULL) {
    struct mpi_request *request = mpi->open;
    mpi->open = request->next;
    if (request->call.op == SF_COMM_RECV && request->data != MPI_REQUEST_NULL && MPI_Cancel(&request->data) == MPI_SUCCESS)
      MPI_Wait(&request->data, MPI_STATUS_IGNORE);
    request->next = mpi->abandoned;
    mpi->abandoned = request;
  }
}

static void check_leaks(struct sf_mpi *mpi) {
  if (mpi->open == NULL) return;
  const struct mpi_request *oldest = mpi->open;
  int32_t more = 0;
  for (; oldest->next != NULL; oldest = oldest->next) more++;
  const struct sf_comm_call *call = &oldest->call;
  mpi->report->manner = SF_MANNER_REQUEST;
  mpi_leave(mpi, SF_ERANK, call->label, "rank %d ended without waiting for %s '%s' #%u and %d more requests", mpi->comm.rank,
            sf_comm_op_name(call->op), call->label, call->occurrence, more);
}

enum sf_status sf_mpi_run(struct sf_mpi *mpi, int32_t first, int32_t world, struct sf_comm_progress *progress, sf_rank_main rank_main,
                          void *arg, struct sf_comm_report *report) {
  SF_ASSERT_LE(0, first);
  SF_ASSERT_LE(first + world, mpi->world);
  SF_ASSERT_LE(first, mpi->rank);
  SF_ASSERT_LT(mpi->rank, first + world);
  *report = (struct sf_comm_report){.status = SF_OK, .rank = -1};
  mpi->report = report;
  mpi->first = first;
  mpi->comm = (struct sf_comm){.ops = mpi->transport != NULL ? mpi->transport->ops : &mpi_ops,
                               .impl = mpi,
                               .rank = mpi->rank - first,
                               .world = world,
                               .progress = progress};
  if (progress != NULL) *progress = (struct sf_comm_progress){.rank = mpi->comm.rank};
  const double start = MPI_Wtime();
  if (setjmp(mpi->escape) == 0) {
    if (mpi->transport != NULL) mpi->transport->begin(mpi, first, world);
    rank_main(&mpi->comm, arg);
    if (mpi->transport != NULL) mpi->transport->check(mpi);
    check_leaks(mpi);
  }
  if (progress != NULL) progress->in_call = SF_COMM_ENDED;
  if (mpi->transport != NULL) mpi->transport->end(mpi, report->status);
  abandon_open(mpi);
  report->seconds_total = MPI_Wtime() - start;
  return SF_OK;
}

/* --- the job ---------------------------------------------------------------------------------------------------- */

bool sf_mpi_available(void) { return true; }

int32_t sf_mpi_launched_world(void) { return sf_launched_size(); }

bool sf_mpi_launched(void) { return sf_launched_rank() >= 0; }

bool sf_mpi_may_complain(void) {
  const struct timespec wait = {.tv_sec = 10};
  int started = 0;
  if (sf_launched_rank() <= 0 || (MPI_Initialized(&started) == MPI_SUCCESS && started)) return true;
  return nanosleep(&wait, NULL) == 0;
}

static enum sf_status create_comms(struct sf_mpi *mpi) {
  if (MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN) != MPI_SUCCESS) return SF_EIO;
  if (MPI_Comm_dup(MPI_COMM_WORLD, &mpi->control) != MPI_SUCCESS || MPI_Comm_dup(MPI_COMM_WORLD, &mpi->messages) != MPI_SUCCESS)
    return SF_EIO;
  MPI_Comm_set_errhandler(mpi->control, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(mpi->messages, MPI_ERRORS_RETURN);
  mpi->group_mask = 63;
  mpi->groups = sf_alloc((mpi->group_mask + 1) * sizeof *mpi->groups);
  return mpi->groups == NULL ? SF_ENOMEM : mpi_ops_create(mpi);
}

static void give_up(int signal) {
  static const char text[] = "shardfuzz: MPI_Init did not come back within 3 minutes\n";
  (void)signal;
  (void)!write(STDERR_FILENO, text, sizeof text - 1);
  _exit(INIT_FAILED);
}

/* MPI_Init. Open MPI waits in it for ever where a connection of its own broke; then the process ends, and mpirun ends the job. */
static bool init_in_time(void) {
  const struct sigaction ends = {.sa_handler = give_up};
  struct sigaction before;
  int provided = 0;
  sigaction(SIGALRM, &ends, &before);
  alarm(INIT_SECONDS);
  const int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided);
  alarm(0);
  sigaction(SIGALRM, &before, NULL);
  return code == MPI_SUCCESS;
}

enum sf_status sf_mpi_create(struct sf_mpi **out, struct sf_error *error) {
  struct sf_mpi *mpi = sf_alloc(sizeof *mpi);
  if (mpi == NULL) return sf_error_set(error, SF_ENOMEM, "no memory for the MPI backend");
  int rank = 0, world = 0;
  mpi->control = mpi->messages = MPI_COMM_NULL;
  if (!init_in_time()) {
    sf_free(mpi);
    return sf_error_set(error, SF_EIO, "MPI_Init_thread failed");
  }
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  mpi->rank = rank;
  mpi->world = world;
  const enum sf_status status = create_comms(mpi);
  if (status != SF_OK) {
    sf_mpi_destroy(mpi);
    return sf_error_set(error, status, "MPI could not make the communicators");
  }
  *out = mpi;
  return SF_OK;
}

void sf_mpi_destroy(struct sf_mpi *mpi) {
  if (mpi == NULL) return;
  if (mpi->transport != NULL) mpi->transport->destroy(mpi);
  for (uint64_t i = 0; mpi->groups != NULL && i <= mpi->group_mask; i++)
    if (mpi->groups[i].key != 0) MPI_Comm_free(&mpi->groups[i].comm);
  mpi_ops_destroy(mpi);
  if (mpi->messages != MPI_COMM_NULL) MPI_Comm_free(&mpi->messages);
  if (mpi->control != MPI_COMM_NULL) MPI_Comm_free(&mpi->control);
  MPI_Finalize();
  while (mpi->abandoned != NULL) {
    struct mpi_request *request = mpi->abandoned;
    mpi->abandoned = request->next;
    sf_free(request->wire);
    sf_free(request);
  }
  for (int i = 0; i < 2; i++) sf_free(mpi->scratch[i].data);
  sf_free(mpi->groups);
  sf_free(mpi);
}

int32_t sf_mpi_rank(const struct sf_mpi *mpi) { return mpi->rank; }

int32_t sf_mpi_world(const struct sf_mpi *mpi) { return mpi->world; }

void sf_mpi_abort(struct sf_mpi *mpi, int exit_code) {
  if (mpi->transport != NULL) mpi->transport->abort(mpi);
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  abort();
}
