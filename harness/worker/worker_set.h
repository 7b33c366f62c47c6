/* A set of worker processes under a launcher that drives a framework: requests go out as JSON lines on a Unix socket, one connection for
 * each rank, and every rank answers each of them. What is said on either side stands in targets/worker.md.
 *
 * A set that breaks the protocol, falls silent or dies is over: it is ended by the pids of its processes, with a line that says what
 * happened, and the caller starts a fresh one. What its processes print is kept apart, the last lines of it. */
#ifndef SF_WORKER_WORKER_SET_H
#define SF_WORKER_WORKER_SET_H

#include "harness/base/status.h"

#include <jansson.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

enum { SF_WORKER_RANKS_MAX = 256, SF_WORKER_OUTPUT_TEXT = 4096, SF_WORKER_LINE_BYTES = 1 << 20 };

struct sf_worker_set_options {
  const char *command;   /* for /bin/sh, run on every rank; the environment's SHARDFUZZ_SOCKET names the socket */
  const char *launcher;  /* with {n}, such as "mpirun --oversubscribe -n {n}" */
  int32_t ranks;         /* 1..SF_WORKER_RANKS_MAX */
  double start_seconds;  /* for all ranks to say hello */
  double silent_seconds; /* how long a rank may say nothing while a request is under way; the whole request ten times as long */
  const char *folder;    /* an existing folder of ours for the socket */
  int held;              /* the folder's lock (sf_temporary), which is held until every process of the set has ended; -1: none */
  volatile sig_atomic_t *stop; /* NULL, or waiting ends with SF_WORKER_STOPPED once it is set */
};

/* How a request, or a start, ended. After the first four the set goes on. */
enum sf_worker_end {
  SF_WORKER_ANSWERED,   /* every rank answered; value is what rank 0 gave */
  SF_WORKER_REFUSED,    /* every rank said that it does not support the case */
  SF_WORKER_FULL,       /* there was no room for what some rank traced; every rank goes on */
  SF_WORKER_RAISED,     /* every rank said that it failed, and goes on */
  SF_WORKER_ONE_SIDED,  /* some ranks failed, the others did not or wait for them */
  SF_WORKER_DIED,       /* a rank's connection closed */
  SF_WORKER_SILENT,     /* past the deadline */
  SF_WORKER_GARBLED,    /* what a rank said is no answer to the request */
  SF_WORKER_UNSTARTED,  /* not every rank said hello */
  SF_WORKER_UNABLE,     /* this machine could not start the set: the command has not run */
  SF_WORKER_STOPPED,    /* *stop was set */
};
/* Whether the set can be asked again. */
static inline bool sf_worker_goes_on(enum sf_worker_end end) { return end <= SF_WORKER_RAISED; }
const char *sf_worker_end_name(enum sf_worker_end end); /* "answered", "one-sided", ... */

struct sf_worker_report {
  enum sf_worker_end end;
  int32_t rank;    /* the one that it began with; -1 = none alone */
  char text[480];  /* one line: why; empty when answered */
  int32_t said;    /* where in it begins what a rank said, and not what the others did meanwhile */
  json_t *value;   /* ANSWERED: a new reference, else NULL */
  bool may_be_spent; /* the set was ended, and its processes together had used about the processor time that one of them has (ulimit -t) */
  char output[SF_WORKER_OUTPUT_TEXT]; /* what the ranks printed last */
};
/* Gives up the value and zeroes the report. Takes a zeroed one. */
void sf_worker_report_clear(struct sf_worker_report *report);

struct sf_worker_set;
/* Starts the ranks and waits until each has said hello. SF_OK and *out written only when report->end is ANSWERED; SF_EIO with UNSTARTED,
 * UNABLE (or another end) in the report, SF_ENOMEM. The options' texts are copied. */
enum sf_status sf_worker_set_start(struct sf_worker_set **out, struct sf_worker_report *report,
                                   const struct sf_worker_set_options *options) SF_MUST_USE;
/* Ends every process of the set and frees it. Takes NULL. */
void sf_worker_set_end(struct sf_worker_set *set);
/* Whether nothing was said since the last answer and every rank is there: a set to give a request to. */
bool sf_worker_set_is_sound(struct sf_worker_set *set);
/* Sends request, a JSON object that gets the next id, to every rank and waits for the answers. The set of a report that does not go on has
 * been ended and must be given to sf_worker_set_end. SF_ENOMEM. */
enum sf_status sf_worker_set_ask(struct sf_worker_set *set, struct sf_worker_report *report, json_t *request) SF_MUST_USE;

#endif
