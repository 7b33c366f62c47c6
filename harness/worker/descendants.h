/* Ending what a process brought into being. */
#ifndef SF_WORKER_DESCENDANTS_H
#define SF_WORKER_DESCENDANTS_H

#include <stdint.h>
#include <sys/types.h>

/* Kills every process that descends from root, by its id, whatever group or session it is in, but for keepers of temporary folders; root
 * itself stays. Returns how many that were. What is started meanwhile may be missed: call it again until nothing is left. Only for
 * single-threaded watchers: it uses static memory. */
int32_t sf_descendants_kill(pid_t root);
/* The same of this process, the reaper of orphans: its own children alone where the system lists them, which is quicker. Theirs are its own
 * once they are gone. */
void sf_descendants_kill_own(void);

#endif
