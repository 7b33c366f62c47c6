/* How a world of MPI ranks (or one of simulated ranks) ended, as told by the pages that its ranks share with their watcher. */
#ifndef SF_RUN_WORLD_END_H
#define SF_RUN_WORLD_END_H

#include "harness/run/process/process.h"

struct sf_world_end {
  enum sf_finding_class cls;          /* CRASH, HANG or DEADLOCK */
  enum sf_manner manner;              /* of a CRASH */
  bool is_own;                        /* a HANG of shardfuzz's own part, in which no code under test runs: not a finding */
  int32_t rank;                       /* the one to blame, -1 = none has begun; of a deadlock the lowest that waits */
  const struct sf_process_page *page; /* its page */
  char label[96];                     /* of its last communication */
};

/* pages: of the `count` ranks of the case, in rank order; one page alone stands for all simulated ranks. hang: the world was found stuck at
 * its deadline; else a process of it is gone. To blame is a rank that died of a signal, then the lowest that stands outside of any
 * communication; when all are inside (or through) and none goes on for a moment it is a deadlock. Takes up to 0.1 s for that.
 * May be called by a signal handler, and so may sf_world_end_text. */
void sf_world_end_find(struct sf_world_end *out, const struct sf_process_page *const *pages, int32_t count, bool hang);
/* A number for where the ranks stand, which changes whenever one of them goes on. 0 when one is outside of any communication, or when
 * there is one page alone: then nothing shows that they wait for each other. May be called by a signal handler. */
uint64_t sf_world_waiting(const struct sf_process_page *const *pages, int32_t count);
/* Whether the others may be waiting for rank i, so that a deadline does not count the time in which it had no processor. A rank that waits
 * inside a call gives its own away while it spins: that counts only where all wait. May be called by a signal handler. */
bool sf_world_waits_for(const struct sf_process_page *const *pages, int32_t count, int32_t i);
/* Whether all ranks of a trial wait, and have waited at the same places for a quarter of its deadline and for two seconds at least.
 * Spinning ranks keep each other from a processor, and need no more time than this. now: seconds of the trial's clock. May be called by a
 * signal handler. */
bool sf_world_stands(struct sf_world_still *still, const struct sf_process_page *const *pages, int32_t count, double now, double seconds);
/* "rank 1 died of signal 11 (Segmentation fault) after 'parallel_mlp.fwd.output'", and what a plugin did then. */
void sf_world_end_text(char *out, size_t out_size, const struct sf_world_end *end);

#endif
