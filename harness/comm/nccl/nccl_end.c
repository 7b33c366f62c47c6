/* How communicators end. Abort, finalize and destroy of NCCL wait for the other members, which may be anywhere. So each communicator ends
 * in a thread of its own: a rank that leaves a run can say why at once, and ranks may end theirs in any order. Objects that kernels may
 * still use end with it: the stream, and the requests that hold buffers. */
#include "harness/base/alloc.h"
#include "harness/comm/nccl/nccl_internal.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

enum { FINALIZE_SECONDS = 2, PAUSE_MS = 1 };

struct nccl_ending {
  struct nccl_ending *next;
  const struct nccl_api *api;
  cu_context context;
  nccl_comm comm;
  cu_stream stream;
  cu_event event;
  struct nccl_request *requests; /* linked by next */
  bool is_orderly;
  atomic_bool is_over; /* the thread's last word */
};

struct nccl_ending *nccl_ending_create(void) { return sf_alloc(sizeof(struct nccl_ending)); }

void nccl_ending_destroy(struct nccl_ending *ending) { sf_free(ending); }

static void pause_a_moment(void) {
  const struct timespec moment = {0, PAUSE_MS * 1000000L};
  nanosleep(&moment, NULL);
}

/* Returns false if not all members came in time, or the communicator has failed. */
static bool finalize(const struct nccl_ending *ending) {
  const time_t until = time(NULL) + FINALIZE_SECONDS;
  int error = ending->api->nccl.CommFinalize(ending->comm);
  if (error != NCCL_OK && error != NCCL_IN_PROGRESS) return false;
  do {
    if (ending->api->nccl.CommGetAsyncError(ending->comm, &error) != NCCL_OK) return false;
    if (error != NCCL_IN_PROGRESS) return error == NCCL_OK;
    pause_a_moment();
  } while (time(NULL) <= until);
  return false;
}

static void *run_ending(void *argument) {
  struct nccl_ending *ending = argument;
  const struct nccl_api *api = ending->api;
  (void)api->cuda.CtxSetCurrent(ending->context);
  if (ending->is_orderly && finalize(ending)) (void)api->nccl.CommDestroy(ending->comm);
  else (void)api->nccl.CommAbort(ending->comm);
  (void)api->cuda.StreamSynchronize(ending->stream);
  (void)api->cuda.EventDestroy(ending->event);
  (void)api->cuda.StreamDestroy(ending->stream);
  atomic_store(&ending->is_over, true);
  return NULL;
}

/* Starts the thread with signals blocked, because their handlers look at what the main thread does. If no thread can start, the ending is
 * never over. */
static void start(struct nccl_ending *ending) {
  pthread_t thread;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  if (pthread_create(&thread, NULL, run_ending, ending) == 0) pthread_detach(thread);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void take_request(struct sf_nccl *nccl, struct nccl_ending *ending, struct nccl_request *request) {
  if (request == NULL) return;
  nccl_request_unlink(nccl, request);
  request->next = ending->requests;
  ending->requests = request;
}

void nccl_channel_end(struct sf_nccl *nccl, struct nccl_channel *channel, bool is_orderly) {
  struct nccl_ending *ending = channel->ending;
  struct nccl_request *request = channel->first;
  channel->state = CHANNEL_ABSENT;
  channel->first = channel->last = NULL;
  if (channel->comm == NULL) return;
  *ending = (struct nccl_ending){.next = nccl->endings,
                                 .api = &nccl->api,
                                 .context = nccl->context,
                                 .comm = channel->comm,
                                 .stream = channel->stream,
                                 .event = channel->event,
                                 .is_orderly = is_orderly};
  if (request != NULL && request->state != REQUEST_QUEUED) {
    take_request(nccl, ending, request->own_send);
    take_request(nccl, ending, request);
  }
  nccl->endings = ending;
  channel->comm = NULL;
  channel->stream = NULL;
  channel->event = NULL;
  channel->ending = NULL;
  start(ending);
}

static void clear(struct sf_nccl *nccl, struct nccl_ending *ending) {
  while (ending->requests != NULL) {
    struct nccl_request *request = ending->requests;
    ending->requests = request->next;
    nccl_request_clear(nccl, request);
    sf_free(request);
  }
  nccl_ending_destroy(ending);
}

void nccl_endings_clear(struct sf_nccl *nccl) {
  for (struct nccl_ending **at = &nccl->endings; *at != NULL;) {
    struct nccl_ending *ending = *at;
    if (!atomic_load(&ending->is_over)) {
      at = &ending->next;
      continue;
    }
    *at = ending->next;
    clear(nccl, ending);
  }
}

bool nccl_endings_wait(struct sf_nccl *nccl, double seconds) {
  const double until = MPI_Wtime() + seconds;
  for (;;) {
    nccl_endings_clear(nccl);
    if (nccl->endings == NULL) return true;
    if (MPI_Wtime() > until) return false;
    pause_a_moment();
  }
}
