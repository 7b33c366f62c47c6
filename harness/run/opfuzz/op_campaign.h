/* Campaigns over operations: cases handed out to workers, findings counted by signature, each shrunk and written to a folder of its own. */
#ifndef SF_RUN_OP_CAMPAIGN_H
#define SF_RUN_OP_CAMPAIGN_H

#include "harness/run/campaign/known.h"
#include "harness/run/opfuzz/op_shrink.h"

enum { SF_OP_FINDINGS_MAX = 256, SF_OP_LOST_MAX = 64 };

struct sf_op_campaign_options {
  struct sf_op_pool_options pool;
  int64_t cases;         /* INT64_MAX: until stopped */
  double seconds;        /* 0: no limit */
  int64_t stop_after;    /* hand out cases until there are so many findings that are not known; 0: no limit */
  const struct sf_known *known; /* NULL: none */
  int32_t workers;
  int64_t shrink_budget;
  const char *out_dir;
  const char *replay_options; /* NULL, or what a replay needs beside the case: " --device 'cuda'" */
  bool progress; /* stderr is told how far it is and what is found */
};

struct sf_op_finding {
  char signature[128];
  int64_t count, first; /* cases, and the index of the first */
  struct sf_op_case c;  /* of the first */
  struct sf_op_outcome outcome;
  struct sf_op_shrunk min;
  char folder[SF_OP_PATH];
};

struct sf_op_campaign_result {
  int64_t cases, passed, skipped, inconclusive, found;
  int64_t judged, elements;
  double seconds; /* without shrinking */
  bool ended_early; /* SF_OP_LOST_MAX processes were lost to hangs, or to the limit on processor time */
  char lack[160];   /* why the last inconclusive case is that; "": there is none */
  int32_t finding_count;
  struct sf_op_finding findings[SF_OP_FINDINGS_MAX]; /* by signature */
};

/* Every case was skipped or inconclusive, or could be judged in no element: nothing has been shown. And one line that says so. */
bool sf_op_campaign_judged_nothing(const struct sf_op_campaign_result *result);
void sf_op_campaign_nothing_text(char *out, size_t size, const struct sf_op_campaign_result *result);

/* Stopped (pool.stop), it keeps what it has found, as small as it has become. The findings of the same cases are the same with any number
 * of workers. */
enum sf_status sf_op_campaign_run(struct sf_op_campaign_result *out, const struct sf_op_campaign_options *options,
                                  struct sf_error *error) SF_MUST_USE;

#endif
