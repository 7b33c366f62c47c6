/* What the system says of its memory. */
#ifndef SF_BASE_SYSTEM_MEMORY_H
#define SF_BASE_SYSTEM_MEMORY_H

#include <stdint.h>

/* Bytes that the system can still give, or less where the control group that this process lives in (as containers see it) has a limit.
 * INFINITY: unknown. */
double sf_memory_available(void);
/* Resident bytes of this process and of all that it has started, as far as they can be seen; pages that they share count for each. */
int64_t sf_memory_of_processes(void);
/* Gives what this process has freed back to the system, page by page; elsewhere than with glibc it does nothing. */
void sf_memory_return(void);
/* How many processes the system has ended for want of memory: those of this process's control group, or, where the group does not count
 * them, all since the system started. INFINITY: unknown. */
double sf_memory_kills(void);
/* Reads a file of lines: the whole number behind the first `name` at the beginning of a line; name "" stands for the first line. INFINITY:
 * there is no such number. */
double sf_number_in_file(const char *path, const char *name);

#endif
