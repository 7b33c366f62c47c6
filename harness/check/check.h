/* A candidate's trace judged by a reference's: structure first, then distances over measured noise levels, tensor by tensor. */
#ifndef SF_CHECK_CHECK_H
#define SF_CHECK_CHECK_H

#include "harness/check/noise.h"
#include "oracles/diagnose/pattern.h"
#include "oracles/diagnose/picture.h"
#include "oracles/judge/judge.h"

/* How one tensor fared. */
struct sf_check_result {
  const struct sf_trace_tensor *tensor; /* the reference's; the candidate's where the reference has none */
  bool judged, flagged;
  const char *why_not;              /* NULL when judged */
  enum sf_finding_class cls;        /* flagged only */
  int32_t rank;                     /* the rank concerned, -1 = the merged tensor */
  int64_t row;                      /* worst row where that is worse than the whole, else -1 */
  int64_t at;                       /* flagged by values: an element where it is wrong */
  double norm, error, noise, ratio; /* by the worse of tensor and row; ratio is error / noise */
  double tensor_error, tensor_noise, tensor_ratio, row_ratio;
  double excess;    /* flagged only: how many times its bound; INFINITY where no perturbed run could change that */
  char text[200];   /* flagged only: what is wrong */
  const char *hint; /* for whoever wrote the trace: what to look at; NULL = nothing */
};

/* A wrong tensor that no other one explains. */
struct sf_check_culprit {
  int32_t result;                /* its place among the results */
  struct sf_diagnosis diagnosis; /* of what is wrong in its values; text "" where that says nothing */
  struct sf_picture *picture;    /* NULL where its values are not compared; the report's */
};
enum { SF_CHECK_CULPRITS_MAX = 32 };

struct sf_check_report {
  enum sf_verdict verdict; /* INCONCLUSIVE: nothing could be judged */
  int32_t result_count;
  struct sf_check_result *results; /* in the reference's order of execution, then what it lacks, in the candidate's */
  int32_t judged, not_judged, findings;
  bool anchored;  /* the reference was given the candidate's own tensors */
  bool by_module; /* each module is compared by itself: the candidate is isolated, or the reference anchored */
  /* The first finding, or the first parameter that differs at the start, if one does. Of isolated and anchored runs also the others up to
   * the first that later ones may follow from, as many as there is room for; where most of a step's main gradients are wrong the first
   * stands for all. */
  int32_t culprit_count;
  struct sf_check_culprit culprits[SF_CHECK_CULPRITS_MAX];
  char pattern[SF_PATTERN_TEXT]; /* which tensors of the first culprit's kind are flagged, as a rule; "" where there is none */
  /* Parameters before step 0; those that differ in value, of which all later findings may be consequences; those of them that differ
   * between the candidate's ranks. */
  int32_t start_count, start_differ, start_conflicts;
};

/* Runs of the reference with one mistake each, for the diagnosis: texts as in struct sf_diagnosis_related. */
struct sf_supposed_run {
  struct sf_trace_set set;
  char name[128], without[64];
};
struct sf_suppositions {
  int32_t count;
  struct sf_supposed_run *runs;
};

/* Streams: memory does not grow with the size of tensors. reference has one rank. supposed: NULL for none. SF_EINPUT or SF_EIO when a file
 * cannot be read to its end, SF_ENOMEM. *out is written only on success. */
enum sf_status sf_check_run(struct sf_check_report *out, const struct sf_trace_set *reference, const struct sf_noise_file *noise,
                            const struct sf_trace_set *candidate, const struct sf_suppositions *supposed,
                            struct sf_error *error) SF_MUST_USE;
/* The error of a tensor over what is allowed, of the whole or of its worst row; NaN where it is not a number. */
double sf_check_share(const struct sf_check_report *report, const struct sf_check_result *result);
/* All findings stay if bounds are up to so many times wider. INFINITY: none depends on a noise level, or there is none. */
double sf_check_report_margin(const struct sf_check_report *report);
void sf_check_report_destroy(struct sf_check_report *report); /* takes NULL and what is zeroed */

#endif
