/* A campaign's findings by signature, read from its store: for the summary at its end and for --json. */
#ifndef SF_RUN_SIGNATURES_H
#define SF_RUN_SIGNATURES_H

#include "harness/base/bytes.h"
#include "harness/run/campaign/campaign.h"
#include "harness/run/report/report.h"

struct sf_signature {
  char signature[SF_SIGNATURE_TEXT];
  int64_t count, first_index; /* cases, and the index of the first */
  int32_t trials, trials_max; /* of shrinking, and at most; 0: not shrunk */
  bool minimal;
  bool known;
  struct sf_diagnosis diagnosis;                             /* of the smallest case; text "" when there is none */
  char *report, *what;                                       /* as in report.txt; what is wrong, in a line; owned */
  char directory[SF_PATH_TEXT - 16], min_path[SF_PATH_TEXT]; /* the finding's folder, and in it the file of the smallest case */
};

/* By ascending index of the case. */
struct sf_signatures {
  int32_t count;
  struct sf_signature *at;
};

/* Reads the store that the options name. Fails as sf_store_open, and with SF_ENOMEM; *out is to be destroyed only on success. */
enum sf_status sf_signatures_read(struct sf_signatures *out, const struct sf_campaign_options *options, struct sf_error *error) SF_MUST_USE;
void sf_signatures_destroy(struct sf_signatures *signatures); /* takes what is zeroed */
/* Appends a line for each, and below those with the same diagnosis, which are put together, the diagnosis. */
void sf_signatures_text(struct sf_text *out, const struct sf_signatures *signatures);
/* Fills a zeroed report, which the caller destroys, with a campaign's result: each signature, and the campaign as a whole. nothing: "", or
 * why nothing could be judged. replay_options: as in the campaign's options. */
void sf_campaign_report(struct sf_report *report, const struct sf_campaign_result *result, const struct sf_signatures *signatures,
                        const char *nothing, const char *replay_options);

#endif
