/* What the system says of its memory. */
#ifndef SF_BASE_SYSTEM_MEMORY_H
#define SF_BASE_SYSTEM_MEMORY_H

/* Bytes that the system can still give, or less where the control group that this process lives in (as containers see it) has a limit.
 * INFINITY: unknown. */
double sf_memory_available(void);
/* Processes that the system has ended for want of memory: those of this process's control group, or where that does not count them, all
 * since it started. INFINITY: unknown. */
double sf_memory_kills(void);
/* Of a file of lines, the whole number behind the first `name` that begins one; name "" is the first line. INFINITY: there is none. */
double sf_number_in_file(const char *path, const char *name);

#endif
