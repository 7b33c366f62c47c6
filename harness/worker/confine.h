/* What a process gives up before it runs code of a plugin. */
#ifndef SF_WORKER_CONFINE_H
#define SF_WORKER_CONFINE_H

#include <stdbool.h>

/* with_folder: makes a temporary folder (harness/base/temporary) that TMPDIR names, and its keeper, which removes it when the process and
 * all that it started are gone; not in an MPI job, whose libraries may not survive a fork. Forbids signals to every process at once: a
 * plugin that passes the result of a failed fork to kill calls kill(-1, ..). Goes on without protections that this system lacks. */
void sf_confine(bool with_folder);

#endif
