/* What the files of the NCCL backend share.
 *
 * A call goes through five states. Its members (or both ends of a message) meet over MPI by notes; when they agree, the request joins the
 * queue of its channel, an NCCL communicator with a stream of its own; the members of the channel's first request meet again, and from then
 * on stay here until they have launched it; it runs; its result is copied back. All of it happens in nccl_progress, which every call and
 * every wait repeats: nothing here blocks on one thing alone, so that a rank that waits still answers the others.
 *
 * The second meeting is for what runs on a GPU: it never waits for a rank that has yet to launch its part. CUDA has calls that wait for
 * everything on the GPU (memory given or taken, the first launch of a kernel), and two ranks in such calls would wait for each other's
 * parts. */
#ifndef SF_COMM_NCCL_INTERNAL_H
#define SF_COMM_NCCL_INTERNAL_H

#include "harness/comm/mpi_internal.h"
#include "harness/comm/nccl/nccl_api.h"

struct nccl_request;
struct nccl_ending;

enum nccl_channel_state { CHANNEL_ABSENT, CHANNEL_STARTING, CHANNEL_OPEN };
/* The ranks of a group, or the sender and the receiver of messages in one direction. */
struct nccl_channel {
  struct nccl_channel *next;
  uint64_t key;      /* of the members' list in the job */
  int32_t size, index;
  int32_t *ranks;    /* in the job */
  enum nccl_channel_state state;
  nccl_comm comm;
  struct nccl_id name, opened; /* of the communicator: as the first member named it, and as it was opened here */
  uint32_t named_in;           /* the run in which it was */
  cu_stream stream;
  cu_event event;
  struct nccl_ending *ending; /* room for the communicator's, so that ending it needs no memory */
  uint64_t sequence; /* calls of this run */
  uint64_t turn;     /* requests of this run that were launched: the same on all members, whose queues are the same */
  struct nccl_request *first, *last; /* queue of agreed requests */
};

enum nccl_request_state { REQUEST_MEETING, REQUEST_QUEUED, REQUEST_BOUND, REQUEST_STARTED, REQUEST_ISSUED, REQUEST_RUNNING, REQUEST_DONE };
struct nccl_request {
  struct sf_comm_call call; /* its group is the channel's, and may be gone */
  struct nccl_request *next;       /* of the run, in the order of the calls */
  struct nccl_request *next_in_channel;
  struct nccl_request *own_send;   /* of a receive from oneself */
  struct nccl_channel *channel;
  uint64_t id, sequence;
  enum nccl_request_state state;
  void *in, *out;         /* on the GPU; of calls in place both are the same */
  void *host;             /* values as they travel, where the caller's buffer does not have them so */
};

/* What ranks tell each other before data move. */
enum nccl_note_kind { NOTE_CALL, NOTE_ANSWER, NOTE_OFFER, NOTE_GO, NOTE_READY, NOTE_START };
struct nccl_note {
  struct nccl_note *next;   /* of those that wait for their call here */
  MPI_Request sending;
  /* From here on it travels. */
  int32_t kind, from, tag, size; /* size: of the group, if counts follow */
  uint32_t epoch;
  bool has_channel;              /* the writer has a communicator for the key; of an answer: use the old one */
  enum sf_status status;         /* of an answer */
  enum sf_manner manner;
  int32_t rank;                  /* the one that the report names */
  uint64_t key, sequence;
  struct mpi_summary call;
  struct nccl_id id;
  char text[400];
  int64_t counts[]; /* all-to-all: what the writer sends to each member, then what it expects of each */
};

struct nccl_buffer {
  void *memory;
  size_t size_bytes;
  bool used;
};

struct sf_nccl {
  struct nccl_api api;
  struct sf_mpi *mpi;
  MPI_Comm notes;
  int device;
  int sharers; /* ranks on one GPU: the most of any in the job */
  cu_context context;
  struct nccl_channel *channels;
  struct nccl_ending *endings; /* under way */
  struct nccl_request *first, *last; /* of this run */
  struct nccl_note *inbox, *outbox;
  struct nccl_buffer *buffers;
  int32_t buffer_count, buffer_capacity;
  uint32_t epoch;
  uint64_t last_id;
};

/* --- nccl_meet.c -------------------------------------------------------------------------------------------------- */

/* The channel of the ranks in this order, made where there is none; it lives until nccl_channel_destroy. index: this rank's place among
 * them. is_messages: for the messages between two ranks. Ends the run when memory is out. */
struct nccl_channel *nccl_channel_of(struct sf_nccl *nccl, const int32_t *ranks, int32_t size, int32_t index, bool is_messages,
                                     const struct sf_comm_call *call);
/* Puts a new request into its channel, and tells the other members what is called. request->call.group is NULL afterwards. */
void nccl_post(struct sf_nccl *nccl, struct nccl_request *request);
/* Reads the notes that have arrived and acts on them. Ends the run where calls do not agree. */
void nccl_read_notes(struct sf_nccl *nccl);
/* Forgets the notes that came and those whose sending is complete. */
void nccl_drop_notes(struct sf_nccl *nccl);
/* The request is the first of its channel, whose communicator is open: tells the first member. */
void nccl_bind(struct sf_nccl *nccl, struct nccl_request *request);
/* At the first member of a bound request: when all are bound, all start. */
void nccl_start_bound(struct sf_nccl *nccl, struct nccl_request *request);

/* --- nccl_transfer.c ---------------------------------------------------------------------------------------------- */

/* The members agree. id: of the channel's communicator, if not all of them had one; else NULL. */
void nccl_enqueue(struct sf_nccl *nccl, struct nccl_request *request, const struct nccl_id *id);
/* Starts communicators and requests, and completes those that NCCL has finished. */
void nccl_move(struct sf_nccl *nccl);
/* Whether this rank may not leave yet: some request is bound and has not been launched. */
bool nccl_is_bound(const struct sf_nccl *nccl);
void nccl_channel_destroy(struct sf_nccl *nccl, struct nccl_channel *channel); /* after nccl_channel_end */
/* Gives back the request's buffers, not the request. */
void nccl_request_clear(struct sf_nccl *nccl, struct nccl_request *request);
/* End the run unless NCCL's result is NCCL_OK or NCCL_IN_PROGRESS; unless CUDA's is CU_OK. */
void nccl_must(struct sf_nccl *nccl, int result, const struct nccl_channel *channel, const struct sf_comm_call *call);
void nccl_cuda_must(struct sf_nccl *nccl, int result, const struct sf_comm_call *call);
/* Integers in the order of the numbers (NaN last, -0 before 0), since NCCL's maximum drops a NaN; and back. */
void nccl_keys_of_values(void *keys, const void *values, int64_t count, enum sf_dtype wire);
void nccl_values_of_keys(void *values, const void *keys, int64_t count, enum sf_dtype wire);

/* --- nccl_backend.c ----------------------------------------------------------------------------------------------- */

/* Goes on with whatever can go on, and comes back at once. */
void nccl_progress(struct sf_nccl *nccl);
/* Takes the request out of the run's list; the caller owns it. */
void nccl_request_unlink(struct sf_nccl *nccl, struct nccl_request *request);

/* --- nccl_end.c --------------------------------------------------------------------------------------------------- */

struct nccl_ending *nccl_ending_create(void);         /* NULL: no memory */
void nccl_ending_destroy(struct nccl_ending *ending); /* one that is not under way; takes NULL */
/* Ends the channel's communicator, if it has one, and comes back at once; the channel can get another. What runs is aborted and its
 * requests are taken out of the run. is_orderly: nothing runs, and all members do the same, each in its own time. */
void nccl_channel_end(struct sf_nccl *nccl, struct nccl_channel *channel, bool is_orderly);
/* Gives back what endings that are over have held. */
void nccl_endings_clear(struct sf_nccl *nccl);
/* False: some were not over in time. What they hold, struct sf_nccl too, has to stay as it is. */
bool nccl_endings_wait(struct sf_nccl *nccl, double seconds);

#endif
