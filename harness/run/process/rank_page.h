/* Where each rank of an MPI job stands, in a file beside the store ("STORE.rank-R") that outlives the job; and the watch that ends the job
 * when a rank dies, hangs, or finds the communication broken. One line on stderr says why, and the page keeps it for --resume. */
#ifndef SF_RUN_RANK_PAGE_H
#define SF_RUN_RANK_PAGE_H

#include "harness/comm/mpi.h"
#include "harness/run/process/process.h"

struct sf_rank_page {
  struct sf_process_page process;
  int64_t index;              /* of the case in progress, or of the one that is being shrunk */
  volatile int32_t active;    /* a trial is in progress */
  volatile double starved;    /* for how many seconds of it the rank had waited for a processor at its last tick */
  volatile int32_t shrinking; /* it is a candidate; `found` is what is being shrunk */
  volatile int32_t told;      /* first rank's page of a trial: some rank has said how the trial ended */
  volatile int32_t failed;    /* this rank has: `end` */
  struct sf_outcome end;      /* class, rank, label and text; signature and numbers only for failures that the communicator reported */
  struct sf_outcome found;
};

/* One trial on the ranks [first, first + count) of the job. */
struct sf_rank_trial {
  int64_t index;
  int32_t first, count;
  double seconds;                 /* then it counts as hung */
  const struct sf_outcome *found; /* NULL, or what is being shrunk */
};

struct sf_engine;
struct sf_rank_watch;
/* All ranks of the job call it. Maps this rank's file, made if missing, and the files of the other ranks that can be reached; their
 * contents from an earlier job stay until the first _begin. hint: added to the line that says why the job ended; "" = nothing; borrowed.
 * Also installs the handlers of fatal signals and of the deadline, and has this process end with its launcher. Where interrupts are
 * watched, an interrupt gives a trial two seconds; a trial that goes on then ends the job, and --resume runs it again. */
enum sf_status sf_rank_watch_open(struct sf_rank_watch **out, struct sf_mpi *mpi, const char *store_path, const char *hint,
                                  struct sf_error *error) SF_MUST_USE;
/* For a job without a store: the pages lie in a temporary folder that is gone again on return. */
enum sf_status sf_rank_watch_open_temporary(struct sf_rank_watch **out, struct sf_mpi *mpi, struct sf_error *error) SF_MUST_USE;
/* Waits for the trial's other ranks, which all call it, and begins to watch. SF_EIO: MPI failed. */
enum sf_status sf_rank_watch_begin(struct sf_rank_watch *watch, const struct sf_rank_trial *trial) SF_MUST_USE;
/* The trial is over: watches no more. */
void sf_rank_watch_end(struct sf_rank_watch *watch);
/* True for the rank of the trial that asks first: it may say how the trial ended. The others wait a moment, so that it can. */
bool sf_rank_watch_may_tell(struct sf_rank_watch *watch);
/* The trial's communication failed on this rank: keeps the outcome and ends the job, after one rank of the trial has told why. */
_Noreturn void sf_rank_watch_fail(struct sf_rank_watch *watch, const struct sf_outcome *outcome);
/* This rank's page, for the engine to write to. */
struct sf_process_page *sf_rank_watch_page(const struct sf_rank_watch *watch);
/* The engine of a rank of a job, with the pool's device, which notes in the page where it stands. As sf_engine_create fails. */
enum sf_status sf_rank_engine_create(struct sf_engine **out, struct sf_mpi *mpi, struct sf_process_page *page,
                                     const struct sf_pool_options *pool) SF_MUST_USE;
/* Removes this rank's file; the pages stay in memory until _close. */
void sf_rank_watch_unlink(struct sf_rank_watch *watch);
void sf_rank_watch_close(struct sf_rank_watch *watch); /* takes NULL */

/* Copies what an earlier job left in the file of a rank and marks it as read. False when there is no such file. */
bool sf_rank_page_take(struct sf_rank_page *out, const char *store_path, int32_t rank);

#endif
