/* Temporary folders that are removed whatever happens to the process that made them.
 *
 * A folder lives as long as some process holds the lock of the file SF_TEMPORARY_LOCK in it; the kernel gives the lock up when the last
 * such process is gone. The process that then gets the lock removes the folder: the owner at its end, else the folder's keeper, a process
 * that waits for the lock, else the next process that makes a temporary folder beside it. On a file system that several containers share,
 * locks tell living owners from dead ones; pids do not. */
#ifndef SF_BASE_TEMPORARY_H
#define SF_BASE_TEMPORARY_H

#include "harness/base/status.h"

#include <stdbool.h>
#include <sys/types.h>

#define SF_TEMPORARY_LOCK ".shardfuzz-lock"

enum { SF_TEMPORARY_PATH = 960 };

struct sf_temporary {
  char path[SF_TEMPORARY_PATH]; /* "": none */
  int lock; /* closed on exec. Processes forked from the owner hold it too, unless they close it: the folder outlives them */
};

/* Removes what dead owners left in base, and makes BASE/shardfuzz-XXXXXX, which only this user can enter. SF_ENOTFOUND, SF_ENOSPC, SF_EIO,
 * with one line. */
enum sf_status sf_temporary_create(struct sf_temporary *out, const char *base, struct sf_error *error) SF_MUST_USE;
/* Starts the folder's keeper, a process in a session of its own that removes the folder as soon as nobody holds its lock. Where it cannot
 * be started nothing happens. Not in an MPI job, whose libraries may not survive a fork. */
void sf_temporary_keep(const struct sf_temporary *temporary);
/* Whether the process is such a keeper, by its name. Code that ends all processes of an owner spares keepers. */
bool sf_temporary_is_keeper(pid_t pid);
/* The owner's end: removes the folder with all that is in it. Takes a zeroed one, and leaves one. */
void sf_temporary_remove(struct sf_temporary *temporary);

/* Removes the folders in base that sf_temporary_create made for this user and whose owners are gone. */
void sf_temporary_sweep(const char *base);

/* Removes path and everything below it, also what nobody may read; what cannot be removed stays. Follows no links. */
void sf_remove_tree(const char *path);

#endif
