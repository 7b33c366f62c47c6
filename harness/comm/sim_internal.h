/* What the files of the simulated world share. Words:
 *   part  one rank's part in one operation: its call, where its data are read, when they are read and written
 *   op    one operation of all its parts: the n-th collective of a group, or one message (part 0 sends, part 1 receives)
 * An op is executed (data moved, once) when all its parts have been posted and every source may be read. */
#ifndef SF_COMM_SIM_INTERNAL_H
#define SF_COMM_SIM_INTERNAL_H

#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/base/hash.h"
#include "harness/comm/sim.h"
#include "harness/comm/sim_fiber.h"

enum { SIM_BLOCK = 1024, SIM_TREE_LEVELS = 32, SIM_BUFFER_CLASSES = 48, SIM_BUFFER_MIN_LOG2 = 8 };

/* When the source of an asynchronous part is read. LATE: at its rank's wait, or when nothing else can go on. */
enum sim_read { SIM_READ_LATE, SIM_READ_EARLY, SIM_READ_MATCHED, SIM_READ_COUNTED };

enum sim_state { SIM_READY, SIM_RUNNING, SIM_BLOCKED, SIM_FINISHED };

struct sim_op;
struct sim_rank;

struct sim_part {
  struct sf_comm_call call;
  struct sim_op *op;
  struct sim_rank *rank;
  const void *source; /* set once the data may be read: the call's own buffer or `staged` */
  void *staged;
  sf_request request;           /* 0 = blocking */
  struct sim_part *prev, *next; /* open requests of the rank */
  enum sim_read read;
  uint8_t countdown; /* SIM_READ_COUNTED: calls of the rank that are still to come */
  bool write_late, waiting, is_read, complete, written;
};

struct sim_op {
  struct sim_group *group; /* NULL: a message */
  struct sim_op *next;     /* in a free list, or the unmatched messages of a channel */
  struct sim_op *stall_prev, *stall_next;
  uint64_t number, hash;
  int32_t size, arrived, unread, matched_reads, finished;
  int32_t first_index; /* the part that was posted first */
  bool executed, in_stall;
  void *result; /* for parts that are written later */
  struct sim_part parts[];
};

struct sim_group {
  uint64_t key;
  int32_t size;
  int32_t *ranks, *order; /* order: scratch */
  uint64_t *numbers;      /* per member: how many collectives it has called */
  struct sim_op **open;   /* ring: not yet called by all, at number & open_mask */
  uint64_t open_mask;
  struct sim_op *free_ops;
};

struct sim_channel {
  uint64_t key;
  int32_t from, to, tag;
  bool used, sends_wait; /* what the unmatched queue holds */
  uint64_t sent, received;
  struct sim_op *first, *last;
};

struct sim_rank {
  struct sf_comm comm;
  struct sf_sim *sim;
  struct sf_fiber fiber;
  void *arg;
  enum sim_state state;
  struct sim_part *blocked_on;
  struct sim_part *open; /* open requests, newest first */
  uint64_t calls;
  int32_t counted; /* open requests with a countdown */
};

struct sim_ready {
  uint64_t priority;
  int32_t rank;
};

struct sf_sim {
  struct sf_sim_options options;
  sf_rank_main rank_main;
  struct sf_comm_report report;
  enum sf_status status; /* of the simulation itself */
  struct sf_fiber thread;
  struct sim_rank **ranks;
  int32_t rank_capacity, finished;
  struct sim_ready *ready; /* binary heap, smallest priority first */
  int32_t ready_count;
  uint64_t ready_serial;
  struct sim_op *stall_first, *stall_last;

  struct sf_arena *arena;    /* everything below the next line lives for one run */
  struct sim_group **groups; /* open addressing by key; the array itself is kept */
  uint64_t group_mask, group_count;
  struct sim_channel *channels;
  uint64_t channel_mask, channel_count;
  struct sim_op *free_pairs;
  struct sim_part **requests; /* by slot */
  uint32_t *request_serials, *request_free;
  uint32_t request_capacity, request_used, request_free_count;
  void *buffers[SIM_BUFFER_CLASSES];
  double *scratch; /* SIM_TREE_LEVELS blocks */
  double clock_mark;
};

/* --- sim.c -------------------------------------------------------------------------------------------------------- */

/* A blocked rank can run again: it enters the heap of ready ranks. */
void sim_wake(struct sf_sim *sim, struct sim_rank *rank);
/* Ends the run from the fiber of any rank; all fibers are abandoned. */
_Noreturn void sim_end(struct sf_sim *sim);
_Noreturn void sim_out_of_memory(struct sf_sim *sim); /* the same, with SF_ENOMEM */

/* --- sim_match.c: groups, channels, requests --------------------------------------------------------------------- */

/* Memory that lives until the run ends; never NULL, since out of memory ends the run. A buffer that is given back is taken again. */
void *sim_arena_alloc(struct sf_sim *sim, size_t size_bytes);
void *sim_buffer_take(struct sf_sim *sim, size_t size_bytes);
void sim_buffer_give(struct sf_sim *sim, void *buffer); /* takes NULL */
/* What is kept from run to run: made with the world (SF_ENOMEM; destroy takes what is half made), emptied before each run. */
enum sf_status sim_tables_create(struct sf_sim *sim);
void sim_tables_reset(struct sf_sim *sim);
void sim_tables_destroy(struct sf_sim *sim);
/* The rank's part in the operation that its call belongs to: the n-th collective of a group, the n-th message of (from, to, tag). The part
 * counts as arrived. A call that differs from an earlier member's ends the run. */
struct sim_part *sim_match_collective(struct sim_rank *self, const struct sf_comm_call *call);
struct sim_part *sim_match_message(struct sim_rank *self, const struct sf_comm_call *call);
void sim_op_release(struct sf_sim *sim, struct sim_op *op); /* all parts are finished; gives its buffers back */
/* Gives the part a number, part->request, that no request of this run has had. */
void sim_request_open(struct sf_sim *sim, struct sim_part *part);
struct sim_part *sim_request_find(struct sf_sim *sim, sf_request request); /* NULL: not open */
void sim_request_close(struct sf_sim *sim, struct sim_part *part);         /* it is not open any more */

/* --- sim_progress.c: when sources are read and destinations written ---------------------------------------------- */

/* The life of a part: posted, waited for (not after a blocking post), and finished once it is complete; the last of an operation's parts to
 * finish releases it. None of these blocks: the caller runs other ranks while part->complete is false. */
void sim_part_post(struct sf_sim *sim, struct sim_part *part, bool blocking);
void sim_part_wait(struct sf_sim *sim, struct sim_part *part);
void sim_part_finish(struct sf_sim *sim, struct sim_part *part);
/* The rank makes another call: reads the sources that were to be read after so many calls. */
void sim_rank_count_call(struct sim_rank *self);
bool sim_stall_resolve(struct sf_sim *sim); /* false: nothing was waiting for a late source */

/* --- sim_reduce.c: what an op does to the data -------------------------------------------------------------------- */

/* Fills a receive buffer with the poison NaN; not one that is also the source. */
void sim_poison(const struct sf_comm_call *call);
/* Copies, rounding to the wire's format; in and out may be the same. */
void sim_copy_to_wire(void *out, const void *in, int64_t count, enum sf_dtype wire);
/* Every source is read: writes each part's destination, or the op's result where that is to be written later. */
void sim_op_execute(struct sf_sim *sim, struct sim_op *op);
/* Writes the destination of a part that sim_op_execute left out. */
void sim_part_write_late(struct sf_sim *sim, struct sim_part *part);

/* --- sim_report.c ------------------------------------------------------------------------------------------------- */

/* End the run with SF_EMISMATCH where the calls differ: of two parts of one operation; in the counts of an all-to-all's pieces. */
void sim_check_same(struct sf_sim *sim, struct sim_part *first, struct sim_part *second);
void sim_check_all_to_all(struct sf_sim *sim, struct sim_op *op);
_Noreturn void sim_report_deadlock(struct sf_sim *sim); /* no rank can go on: who waits for whom */
/* The rank's program has returned with requests open; it waits for a request that is not open. */
_Noreturn void sim_report_leak(struct sf_sim *sim, struct sim_rank *self);
_Noreturn void sim_report_request(struct sf_sim *sim, struct sim_rank *self, sf_request request);

/* Whether the call has a source, and a destination, on the rank that makes it. */
static inline bool sim_call_reads(const struct sf_comm_call *call) { return call->op != SF_COMM_RECV && call->op != SF_COMM_BARRIER; }
static inline bool sim_call_writes(const struct sf_comm_call *call) { return call->op != SF_COMM_SEND && call->op != SF_COMM_BARRIER; }

#endif
