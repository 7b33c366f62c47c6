/* Ending what a process brought into being. */
#ifndef SF_WORKER_DESCENDANTS_H
#define SF_WORKER_DESCENDANTS_H

#include <stdint.h>
#include <sys/types.h>

/* Kills every process that descends from root, by its id, whatever group or session it is in, but not keepers of temporary folders and not
 * root itself. Returns how many it killed. It may miss processes that are started meanwhile: call it again until nothing is left. Only for
 * single-threaded watchers: it uses static memory. */
int32_t sf_descendants_kill(pid_t root);
/* The same for the descendants of this process, which must be the reaper of orphans. Where the system lists children it kills those alone,
 * which is quicker: grandchildren become its children once these are gone. */
void sf_descendants_kill_own(void);

#endif
