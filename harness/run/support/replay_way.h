/* The command line with which a case is run again. It holds in any folder of the machine that printed it. */
#ifndef SF_RUN_REPLAY_WAY_H
#define SF_RUN_REPLAY_WAY_H

#include "harness/base/bytes.h"

/* What a replay needs beside the case to run as it did here. Texts are owned; NULL: none. */
struct sf_replay_way {
  char *options; /* for a shell, a blank before each: " --target 'worker:..'", " --device 'cuda'" */
  char *folder;  /* where it must be started, because a worker's command may name files of that folder */
  char *target;  /* what was really run, where the case does not name it: "worker:.." */
};
void sf_replay_way_clear(struct sf_replay_way *way); /* takes what is zeroed */

/* Appends, for a shell, "shardfuzz replay PATH" with the path made absolute, and what the way adds; NULL adds nothing. job_ranks: 0, or how
 * many ranks of an MPI job run it. Where the shell would find no shardfuzz, or another one, this program is named by its path. */
void sf_replay_append(struct sf_text *out, const char *path, const struct sf_replay_way *way, int64_t job_ranks);

#endif
