/* Where members meet: those of a collective at its first member, the ends of a message at its receiver. There calls are compared before any
 * data move, and communicators get their names. */
#include "harness/base/alloc.h"
#include "harness/base/hash.h"
#include "harness/comm/nccl/nccl_internal.h"

#include <stdio.h>
#include <string.h>

enum { NOTE_TAG = 1 };
static const size_t travels_from = offsetof(struct nccl_note, kind);

/* --- channels ----------------------------------------------------------------------------------------------------- */

static struct nccl_channel *channel_create(const int32_t *ranks, int32_t size, int32_t index, uint64_t key) {
  struct nccl_channel *channel = sf_alloc(sizeof *channel);
  if (channel == NULL) return NULL;
  channel->ranks = sf_alloc((size_t)size * sizeof *ranks);
  if (channel->ranks == NULL) {
    sf_free(channel);
    return NULL;
  }
  memcpy(channel->ranks, ranks, (size_t)size * sizeof *ranks);
  channel->key = key;
  channel->size = size;
  channel->index = index;
  return channel;
}

struct nccl_channel *nccl_channel_of(struct sf_nccl *nccl, const int32_t *ranks, int32_t size, int32_t index, bool is_messages,
                                     const struct sf_comm_call *call) {
  uint64_t key = sf_hash_u64((uint64_t)size, is_messages);
  for (int32_t i = 0; i < size; i++) key = sf_hash_u64(key, (uint64_t)ranks[i]);
  for (struct nccl_channel *channel = nccl->channels; channel != NULL; channel = channel->next)
    if (channel->key == key) return channel;
  struct nccl_channel *channel = channel_create(ranks, size, index, key);
  if (channel == NULL) mpi_leave(nccl->mpi, SF_ENOMEM, call->label, "no memory for a communicator");
  channel->next = nccl->channels;
  nccl->channels = channel;
  return channel;
}

/* The channel for messages from one rank of the job to another. */
static struct nccl_channel *channel_between(struct sf_nccl *nccl, int32_t from, int32_t to, const struct sf_comm_call *call) {
  const int32_t ranks[2] = {from, to};
  if (from == to) return nccl_channel_of(nccl, ranks, 1, 0, true, call);
  return nccl_channel_of(nccl, ranks, 2, nccl->mpi->rank == to, true, call);
}

/* --- notes -------------------------------------------------------------------------------------------------------- */

static size_t note_bytes(int32_t size) { return sizeof(struct nccl_note) + 2 * (size_t)size * sizeof(int64_t); }

/* size: number of members whose counts fit. */
static struct nccl_note *note_create(struct sf_nccl *nccl, enum nccl_note_kind kind, const struct nccl_request *request, int32_t size) {
  struct nccl_note *note = sf_alloc(note_bytes(size));
  if (note == NULL) mpi_leave(nccl->mpi, SF_ENOMEM, request->call.label, "no memory for a note to another rank");
  note->kind = (int32_t)kind;
  note->from = nccl->mpi->rank;
  note->tag = request->call.tag;
  note->size = size;
  note->epoch = nccl->epoch;
  note->key = request->channel->key;
  note->sequence = request->sequence;
  note->has_channel = request->channel->state != CHANNEL_ABSENT;
  note->call = mpi_summary_of(&request->call, nccl->mpi->comm.rank);
  note->rank = note->call.rank;
  return note;
}

static void keep(struct sf_nccl *nccl, struct nccl_note *note) {
  struct nccl_note **at = &nccl->inbox;
  while (*at != NULL) at = &(*at)->next;
  note->next = NULL;
  *at = note;
}

static void take_out(struct sf_nccl *nccl, struct nccl_note *note) {
  struct nccl_note **at = &nccl->inbox;
  while (*at != note) at = &(*at)->next;
  *at = note->next;
  sf_free(note);
}

/* Takes the note. */
static void note_send(struct sf_nccl *nccl, struct nccl_note *note, int32_t to, const struct sf_comm_call *call) {
  if (to == nccl->mpi->rank) {
    keep(nccl, note);
    return;
  }
  note->next = nccl->outbox;
  nccl->outbox = note;
  mpi_must(nccl->mpi,
           MPI_Isend(&note->kind, (int)(note_bytes(note->size) - travels_from), MPI_BYTE, to, NOTE_TAG, nccl->notes, &note->sending), call);
}

static void forget_sent(struct sf_nccl *nccl) {
  struct nccl_note **at = &nccl->outbox;
  while (*at != NULL) {
    struct nccl_note *note = *at;
    int done = 0;
    if (MPI_Test(&note->sending, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done) {
      at = &note->next;
      continue;
    }
    *at = note->next;
    sf_free(note);
  }
}

void nccl_drop_notes(struct sf_nccl *nccl) {
  while (nccl->inbox != NULL) take_out(nccl, nccl->inbox);
  forget_sent(nccl);
}

/* --- collectives --------------------------------------------------------------------------------------------------- */

/* The note of the member's call that this request is compared with; NULL: it has not come. */
static struct nccl_note *call_of_member(const struct sf_nccl *nccl, const struct nccl_request *request, int32_t member) {
  for (struct nccl_note *note = nccl->inbox; note != NULL; note = note->next)
    if (note->kind == NOTE_CALL && note->key == request->channel->key && note->sequence == request->sequence &&
        note->from == request->channel->ranks[member])
      return note;
  return NULL;
}

/* counts of all-to-all: [0, size) what it sends, [size, 2 size) what it expects. */
static int64_t count_of(const struct sf_nccl *nccl, const struct nccl_request *request, int32_t member, bool sent, int32_t other) {
  if (member == 0) return (sent ? request->call.send_counts : request->call.recv_counts)[other];
  return call_of_member(nccl, request, member)->counts[sent ? other : request->channel->size + other];
}

static int32_t rank_in_run(const struct sf_nccl *nccl, const struct nccl_channel *channel, int32_t member) {
  return channel->ranks[member] - nccl->mpi->first;
}

/* Fills the answer if a piece of an all-to-all is not what its receiver expects; the last such receiver counts. */
static void compare_pieces(const struct sf_nccl *nccl, const struct nccl_request *request, struct nccl_note *answer) {
  const struct nccl_channel *channel = request->channel;
  for (int32_t to = 0; to < channel->size; to++)
    for (int32_t from = 0; from < channel->size; from++) {
      const int64_t sent = count_of(nccl, request, from, true, to), expected = count_of(nccl, request, to, false, from);
      if (sent == expected) continue;
      answer->status = SF_EMISMATCH;
      answer->manner = SF_MANNER_COUNT;
      answer->rank = rank_in_run(nccl, channel, from);
      snprintf(answer->text, sizeof answer->text, "rank %d sends %lld elements to rank %d in all_to_all '%s' #%u, which expects %lld",
               answer->rank, (long long)sent, rank_in_run(nccl, channel, to), request->call.label, request->call.occurrence,
               (long long)expected);
    }
}

static void compare_calls(const struct sf_nccl *nccl, const struct nccl_request *request, struct nccl_note *answer) {
  for (int32_t member = 1; member < request->channel->size; member++) {
    const struct mpi_summary *other = &call_of_member(nccl, request, member)->call;
    if (mpi_same_call(&answer->call, other)) continue;
    char first_text[160], other_text[160];
    mpi_summary_text(first_text, &answer->call);
    mpi_summary_text(other_text, other);
    answer->status = SF_EMISMATCH;
    answer->manner = mpi_manner_of(&answer->call, other);
    snprintf(answer->text, sizeof answer->text, "%s, %s", first_text, other_text);
    return;
  }
  if (request->call.op == SF_COMM_ALL_TO_ALL) compare_pieces(nccl, request, answer);
}

static _Noreturn void leave_as_told(struct sf_nccl *nccl, const struct nccl_note *told, const struct sf_comm_call *call) {
  nccl->mpi->report->rank = told->rank; /* the same on all ranks */
  nccl->mpi->report->manner = told->manner;
  mpi_leave(nccl->mpi, told->status, call->label, "%s", told->text);
}

/* Names a communicator that some member lacks, once a run: calls that were made before its first answer all get the same name. */
static void name_communicator(struct sf_nccl *nccl, struct nccl_note *answer, const struct nccl_request *request) {
  struct nccl_channel *channel = request->channel;
  if (answer->has_channel) return;
  if (channel->named_in != nccl->epoch) nccl_must(nccl, nccl->api.nccl.GetUniqueId(&channel->name), NULL, &request->call);
  channel->named_in = nccl->epoch;
  answer->id = channel->name;
}

/* At the first member: tells all members when all calls have come. */
static void answer_members(struct sf_nccl *nccl, struct nccl_request *request) {
  const struct nccl_channel *channel = request->channel;
  for (int32_t member = 1; member < channel->size; member++)
    if (call_of_member(nccl, request, member) == NULL) return;
  struct nccl_note *answer = note_create(nccl, NOTE_ANSWER, request, 0);
  compare_calls(nccl, request, answer);
  for (int32_t member = 1; member < channel->size; member++) {
    struct nccl_note *note = call_of_member(nccl, request, member);
    answer->has_channel = answer->has_channel && note->has_channel;
    take_out(nccl, note);
  }
  if (answer->status == SF_OK) name_communicator(nccl, answer, request);
  for (int32_t member = 1; member < channel->size; member++) {
    struct nccl_note *copy = note_create(nccl, NOTE_ANSWER, request, 0);
    memcpy((char *)copy + travels_from, (const char *)answer + travels_from, note_bytes(0) - travels_from);
    note_send(nccl, copy, channel->ranks[member], &request->call);
  }
  keep(nccl, answer); /* for this rank itself */
}

/* --- messages ------------------------------------------------------------------------------------------------------ */

static struct nccl_note *offer_for(const struct sf_nccl *nccl, const struct nccl_request *request) {
  const int32_t from = nccl->mpi->first + request->call.peer;
  for (struct nccl_note *note = nccl->inbox; note != NULL; note = note->next)
    if (note->kind == NOTE_OFFER && note->from == from && note->tag == request->call.tag) return note;
  return NULL;
}

static void compare_message(const struct sf_nccl *nccl, const struct nccl_request *request, const struct nccl_note *offer,
                            struct nccl_note *go) {
  const struct sf_comm_call *call = &request->call;
  if (offer->call.count == call->count && offer->call.wire == (int32_t)call->wire) return;
  go->status = SF_EMISMATCH;
  go->manner = offer->call.wire == (int32_t)call->wire ? SF_MANNER_COUNT : SF_MANNER_FORMAT;
  snprintf(go->text, sizeof go->text, "rank %d expects %lld x %s in recv '%s' #%u from rank %d, which sent %lld x %s", nccl->mpi->comm.rank,
           (long long)call->count, sf_dtype_name(call->wire), call->label, call->occurrence, call->peer, (long long)offer->call.count,
           sf_dtype_name((enum sf_dtype)offer->call.wire));
}

static struct nccl_request *request_of(const struct sf_nccl *nccl, uint64_t id) {
  struct nccl_request *request = nccl->first;
  while (request != NULL && request->id != id) request = request->next;
  return request;
}

/* At the receiver: takes the oldest offer under the tag, and tells its sender to begin. */
static void take_offer(struct sf_nccl *nccl, struct nccl_request *request) {
  struct nccl_note *offer = offer_for(nccl, request);
  if (offer == NULL) return;
  struct nccl_note *go = note_create(nccl, NOTE_GO, request, 0);
  const int32_t sender = offer->from;
  compare_message(nccl, request, offer, go);
  go->has_channel = go->has_channel && offer->has_channel;
  go->sequence = offer->sequence;
  if (go->status == SF_OK) name_communicator(nccl, go, request);
  take_out(nccl, offer);
  struct nccl_note told = *go;
  if (sender == nccl->mpi->rank) {
    request->own_send = request_of(nccl, go->sequence);
    if (request->own_send != NULL) request->own_send->state = REQUEST_QUEUED;
    sf_free(go);
  } else {
    note_send(nccl, go, sender, &request->call);
  }
  if (told.status != SF_OK) leave_as_told(nccl, &told, &request->call);
  nccl_enqueue(nccl, request, told.has_channel ? NULL : &told.id);
}

/* --- start --------------------------------------------------------------------------------------------------------- */

static struct nccl_note *ready_of_member(const struct sf_nccl *nccl, const struct nccl_channel *channel, int32_t member) {
  for (struct nccl_note *note = nccl->inbox; note != NULL; note = note->next)
    if (note->kind == NOTE_READY && note->key == channel->key && note->sequence == channel->turn && note->from == channel->ranks[member])
      return note;
  return NULL;
}

static void send_turn(struct sf_nccl *nccl, enum nccl_note_kind kind, const struct nccl_request *request, int32_t member) {
  struct nccl_note *note = note_create(nccl, kind, request, 0);
  note->sequence = request->channel->turn;
  note_send(nccl, note, request->channel->ranks[member], &request->call);
}

void nccl_bind(struct sf_nccl *nccl, struct nccl_request *request) {
  request->state = REQUEST_BOUND;
  if (request->channel->index != 0) send_turn(nccl, NOTE_READY, request, 0);
}

void nccl_start_bound(struct sf_nccl *nccl, struct nccl_request *request) {
  const struct nccl_channel *channel = request->channel;
  for (int32_t member = 1; member < channel->size; member++)
    if (ready_of_member(nccl, channel, member) == NULL) return;
  for (int32_t member = 1; member < channel->size; member++) {
    take_out(nccl, ready_of_member(nccl, channel, member));
    send_turn(nccl, NOTE_START, request, member);
  }
  request->state = REQUEST_STARTED;
}

/* Starts the request of a member that said it was ready and waited for this. */
static void start_as_told(struct sf_nccl *nccl, const struct nccl_note *told) {
  for (struct nccl_channel *channel = nccl->channels; channel != NULL; channel = channel->next)
    if (channel->key == told->key && channel->turn == told->sequence && channel->first != NULL && channel->first->state == REQUEST_BOUND)
      channel->first->state = REQUEST_STARTED;
}

/* --- progress ------------------------------------------------------------------------------------------------------ */

/* Handles an answer or a go-ahead. Takes the note. */
static void follow(struct sf_nccl *nccl, struct nccl_note *note) {
  const struct nccl_note told = *note;
  struct nccl_request *request = nccl->first;
  if (told.kind == NOTE_GO) request = request_of(nccl, told.sequence);
  while (told.kind == NOTE_ANSWER && request != NULL && !(request->channel->key == told.key && request->sequence == told.sequence))
    request = request->next;
  sf_free(note);
  if (request == NULL) return;
  if (told.status != SF_OK) leave_as_told(nccl, &told, &request->call);
  nccl_enqueue(nccl, request, told.has_channel ? NULL : &told.id);
}

static void sort_note(struct sf_nccl *nccl, struct nccl_note *note) {
  if (note->epoch != nccl->epoch) /* from a run that failed here or there */
    sf_free(note);
  else if (note->kind == NOTE_ANSWER || note->kind == NOTE_GO)
    follow(nccl, note);
  else if (note->kind == NOTE_START) {
    start_as_told(nccl, note);
    sf_free(note);
  } else
    keep(nccl, note);
}

/* Returns false if nothing has come. */
static bool receive(struct sf_nccl *nccl) {
  struct sf_mpi *mpi = nccl->mpi;
  const struct sf_comm_call none = {.op = SF_COMM_BARRIER, .label = mpi->comm.last_label != NULL ? mpi->comm.last_label : ""};
  int has_come = 0, size_bytes = 0;
  MPI_Status status;
  mpi_must(mpi, MPI_Iprobe(MPI_ANY_SOURCE, NOTE_TAG, nccl->notes, &has_come, &status), &none);
  if (!has_come) return false;
  mpi_must(mpi, MPI_Get_count(&status, MPI_BYTE, &size_bytes), &none);
  struct nccl_note *note = sf_alloc((size_t)size_bytes + travels_from);
  if (note == NULL) mpi_leave(mpi, SF_ENOMEM, none.label, "no memory for a note of another rank");
  mpi_must(mpi, MPI_Recv(&note->kind, size_bytes, MPI_BYTE, status.MPI_SOURCE, NOTE_TAG, nccl->notes, MPI_STATUS_IGNORE), &none);
  sort_note(nccl, note);
  return true;
}

/* Handles the notes that this rank sent to itself. */
static void follow_own(struct sf_nccl *nccl) {
  for (struct nccl_note *note = nccl->inbox; note != NULL;) {
    struct nccl_note *next = note->next;
    if (note->kind == NOTE_ANSWER) {
      struct nccl_note **at = &nccl->inbox;
      while (*at != note) at = &(*at)->next;
      *at = next;
      follow(nccl, note);
    }
    note = next;
  }
}

void nccl_read_notes(struct sf_nccl *nccl) {
  while (receive(nccl)) {}
  for (struct nccl_request *request = nccl->first; request != NULL; request = request->next) {
    if (request->state != REQUEST_MEETING) continue;
    if (request->call.op == SF_COMM_RECV) take_offer(nccl, request);
    const bool is_collective = request->call.op != SF_COMM_RECV && request->call.op != SF_COMM_SEND;
    if (is_collective && request->channel->index == 0) answer_members(nccl, request);
    follow_own(nccl);
  }
  forget_sent(nccl);
}

/* --- posting ------------------------------------------------------------------------------------------------------- */

static void post_collective(struct sf_nccl *nccl, struct nccl_request *request, const struct sf_group *group) {
  const struct sf_comm_call *call = &request->call;
  int32_t *ranks = mpi_scratch(nccl->mpi, 0, (size_t)group->size * sizeof *ranks);
  for (int32_t i = 0; i < group->size; i++) ranks[i] = nccl->mpi->first + group->ranks[i];
  request->channel = nccl_channel_of(nccl, ranks, group->size, group->index, false, call);
  request->sequence = request->channel->sequence++;
  if (group->index == 0) return;
  const bool has_counts = call->op == SF_COMM_ALL_TO_ALL;
  struct nccl_note *note = note_create(nccl, NOTE_CALL, request, has_counts ? group->size : 0);
  if (has_counts) {
    memcpy(note->counts, call->send_counts, (size_t)group->size * sizeof *note->counts);
    memcpy(note->counts + group->size, call->recv_counts, (size_t)group->size * sizeof *note->counts);
  }
  note_send(nccl, note, request->channel->ranks[0], call);
}

void nccl_post(struct sf_nccl *nccl, struct nccl_request *request) {
  const struct sf_comm_call *call = &request->call;
  const int32_t own = nccl->mpi->rank, peer = nccl->mpi->first + call->peer;
  if (call->group != NULL) {
    post_collective(nccl, request, call->group);
    request->call.group = NULL;
    return;
  }
  request->sequence = request->id;
  request->channel = call->op == SF_COMM_SEND ? channel_between(nccl, own, peer, call) : channel_between(nccl, peer, own, call);
  if (call->op == SF_COMM_SEND) note_send(nccl, note_create(nccl, NOTE_OFFER, request, 0), peer, call);
}
