/* A campaign: draws cases, runs them in a pool, confirms and shrinks findings, and keeps everything in a store. */
#ifndef SF_RUN_CAMPAIGN_H
#define SF_RUN_CAMPAIGN_H

#include "generators/codec.h"
#include "generators/cover.h"
#include "harness/base/system/directories.h"
#include "harness/run/campaign/known.h"
#include "harness/run/process/pool.h"
#include "harness/run/store/store.h"
#include "harness/run/support/replay_way.h"

#include <signal.h>

struct sf_choice_space;

enum { SF_OUT_TEXT = SF_PATH_TEXT - 272 /* a finding's folder and a file in it have room */, SF_CAMPAIGN_PLANTS_MAX = 128 };

struct sf_campaign_options {
  struct sf_space space;
  const struct sf_choice_space *framework; /* NULL, or cases are drawn from a framework's fields and not from space; with pool.operations
                                              they are that target's */
  uint64_t seed;
  int64_t cases;      /* total, a resumed store's included; INT64_MAX = until the time is up */
  double seconds;     /* hand out cases for this long; 0 = no limit */
  double seconds_all; /* end after this long: findings that are not confirmed and shrunk by then are booked as they were found; 0 = no
                         limit. Not inside of an MPI job */
  int64_t stop_after; /* hand out cases until this run has booked so many signatures that are new and not known; 0 = no limit */
  int64_t layouts;    /* cases that share a logical function (and its reference), >= 1 */
  const char *plants[SF_CAMPAIGN_PLANTS_MAX];
  int32_t plant_count;    /* plants are given to the logical functions in turn */
  struct sf_cover *cover; /* owned; NULL, or which pairs of choices the first cases have (sf_campaign_cover) */
  struct sf_known known;
  char store_path[SF_PATH_TEXT];
  char job_path[SF_PATH_TEXT]; /* what people resume where the store is that of a job's share (job_campaign.h); else "" */
  bool resume;
  const char *target;               /* what people call the code under test; NULL: nothing. Borrowed */
  int32_t ranks_max;                /* most ranks of a case, to be told; 0: of no interest */
  int32_t mpi_ranks;                /* of the MPI job that the campaign is; else 0 */
  struct sf_replay_way replay;      /* what a replay needs beside the case to run as here */
  int32_t share_index, share_count; /* which indices this campaign runs (store.h); zeros = all */
  int64_t share_block;              /* indices that follow each other in a share; 0: SF_STORE_SHARE_BLOCK */
  char out_dir[SF_OUT_TEXT];
  struct sf_pool_options pool;
  bool inside_mpi;                   /* the campaign is an MPI job itself (mpi_campaign.h); the pool is not used */
  double deadline;                   /* <= 0: by the size of the case */
  int32_t shrink_budget;             /* evaluations; 0 = confirm only */
  bool progress;                     /* stderr is told how far it is and what is found (progress.h) */
  const volatile sig_atomic_t *stop; /* may be NULL; non-zero = hand out nothing new, give what runs a second, shrink no more */
};

/* Whether the caller wants it to end. */
static inline bool sf_campaign_is_stopped(const struct sf_campaign_options *options) { return options->stop && *options->stop; }

/* What the campaign draws from, unless it is one of operations. Borrows the options. */
struct sf_table sf_campaign_table(const struct sf_campaign_options *options);

/* Case `index` of a campaign: a function of (seed, options that stand in sf_campaign_text, index) alone. */
enum sf_status sf_campaign_case(struct sf_case *out, const struct sf_campaign_options *options, int64_t index,
                                struct sf_error *error) SF_MUST_USE;
/* The job that runs case `index`, as *job with this tag. Fails as sf_campaign_case. */
enum sf_status sf_campaign_job(struct sf_job *job, const struct sf_campaign_options *options, int64_t tag, int64_t index,
                               struct sf_error *error) SF_MUST_USE;
/* The job that shrinks a case to what still fails as it was found. */
void sf_campaign_shrink_job(struct sf_job *job, const struct sf_campaign_options *options, int64_t tag, const struct sf_case *c,
                            const struct sf_outcome *found);
/* Those options as lines "key=value\n". The caller frees *out with sf_free. */
enum sf_status sf_campaign_text(char **out, const struct sf_campaign_options *options) SF_MUST_USE;

/* Makes the first cases cover every pair of choices; after space, seed and layouts are set. */
enum sf_status sf_campaign_cover(struct sf_campaign_options *options, struct sf_error *error) SF_MUST_USE;

struct sf_campaign_result {
  uint64_t seed;
  char seeds[200]; /* of several campaigns whose stores were joined, as "1,2"; else "" */
  struct sf_store_summary summary;
  struct sf_cover_shares cover; /* of all cases of the store that were not skipped; zeros without a covering table */
  char not_covered[200];        /* a pair of choices that no case had; "" when there is none */
  int64_t crashed, hung;
  int64_t new_signatures; /* not on the known list */
  double seconds;         /* of this run */
  double seconds_all;     /* of all runs of the store; NAN: an earlier version kept no time, or the store was merged */
  int64_t cases_run;      /* in this run */
  bool interrupted;
  int64_t waiting; /* findings that were seen and, interrupted, not confirmed: their cases have no verdict, --resume runs them again */
  int64_t waiting_first; /* smallest index of those */
};
/* Counts a finding of this case that is not confirmed yet. */
static inline void sf_campaign_add_waiting(struct sf_campaign_result *result, int64_t index) {
  if (result->waiting++ == 0 || index < result->waiting_first) result->waiting_first = index;
}
/* Whether nothing has been shown, which a script must not take for "nothing found": every case was skipped or inconclusive, or passed
 * without a value that could be judged. */
static inline bool sf_campaign_judged_nothing(const struct sf_campaign_result *result) {
  const struct sf_store_summary *s = &result->summary;
  if (s->cases == 0 || s->by_verdict[SF_VERDICT_FINDING] > 0) return false;
  return s->by_verdict[SF_VERDICT_PASS] == 0 || (s->checked == 0 && s->unchecked > 0);
}
/* Says so in one line: how many cases, and why for the last one. */
void sf_campaign_nothing_text(char *out, size_t size, const struct sf_campaign_result *result);
/* Returns when the cases or the time are used up and every finding has been dealt with. After `stop`, cases that did not end in time have
 * no verdict, and neither have findings that are not confirmed and shrunk yet (`waiting`), so that a resumed campaign ends like one that
 * was never stopped. Files: <out>/<signature>/{case.json,min.json,report.txt}. */
enum sf_status sf_campaign_run(const struct sf_campaign_options *options, struct sf_campaign_result *result,
                               struct sf_error *error) SF_MUST_USE;

#endif
