/* A set of ranks (rank_set.h) that drives a framework: requests go out as JSON lines, and every rank answers each of them. What is said on
 * either side stands in targets/worker.md.
 *
 * A set that breaks the protocol, falls silent or dies is over: it is ended by the pids of its processes, with a line that says what
 * happened, and the caller starts a fresh one. What its processes print is kept apart, the last lines of it. */
#ifndef SF_WORKER_WORKER_SET_H
#define SF_WORKER_WORKER_SET_H

#include "harness/worker/rank_set.h"

enum { SF_WORKER_RANKS_MAX = 256 };

/* Gives up the value and zeroes the report. Takes a zeroed one. */
void sf_worker_report_clear(struct sf_worker_report *report);

/* Starts at most SF_WORKER_RANKS_MAX ranks, each of which gives options->command to /bin/sh, and waits until each has said hello. SF_OK and
 * *out written only when report->end is ANSWERED; SF_EIO with UNSTARTED, UNABLE (or another end) in the report, SF_ENOMEM. The options'
 * texts are not needed afterwards. */
enum sf_status sf_worker_set_start(struct sf_rank_set **out, struct sf_worker_report *report,
                                   const struct sf_rank_set_options *options) SF_MUST_USE;
/* Ends every process of the set and frees it. Takes NULL. */
void sf_worker_set_end(struct sf_rank_set *set);
/* Whether nothing was said since the last answer and every rank is there: a set to give a request to. */
bool sf_worker_set_is_sound(struct sf_rank_set *set);
/* Sends request, a JSON object that gets the next id, to every rank and waits for the answers. The set of a report that does not go on has
 * been ended and must be given to sf_worker_set_end. SF_ENOMEM. */
enum sf_status sf_worker_set_ask(struct sf_rank_set *set, struct sf_worker_report *report, json_t *request) SF_MUST_USE;

#endif
