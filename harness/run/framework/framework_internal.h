/* What the files of a framework's runs share. */
#ifndef SF_RUN_FRAMEWORK_INTERNAL_H
#define SF_RUN_FRAMEWORK_INTERNAL_H

#include "harness/base/system/temporary.h"
#include "harness/run/framework/framework.h"
#include "harness/run/framework/framework_sets.h"

struct sf_framework {
  struct sf_framework_options options;
  struct sf_temporary folder;        /* for sockets, and traces that do not stay */
  char reference[SF_FRAMEWORK_PATH]; /* folder of the reference whose noise is known; empty = none */
  int32_t draws_made;                /* perturbed runs of that reference */
  int32_t draws_distinct;            /* of them, those that moved anything */
  char *reference_text;              /* the logical function that it computes */
  char anchors[SF_FRAMEWORK_PATH];   /* folder of the candidate's tensors, which the reference is given; empty = it computes its own */
  struct sf_framework_sets sets;
  json_t *described;
  struct sf_description *description;
  int64_t cases;
  int32_t unstarted;            /* cases in a row whose set did not start */
  bool supposes;                /* a finding's diagnosis may run the reference with mistakes */
  bool is_thorough, is_quick;   /* how many perturbed runs judge a finding (sf_framework_be_thorough) */
  struct sf_evidence *evidence; /* NULL, or where what a judgement saw is kept */
};

/* --- framework.c: runs ------------------------------------------------------------------------------------------- */

/* An empty folder, for a run's trace or what else it writes. */
enum sf_status sf_framework_make_folder(const char *path, struct sf_error *error) SF_MUST_USE;
/* A request to run the case. draw: -1 = not perturbed. anchors: empty = none. NULL on no memory. */
json_t *sf_framework_request(const json_t *c, const char *run, int32_t draw, int32_t ranks, const char *anchors, const char *folder);
/* Runs the request into folder, and takes it. A set that ran out of processor time may have used it for earlier cases, and one whose zygote
 * died had no choice, so a fresh set gets a second attempt. */
enum sf_status sf_framework_ask_to_run(struct sf_framework *f, struct sf_worker_report *report, json_t *request, int32_t ranks,
                                       const char *folder, struct sf_error *error) SF_MUST_USE;
/* Runs the case once into folder. *good: the trace is complete; else the outcome says why not. draw: as above. */
enum sf_status sf_framework_run_one(struct sf_framework *f, bool *good, struct sf_framework_outcome *outcome, const json_t *c,
                                    const char *run, int32_t draw, const char *folder, struct sf_error *error) SF_MUST_USE;
/* The file of the noise levels that so many perturbed runs gave. */
void sf_framework_noise_path(char *out, size_t size, const struct sf_framework *f, const char *reference, int32_t draws);

/* --- framework_diagnose.c ---------------------------------------------------------------------------------------- */

/* Judges once more, with runs of the reference in which one choice after the other is not made, so that the diagnosis can say "as if".
 * before: the outcome as it was before the judgement. */
enum sf_status sf_framework_judge_supposing(struct sf_framework *f, struct sf_framework_outcome *outcome, const json_t *c,
                                            const char *folder, const char *candidate, const struct sf_framework_outcome *before,
                                            struct sf_error *error) SF_MUST_USE;
/* Runs candidate and reference once more and lets them note the operations behind the first wrong tensor. The diagnosis gets the one that
 * went wrong; it gets none where a run fails or the operations do not tell. */
enum sf_status sf_framework_find_operation(struct sf_framework *f, struct sf_framework_outcome *outcome, const json_t *c,
                                           const char *folder, struct sf_error *error) SF_MUST_USE;

#endif
