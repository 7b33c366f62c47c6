/* The communicator: Megatron's and NCCL's collectives between ranks, on any group.
 *
 * Every call is made by all members of the group (p2p: by both ends) in the same order, with the same count, wire format and operation.
 * label says which call of which layer it is ("column_parallel_linear.bwd.input_grad"); it must be a string constant.
 * Values: floats for SF_F32 and SF_BF16, doubles for SF_F64. What travels is rounded to the wire format first (on the sender's own copy of
 * a broadcast or gather too), and a reduction rounds every hop to it. A maximum with a NaN is NaN. Members of an all-reduce get bit-equal
 * results. Buffers of one call do not overlap, except where a call works in place.
 *
 * A call that cannot complete (deadlock, mismatch, a rank that failed, a dead peer) does not return: the rank is left through the escape
 * that the backend set up at its entry, and the backend's report says why. A rank keeps its memory in an arena, so nothing leaks. */
#ifndef SF_COMM_COMM_H
#define SF_COMM_COMM_H

#include "harness/base/status.h"
#include "harness/comm/manner.h"
#include "harness/spec/dtype.h"

#include <stdbool.h>
#include <stdint.h>

#define SF_REDUCE_MAP(X) X(SUM, "sum") X(MAX, "max") X(AVG, "avg")
enum sf_reduce {
#define X(name, text) SF_REDUCE_##name,
  SF_REDUCE_MAP(X)
#undef X
  SF_REDUCE_COUNT
};
const char *sf_reduce_name(enum sf_reduce reduce); /* "sum"; "unknown" for other numbers, which a rank may send */

/* A group is a value: an ordered list of world ranks. index: this rank's place in it. ranks is borrowed and outlives the calls.
 * Two groups are the same group when their lists are equal. */
struct sf_group {
  int32_t size, index;
  const int32_t *ranks;
  uint64_t key; /* hash of the list */
};
/* Hashes the list; 0 <= index < size. */
struct sf_group sf_group_create(const int32_t *ranks, int32_t size, int32_t index);

#define SF_COMM_OP_MAP(X)             \
  X(ALL_REDUCE, "all_reduce")         \
  X(REDUCE_SCATTER, "reduce_scatter") \
  X(ALL_GATHER, "all_gather")         \
  X(BROADCAST, "broadcast")           \
  X(ALL_TO_ALL, "all_to_all")         \
  X(SEND, "send")                     \
  X(RECV, "recv")                     \
  X(BARRIER, "barrier")
enum sf_comm_op {
#define X(name, text) SF_COMM_##name,
  SF_COMM_OP_MAP(X)
#undef X
  SF_COMM_OP_COUNT
};
const char *sf_comm_op_name(enum sf_comm_op op); /* as sf_reduce_name */

/* An asynchronous operation in flight. 0 = none. */
typedef uint64_t sf_request;

/* One call, as the wrappers below hand it to a backend. */
struct sf_comm_call {
  enum sf_comm_op op;
  const struct sf_group *group; /* collectives; for p2p NULL */
  int32_t peer, tag;            /* p2p: world rank */
  int32_t root;                 /* broadcast: index in the group */
  const void *send;             /* may equal recv: in place (all-reduce, broadcast) */
  void *recv;
  int64_t count;                            /* see each wrapper; all-to-all: the sum of send_counts */
  int64_t sends, receives;                  /* elements of this rank's source and destination; 0: it has none */
  const int64_t *send_counts, *recv_counts; /* all-to-all: elements per member */
  enum sf_dtype wire;
  enum sf_reduce reduce;
  const char *label;
  uint32_t occurrence; /* how often this rank has used this label before */
};

/* A call with more elements is a mistake of the rank's, not a lack of memory. */
#define SF_COMM_COUNT_MAX (INT64_C(1) << 36)

struct sf_comm;
struct sf_comm_ops {
  const char *name; /* "sim", "mpi" */
  /* Starts the call. blocking: it is complete on return, and the result is 0. */
  sf_request (*start)(struct sf_comm *comm, const struct sf_comm_call *call, bool blocking);
  void (*wait)(struct sf_comm *comm, sf_request request);
  /* Leaves the rank: its part of the trial failed with this status, in this manner and with this text. */
  void (*fail)(struct sf_comm *comm, enum sf_status status, enum sf_manner manner, const char *text) __attribute__((noreturn));
};

/* What a watcher outside the rank may read while it runs, in memory shared with it. May be NULL in struct sf_comm. */
enum { SF_COMM_OUTSIDE, SF_COMM_INSIDE, SF_COMM_ENDED };
struct sf_comm_progress {
  int32_t rank;
  /* INSIDE while the backend has the call or the wait: a rank that hangs outside a call is to blame, one that hangs inside waits for
   * others. ENDED (mpi only): the rank's program has returned. */
  int32_t in_call;
  char label[92]; /* of the last call; empty before the first */
};

enum { SF_COMM_LABELS_MAX = 256 };
struct sf_mutator;
struct sf_comm {
  const struct sf_comm_ops *ops;
  void *impl;
  int32_t rank, world;
  struct sf_comm_progress *progress; /* rank and label of the call being made are written here before it is made */
  struct sf_mutator *mutator;        /* mutate.h; NULL = calls go to the backend as they are */
  const char *last_label;            /* of the call that this rank made last; NULL before the first */
  /* Occurrence counters, by label address. */
  struct {
    const char *label;
    uint32_t count;
  } labels[SF_COMM_LABELS_MAX];
};

/* recv[0..count) = reduction over members; in place. Shape: the same on every member. */
void sf_all_reduce(struct sf_comm *comm, const struct sf_group *group, void *data, int64_t count, enum sf_dtype wire, enum sf_reduce reduce,
                   const char *label);
/* Member i receives elements [i*count, (i+1)*count) of the reduction of send (group size * count elements each). */
void sf_reduce_scatter(struct sf_comm *comm, const struct sf_group *group, void *recv, const void *send, int64_t count, enum sf_dtype wire,
                       enum sf_reduce reduce, const char *label);
/* recv = members' send (count elements each) one after the other, in group order. */
void sf_all_gather(struct sf_comm *comm, const struct sf_group *group, void *recv, const void *send, int64_t count, enum sf_dtype wire,
                   const char *label);
/* Everybody's data becomes that of the member at index root. */
void sf_broadcast(struct sf_comm *comm, const struct sf_group *group, void *data, int64_t count, int32_t root, enum sf_dtype wire,
                  const char *label);
/* Member i's send is cut by send_counts; recv holds what member j sent here, recv_counts[j] elements, in group order. */
void sf_all_to_all(struct sf_comm *comm, const struct sf_group *group, void *recv, const int64_t *recv_counts, const void *send,
                   const int64_t *send_counts, enum sf_dtype wire, const char *label);
/* Returns when every member has called it. */
void sf_barrier(struct sf_comm *comm, const struct sf_group *group, const char *label);
/* A message between two world ranks, in order among those of the same ends and tag; both ends give the same count and format. sf_send may
 * wait until the receiver has come. */
void sf_send(struct sf_comm *comm, int32_t peer, int32_t tag, const void *data, int64_t count, enum sf_dtype wire, const char *label);
void sf_recv(struct sf_comm *comm, int32_t peer, int32_t tag, void *data, int64_t count, enum sf_dtype wire, const char *label);

/* Asynchronous forms of the calls above: until sf_wait the source must not be written and the destination not be read. */
sf_request sf_isend(struct sf_comm *comm, int32_t peer, int32_t tag, const void *data, int64_t count, enum sf_dtype wire,
                    const char *label) SF_MUST_USE;
sf_request sf_irecv(struct sf_comm *comm, int32_t peer, int32_t tag, void *data, int64_t count, enum sf_dtype wire,
                    const char *label) SF_MUST_USE;
sf_request sf_iall_reduce(struct sf_comm *comm, const struct sf_group *group, void *data, int64_t count, enum sf_dtype wire,
                          enum sf_reduce reduce, const char *label) SF_MUST_USE;
/* The same; send and recv do not overlap. */
sf_request sf_ireduce_scatter(struct sf_comm *comm, const struct sf_group *group, void *recv, const void *send, int64_t count,
                              enum sf_dtype wire, enum sf_reduce reduce, const char *label) SF_MUST_USE;
/* Returns when the request is complete, and closes it. Every request is waited for once; one that is not open ends the run with SF_ERANK.
 * 0 returns at once. */
void sf_wait(struct sf_comm *comm, sf_request request);

/* For backends: writes progress and last_label, when a rank starts a call, waits, or goes on after others ran. */
void sf_comm_show_progress(struct sf_comm *comm, const char *label);

/* Leaves the rank and ends the run: status and text go to the report. The first in the manner SF_MANNER_REFUSED. */
_Noreturn void sf_comm_fail(struct sf_comm *comm, enum sf_status status, const char *format, ...) SF_PRINTF(3, 4);
_Noreturn void sf_comm_fail_in(struct sf_comm *comm, enum sf_status status, enum sf_manner manner, const char *format, ...) SF_PRINTF(4, 5);

/* --- what a backend's run reports ------------------------------------------------------------------------------ */

struct sf_comm_report {
  enum sf_status status; /* SF_OK, SF_EDEADLOCK, SF_EMISMATCH, SF_ERANK (or the status a rank failed with), SF_ENOMEM */
  enum sf_manner manner;
  int32_t rank;          /* the first rank concerned, -1 = none */
  char label[96];        /* where it stood */
  char text[800];        /* who waits for whom at which label; or which ops, counts, formats, groups, order differ */
  /* Costs of a simulation. */
  uint64_t switches, calls;
  double seconds_total, seconds_reduce, seconds_schedule; /* measured only when the options ask for it */
};

typedef void (*sf_rank_main)(struct sf_comm *comm, void *arg);

#endif
