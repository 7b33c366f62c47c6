/* The campaign's books: verdict rows, findings with their files, and which signatures were seen. Used by the pool's and by MPI's campaign.
 */
#ifndef SF_RUN_LEDGER_H
#define SF_RUN_LEDGER_H

#include "harness/run/campaign/campaign.h"
#include "harness/run/campaign/standing.h"
#include "harness/run/support/progress.h"

struct sf_ledger_seen;
struct sf_ledger {
  const struct sf_campaign_options *options;
  struct sf_store *store;
  struct sf_ledger_seen *seen;
  struct sf_cover_count *cover; /* NULL when the campaign has no covering table */
  struct sf_ledger_news {
    int64_t cases;                           /* rows added by this run */
    int64_t new_signatures;                  /* that this run saw first, those of known findings apart */
    int64_t by_verdict[SF_VERDICT_SKIP + 1]; /* cases of all runs */
    int64_t signatures, signatures_known;    /* of all runs */
    double seconds_before;                   /* of earlier runs; NAN: not known */
    char newest[SF_SIGNATURE_TEXT];
    int64_t newest_case;
    double newest_at;            /* seconds since 1970 */
    double start;                /* of this run */
    double stood;                /* when the store was last told where the campaign stands */
    double memory_at;            /* when the memory was last looked at, */
    int64_t memory_bytes;        /* and what it was */
    struct sf_progress progress; /* what the run tells; each new signature has a line */
  } news;                        /* stays when the store is opened again */
  enum sf_status status;         /* first failure; later calls do nothing */
  struct sf_error error;
};

/* Opens the store as the options say. The ledger must not move while open. On failure the ledger is closed, error filled. */
enum sf_status sf_ledger_open(struct sf_ledger *ledger, const struct sf_campaign_options *options, struct sf_error *error) SF_MUST_USE;
/* Rows since the last sf_ledger_commit are dropped. */
void sf_ledger_close(struct sf_ledger *ledger);

/* Remembers a failure of the harness (only the first); text may be NULL. */
void sf_ledger_fail(struct sf_ledger *ledger, enum sf_status status, const char *text);

/* What follows adds the one verdict row of a case or, for one of its further culprits, the row of that. Failures: ledger->status. */
/* No finding. */
void sf_ledger_add_verdict(struct sf_ledger *ledger, int64_t index, const struct sf_case *c, const struct sf_outcome *outcome);
/* The rows of cases of a range that passed. */
void sf_ledger_add_passes(struct sf_ledger *ledger, int64_t first, const struct sf_passes *passes);
/* A finding: what the outcome tells of is booked. */
struct sf_booking {
  int64_t index;
  const struct sf_case *c;
  const struct sf_outcome *outcome;
  bool out_of_time; /* there was no time to confirm it */
  bool is_further;  /* another culprit of the case has, or gets, the verdict row */
};
/* Books what a shrink job found. A finding that ran to its end and did not fail so again becomes class FLAKY; one that could not be run
 * again stays as it was found. */
void sf_ledger_add_shrunk(struct sf_ledger *ledger, const struct sf_booking *booking, const struct sf_job_result *shrunk);
/* Books a finding that is not shrunk any more: under the signature that its key was shrunk to, if the case has that signature's axes. */
void sf_ledger_add_unshrunk(struct sf_ledger *ledger, const struct sf_booking *booking);
/* Gives a finding that will be booked (shrunk: NULL, or as above) a folder that no other campaign has. Call it for each finding of a case
 * before the first of them is booked: it commits the batch, and all rows of a case belong into one batch. */
void sf_ledger_claim_folder(struct sf_ledger *ledger, const struct sf_booking *booking, const struct sf_job_result *shrunk);
/* Copies up to `most` smallest cases of findings with this shrink key, in whatever mode; returns how many. */
int32_t sf_ledger_smallest(struct sf_ledger *ledger, struct sf_case *out, int32_t most, const char *shrink_key);
/* How often findings of this key were shrunk. */
int64_t sf_ledger_shrinks(struct sf_ledger *ledger, const char *shrink_key);
/* Findings of a key that are shrunk whatever they are: the first ones, of further culprits fewer, since one fault often makes several
 * tensors wrong. The shares of a campaign divide them: each sees its own first findings of a key, most often the same bug. Up to _MAX are
 * shrunk if they do not have the axes of any signature that the key was shrunk to. */
enum { SF_LEDGER_SHRINKS_PER_KEY = 3, SF_LEDGER_SHRINKS_OF_FURTHER = 1, SF_LEDGER_SHRINKS_MAX = 8 };
/* How many findings of its key are shrunk before this one's axes count. */
int64_t sf_ledger_shrinks_at_least(const struct sf_ledger *ledger, const struct sf_booking *booking);
/* Whether a finding is to be shrunk, once all of its key before it are in the books. */
bool sf_ledger_wants_shrink(struct sf_ledger *ledger, const struct sf_booking *booking);

/* Whether this run is to start no more cases: it is stopped, its time is up, or it has found as much as it was to stop after (options'
 * stop_after). */
bool sf_ledger_is_over(const struct sf_ledger *ledger);

/* What a campaign knows and its books do not. */
struct sf_ledger_open_work {
  int64_t findings;  /* cases with a finding that are not in the books yet */
  int64_t shrinking; /* of them */
};
/* Where the campaign stands. The coverage counts cases in the books. */
struct sf_standing sf_ledger_stand(struct sf_ledger *ledger, const struct sf_ledger_open_work *work);
/* Tells the terminal or the log where the campaign stands if it is time, and the store every two seconds. To be called often. */
void sf_ledger_tell(struct sf_ledger *ledger, const struct sf_ledger_open_work *work);

/* Makes every row added so far durable. */
void sf_ledger_commit(struct sf_ledger *ledger);
/* Says in the store how the run ended, commits, and fills summary, coverage and the numbers of this run. */
void sf_ledger_summarise(struct sf_ledger *ledger, struct sf_campaign_result *result);

#endif
