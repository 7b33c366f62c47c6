/* What code under test prints. While it runs in a process of its own, its stdout and stderr go to memory that outlives the process. When a
 * case has ended this text goes to stderr, line by line and marked (SF_SAID_PREFIX). The last line of a process that died stands in its
 * finding. */
#ifndef SF_WORKER_SAID_H
#define SF_WORKER_SAID_H

#include <stdbool.h>
#include <stddef.h>

struct sf_said {
  int memory; /* shared by the process and its parent; -1: none */
  const volatile char *first; /* its first byte; 0: nothing is there. A look costs no system call */
  int own[2]; /* stdout and stderr of the process, while they go to memory; -1: they do not */
};

/* For the parent, before it forks. False: no memory. */
bool sf_said_open(struct sf_said *out);
void sf_said_close(struct sf_said *said); /* what is not passed on is lost; may be called twice */

/* For the process: keeps what it prints from here on. Does nothing without memory. */
void sf_said_begin(struct sf_said *said);
/* A case has ended: passes on what it printed. */
void sf_said_pass_on(struct sf_said *said);
/* The same, and keeps nothing any more. */
void sf_said_end(struct sf_said *said);

/* For the parent, once the process is gone: passes everything on. out: the last line, without blanks round it; "" when there is none. */
void sf_said_last(struct sf_said *said, char *out, size_t size);

#endif
