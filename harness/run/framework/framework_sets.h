/* The worker sets of one process: found or started for a number of ranks, asked, kept for the next case, ended. */
#ifndef SF_RUN_FRAMEWORK_SETS_H
#define SF_RUN_FRAMEWORK_SETS_H

#include "harness/worker/worker_set.h"

enum { SF_FRAMEWORK_SETS_MAX = 4 };

struct sf_framework_sets {
  struct sf_rank_set_options start; /* of any of them; ranks and zygote aside */
  char zygote[SF_SOCKET_PATH_TEXT]; /* where ranks are forked; empty: the launcher starts them */
  struct sf_rank_set *own_zygote;   /* NULL, or the process there, which ends with these sets */
  bool died_with_zygote;            /* the last request's set; the launcher starts the next one */
  int32_t ranks_max;                /* of forked sets alive at a time; one set may have more */
  struct {
    int32_t ranks; /* 0: place is free */
    int64_t used;  /* number of the last request */
    struct sf_rank_set *set;
  } kept[SF_FRAMEWORK_SETS_MAX];
  int64_t requests, restarts;
};

/* Takes the request, and asks it of a set of that many ranks, which is started where there is none. Without a set the report is not
 * ANSWERED and says why. SF_ECANCELLED when stopped, SF_ENOMEM. */
enum sf_status sf_framework_sets_ask(struct sf_framework_sets *sets, struct sf_worker_report *report, json_t *request,
                                     int32_t ranks) SF_MUST_USE;
/* Asks the worker to describe itself, as above. The first process of a worker that can fork its ranks answers, and becomes the zygote. */
enum sf_status sf_framework_sets_describe(struct sf_framework_sets *sets, struct sf_worker_report *report) SF_MUST_USE;
/* Ends all sets but the zygote. */
void sf_framework_sets_rest(struct sf_framework_sets *sets);
void sf_framework_sets_end(struct sf_framework_sets *sets);

#endif
