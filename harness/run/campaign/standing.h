/* Where a campaign stands. One struct, which the ledger fills (sf_ledger_stand); the live screen, the line of a log, `shardfuzz status`
 * with its JSON and its Prometheus text, and what the store keeps for other terminals and nodes are all made of it. */
#ifndef SF_RUN_STANDING_H
#define SF_RUN_STANDING_H

#include "harness/base/bytes.h"
#include "harness/run/support/progress.h"
#include "harness/run/trial/outcome.h"

#include <jansson.h>

/* KILLED: the process is not there any more, and did not say how it ended. */
#define SF_CAMPAIGN_STATE_MAP(X) X(RUNNING, "running") X(ENDED, "ended") X(INTERRUPTED, "interrupted") X(KILLED, "killed")
enum sf_campaign_state {
#define SF_STATE_CONSTANT(name, text) SF_CAMPAIGN_##name,
  SF_CAMPAIGN_STATE_MAP(SF_STATE_CONSTANT)
#undef SF_STATE_CONSTANT
      SF_CAMPAIGN_STATE_COUNT
};

/* X(member, what it is). The member is the key of its JSON, and shardfuzz_MEMBER its metric. Counts that are negative and reals that are
 * not finite are not known, or there is no such thing: null. */
#define SF_STANDING_COUNT_MAP(X)                                                                                                           \
  X(seed, "seed of the campaign")                                                                                                          \
  X(cases, "cases with a verdict, of all runs of the store")                                                                               \
  X(cases_run, "cases of this run")                                                                                                        \
  X(cases_wanted, "cases at which the campaign ends (--cases)")                                                                            \
  X(passed, "cases that passed")                                                                                                           \
  X(findings, "cases with a finding, those that are being confirmed included")                                                             \
  X(inconclusive, "cases that could not be judged")                                                                                        \
  X(skipped, "cases that were not run")                                                                                                    \
  X(shrinking, "findings that are being confirmed and shrunk")                                                                             \
  X(signatures, "distinct signatures of findings")                                                                                         \
  X(new_signatures, "signatures that are not on the known list")                                                                           \
  X(newest_case, "case that showed the newest signature")                                                                                  \
  X(pairs, "pairs of settings that can occur together")                                                                                    \
  X(pairs_run, "pairs of settings that some case has had")                                                                                 \
  X(memory_bytes, "resident memory of the campaign's processes")                                                                           \
  X(processes, "processes that run cases, or ranks of the MPI job")                                                                        \
  X(ranks_max, "most ranks of a case")                                                                                                     \
  X(pid, "process that leads the campaign")
#define SF_STANDING_REAL_MAP(X)                                                                                                            \
  X(seconds, "time that all runs of the store took, in seconds")                                                                           \
  X(seconds_run, "time that this run has taken, in seconds")                                                                               \
  X(seconds_wanted, "time after which this run starts no more cases (--time), in seconds")                                                 \
  X(seconds_left, "time that is left to this run, in seconds")                                                                             \
  X(share_done, "share of --time or --cases that is used, 0 to 1")                                                                         \
  X(cases_per_s, "cases of this run for each of its seconds")                                                                              \
  X(newest_at, "when the newest signature was found, in seconds since 1970")                                                               \
  X(updated_at, "when the campaign last said so, in seconds since 1970")

enum { SF_STANDING_TARGET_TEXT = 160, SF_STANDING_HOST_TEXT = 65 };
struct sf_standing {
  enum sf_campaign_state state;
#define SF_STANDING_COUNT(member, what) int64_t member;
#define SF_STANDING_REAL(member, what) double member;
  SF_STANDING_COUNT_MAP(SF_STANDING_COUNT)
  SF_STANDING_REAL_MAP(SF_STANDING_REAL)
#undef SF_STANDING_COUNT
#undef SF_STANDING_REAL
  char target[SF_STANDING_TARGET_TEXT]; /* the code under test */
  char newest[SF_SIGNATURE_TEXT];       /* the newest signature; "" while there is none */
  char host[SF_STANDING_HOST_TEXT];     /* where the process is */
};

/* The text above. */
const char *sf_campaign_state_text(enum sf_campaign_state state);
/* Nothing known of anything. */
struct sf_standing sf_standing_unknown(void);

/* One line for a log: "5360 cases, 60/s, 2 findings, 1 being shrunk, 14 % of 10m, 8m37s left". */
void sf_standing_line(struct sf_text *out, const struct sf_standing *standing);
enum { SF_STANDING_LINES = 10 };
/* The lines of a screen; returns how many. store: its file. now: seconds since 1970. */
int32_t sf_standing_screen(struct sf_screen_line lines[SF_STANDING_LINES], const struct sf_standing *standing, const char *store,
                           double now);
/* Jansson's flags with which it is printed: milliseconds of the present, and no more. */
#define SF_STANDING_DIGITS JSON_REAL_PRECISION(14)
/* All members. NULL when memory is out. */
json_t *sf_json_of_standing(const struct sf_standing *standing);
/* Reads what sf_json_of_standing made, perhaps by another version: what it lacks is unknown. SF_EINPUT: it is nothing of that kind. */
enum sf_status sf_standing_from_json(struct sf_standing *out, const char *text) SF_MUST_USE;
/* Reads it from a store, which another process may be writing. Fails as sf_store_open. */
enum sf_status sf_standing_read(struct sf_standing *out, const char *path, struct sf_error *error) SF_MUST_USE;
/* Prometheus's text format, version 0.0.4: a gauge for each number that is known, and shardfuzz_state. */
void sf_standing_prometheus(struct sf_text *out, const struct sf_standing *standing, const char *store);

enum { SF_SPAN_TEXT = 24 };
/* "1h03m", "8m37s", "42s". */
void sf_span_text(char out[SF_SPAN_TEXT], double seconds);

#endif
