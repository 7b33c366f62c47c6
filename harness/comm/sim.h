/* The simulated world: ranks are fibers of the calling thread. */
#ifndef SF_COMM_SIM_H
#define SF_COMM_SIM_H

#include "harness/comm/comm.h"

#include <stddef.h>

struct sf_sim_options {
  int32_t world; /* >= 1 */
  uint64_t
      schedule; /* seed of every scheduling decision; 0 = round-robin, rendezvous at the wait, source and destination touched at the wait */
  size_t stack_bytes; /* 0 = 256 KiB; a guard page lies below each stack */
  bool measure;                      /* fill the report's seconds */
  struct sf_comm_progress *progress; /* may be NULL */
};

/* A world that can be used for many runs (stacks are kept and reused). */
struct sf_sim;
/* SF_ENOMEM. */
enum sf_status sf_sim_create(struct sf_sim **out) SF_MUST_USE;
void sf_sim_destroy(struct sf_sim *sim); /* takes NULL */

/* Runs rank_main(comm of rank r, args[r]) on every rank until all have returned, one has failed or none can go on. args may be NULL.
 * The report says how it ended; the returned status says whether the simulation itself could be made (SF_OK, SF_ENOMEM).
 *
 * Schedule: which fiber runs next, eager or rendezvous, when between post and wait an asynchronous operation reads its source and writes
 * its destination are a hash of (schedule, rank or group, operation number), so that a change in one place does not reshuffle the rest. The
 * order in which a reduction adds (ring from any start, tree, linear in any order) is a hash of (schedule, operation, wire format, group
 * size, count): the same call repeated, and the same call of a sibling group, round in the same way. Receive buffers are filled with the
 * poison NaN from post until the data are written. */
enum sf_status sf_sim_run(struct sf_sim *sim, const struct sf_sim_options *options, sf_rank_main rank_main, void *const *args,
                          struct sf_comm_report *report) SF_MUST_USE;

#endif
