/* A campaign's findings by signature and by cause, read from its store: for the summary at its end, for --json and for the gate. */
#ifndef SF_RUN_SIGNATURES_H
#define SF_RUN_SIGNATURES_H

#include "harness/base/bytes.h"
#include "harness/run/campaign/campaign.h"
#include "harness/run/report/report.h"

struct sf_signature {
  char signature[SF_SIGNATURE_TEXT];
  int64_t count, first_index; /* cases, and the index of the first */
  int32_t trials, trials_max; /* of shrinking, and at most; 0: not shrunk */
  bool shrunk, minimal;       /* there is a smallest case; no smaller one fails */
  bool known;
  int32_t cause;                 /* index of the first signature of its cause (causes.h): its own where it is that */
  struct sf_diagnosis diagnosis; /* of the smallest case; text "" when there is none */
  char *report, *what;           /* as in report.txt; what is wrong, in a line; owned */
  char *contrast;                /* why the smallest case fails (process/contrast_text.h), or ""; owned */
  char directory[SF_PATH_TEXT - 16], min_path[SF_PATH_TEXT]; /* the finding's folder, and in it the file of the smallest case */
};

/* By ascending index of the case. Those of one cause are one distinct finding. It is new while one of its
 * signatures is not known: another fault may hide behind that one. */
struct sf_signatures {
  int32_t count, cause_count, new_cause_count;
  struct sf_signature *at;
};

/* Reads the store that the options name. Fails as sf_store_open, and with SF_ENOMEM; *out is to be destroyed only on success. */
enum sf_status sf_signatures_read(struct sf_signatures *out, const struct sf_campaign_options *options, struct sf_error *error) SF_MUST_USE;
void sf_signatures_destroy(struct sf_signatures *signatures); /* takes what is zeroed */
/* Whether a signature of this cause is not known. */
bool sf_signatures_is_new(const struct sf_signatures *signatures, int32_t cause);
/* Appends a line for each cause, named by one of its signatures (a new one before a known one, then one that was shrunk, then the first),
 * and below it its further signatures and what the diagnoses say. */
void sf_signatures_text(struct sf_text *out, const struct sf_signatures *signatures);
/* Fills a zeroed report, which the caller destroys, with a campaign's result: each cause, and the campaign as a whole. nothing: "", or
 * why nothing could be judged. replay: as in the campaign's options. */
void sf_campaign_report(struct sf_report *report, const struct sf_campaign_result *result, const struct sf_signatures *signatures,
                        const char *nothing, const struct sf_replay_way *replay);

#endif
