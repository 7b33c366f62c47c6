/* What the files of the Open MPI backend share. */
#ifndef SF_COMM_MPI_INTERNAL_H
#define SF_COMM_MPI_INTERNAL_H

#include "harness/comm/mpi.h"

#include <mpi.h>
#include <setjmp.h>

/* A communicator, cached by the list of its members in the job. */
struct mpi_group {
  uint64_t key; /* 0: free slot */
  int32_t size;
  MPI_Comm comm;
};

/* An asynchronous call in flight. */
struct mpi_request {
  struct sf_comm_call call;
  struct mpi_request *prev, *next;
  uint64_t id;
  MPI_Request check, data;
  MPI_Comm comm;
  int64_t fingerprint[2];
  uint16_t *wire; /* bf16 or fp16 on its way; of a reduce-scatter what goes out, then what comes in */
};

struct mpi_scratch {
  void *data;
  size_t size_bytes;
};

/* Another way for the data of a run than MPI's messages (nccl/): the calls of its ranks, and what is done around a run. */
struct mpi_transport {
  const struct sf_comm_ops *ops;
  void (*begin)(struct sf_mpi *mpi, int32_t first, int32_t world); /* before the rank's program */
  void (*check)(struct sf_mpi *mpi);                              /* after it: leaves when a request is open */
  void (*end)(struct sf_mpi *mpi, enum sf_status status);         /* however the run ended */
  void (*destroy)(struct sf_mpi *mpi);                            /* before MPI ends */
  void (*abort)(struct sf_mpi *mpi);                              /* before the job is ended by MPI_Abort */
};

struct sf_mpi {
  int32_t rank, world;
  const struct mpi_transport *transport; /* NULL: MPI itself */
  void *transport_state;
  MPI_Comm control, messages;
  MPI_Op sums[SF_WIRE_DTYPE_COUNT], maxima[SF_WIRE_DTYPE_COUNT];
  struct mpi_group *groups; /* open addressing by key */
  uint64_t group_mask, group_count;
  struct mpi_scratch scratch[2];
  struct mpi_request *open;      /* of this run */
  struct mpi_request *abandoned; /* of runs that failed: MPI may still use their buffers */
  uint64_t last_id;
  /* The run in progress. */
  int32_t first;
  struct sf_comm comm;
  struct sf_comm_report *report;
  jmp_buf escape;
};

/* Ends the run on this rank, in the manner that its report has, which is SF_MANNER_REFUSED where none is set. format: the report's text. */
_Noreturn void mpi_leave(struct sf_mpi *mpi, enum sf_status status, const char *label, const char *format, ...) SF_PRINTF(4, 5);
_Noreturn void mpi_leave_not_open(struct sf_mpi *mpi, sf_request id); /* the rank waits for a request that is not open */
_Noreturn void mpi_fail(struct sf_comm *comm, enum sf_status status, enum sf_manner manner,
                        const char *text); /* fail of struct sf_comm_ops */
/* Call it after each poll that found nothing. Naps for 1 ms once the wait, which began at `since` (MPI_Wtime), has lasted 10 ms: MPI's own
 * waits keep a core busy however long they last. */
void mpi_pause(double since);
int mpi_wait_for(MPI_Request *request, MPI_Status *status); /* MPI_Wait with pauses */
/* Ends the run unless code is MPI_SUCCESS. */
void mpi_must(struct sf_mpi *mpi, int code, const struct sf_comm_call *call);
/* At least size_bytes, until the next call with the same index; ends the run when memory is out. */
void *mpi_scratch(struct sf_mpi *mpi, int index, size_t size_bytes);
/* count as MPI takes it; ends the run with SF_ENOTSUP when it is too large for that. */
int mpi_count(struct sf_mpi *mpi, int64_t count, const struct sf_comm_call *call);
MPI_Datatype mpi_type_of(enum sf_dtype wire); /* of an element on the wire; bf16 and fp16: MPI_UINT16_T */
/* The operation of a reduction in the call's format; a mean is a sum here (mpi_finish_reduction). */
MPI_Op mpi_op_of(const struct sf_mpi *mpi, const struct sf_comm_call *call);

/* What a rank says of its call when the members' calls are compared. */
struct mpi_summary {
  int64_t count;
  int32_t rank, op, wire, reduce, root;
  uint32_t occurrence;
  char label[96]; /* as in the report */
};
/* The label is cut to what fits. rank: the caller's, for the text. */
struct mpi_summary mpi_summary_of(const struct sf_comm_call *call, int32_t rank);
enum sf_manner mpi_manner_of(const struct mpi_summary *a, const struct mpi_summary *b); /* of two calls that are not the same */
/* Whether the calls agree in all that members must agree in; the counts of an all-to-all are compared piece by piece, elsewhere. */
bool mpi_same_call(const struct mpi_summary *a, const struct mpi_summary *b);
void mpi_summary_text(char text[160], const struct mpi_summary *summary); /* one line for a report */

/* --- collectives_mpi.c ------------------------------------------------------------------------------------------ */

/* The reductions of each wire format. SF_EIO; destroy takes what is half made. */
enum sf_status mpi_ops_create(struct sf_mpi *mpi);
void mpi_ops_destroy(struct sf_mpi *mpi);
/* The group's communicator, cached by member list until the job ends. Making a new one is a meeting of the members. */
MPI_Comm mpi_group_comm(struct sf_mpi *mpi, const struct sf_group *group, const struct sf_comm_call *call);
/* A hash of what mpi_same_call compares, and its negative: one MPI_MIN over the members gives the smallest and the largest. */
void mpi_fingerprint(int64_t out[2], const struct sf_comm_call *call);
/* Called by all members of comm, some of whose calls differ: ends the run on each with the same SF_EMISMATCH. */
_Noreturn void mpi_report_disagreement(struct sf_mpi *mpi, MPI_Comm comm, const struct sf_comm_call *call);
/* Does a blocking collective, after the members' calls have been compared. */
void mpi_collective(struct sf_mpi *mpi, const struct sf_comm_call *call);
/* Rounds to bf16 or fp16 and packs; values need not lie on its grid. */
void mpi_pack(uint16_t *out, const float *values, int64_t count, enum sf_dtype dtype);
/* Averages and, for bf16 and fp16, unpacks the result of an all-reduce. */
void mpi_finish_reduction(const struct sf_comm_call *call, const uint16_t *wire, int64_t count, int32_t size);

#endif
