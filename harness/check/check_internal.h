/* Inside the check: what is shared by comparing tensors, and by what is computed from the candidate alone. */
#ifndef SF_CHECK_CHECK_INTERNAL_H
#define SF_CHECK_CHECK_INTERNAL_H

#include "harness/check/blocks.h"
#include "harness/check/check.h"

/* The squares of the main gradients that have one name in all layers. */
struct sf_norm_share {
  char name[96]; /* "attention.out.weight" */
  double squares;
};

/* The squared norm of a step's merged main gradients. */
struct sf_step_norm {
  int64_t step;
  double squares, uncut_squares, expert_squares; /* of all; of those that ranks hold whole; of experts */
  struct sf_norm_share *shares;
  int32_t share_count;
  bool incomplete; /* some could not be merged */
};

struct sf_checking {
  const struct sf_trace_set *reference, *candidate;
  const struct sf_noise_file *noise;
  const struct sf_suppositions *supposed; /* NULL: none */
  struct sf_merger *of_reference, *of_candidate;
  double *wide[2], *row_noise; /* of one block */
  unsigned char *bytes[2];
  struct sf_check_report report;
  struct sf_step_norm *steps;
  int32_t step_count;
  struct sf_error *error;
};

/* A new result about a tensor; NULL on no memory, with the error set. Valid until the next one is added. */
struct sf_check_result *sf_check_add(struct sf_checking *checking, const struct sf_trace_tensor *tensor);
/* Makes a result a finding. rank: -1, or the one to name. format: the text that says what was expected and found. */
void sf_check_flag(struct sf_check_result *result, enum sf_finding_class cls, int32_t rank, const char *format, ...) SF_PRINTF(4, 5);
/* Error over noise; 0 over 0 is no distance at all. */
double sf_check_ratio(double error, double noise);

/* check_step.c: judges the results of the candidate's grad_norm anew, by the norm of its own main gradients; those of a step whose main
 * gradients are not all there stay as they are. SF_EINPUT, SF_EIO, SF_ENOMEM: its file cannot be read. */
enum sf_status sf_check_grad_norms(struct sf_checking *checking) SF_MUST_USE;
/* By its name and kind. */
bool sf_check_is_grad_norm(const struct sf_trace_tensor *tensor);
/* Adds a main gradient of the candidate, NULL: none, to its step's norm; incomplete: it cannot be merged. SF_ENOMEM. */
enum sf_status sf_check_add_squares(struct sf_checking *checking, int64_t step, const struct sf_trace_tensor *tensor, double squares,
                                    bool incomplete) SF_MUST_USE;
/* NULL: the step has no main gradients. */
struct sf_step_norm *sf_check_find_norm(const struct sf_checking *checking, int64_t step);

/* check_extra.c: what the reference lacks. Recomputed activations are compared with the same rank's first pass; main gradients count for
 * the norm. */
enum sf_status sf_check_extras(struct sf_checking *checking) SF_MUST_USE;

/* check_pattern.c: fills in the report's pattern, once its culprits are known. SF_ENOMEM. */
enum sf_status sf_check_pattern(struct sf_checking *checking) SF_MUST_USE;

/* check_explain.c: fills in the diagnosis of a culprit. Reads its tensor again, and its neighbours. */
enum sf_status sf_check_explain(struct sf_checking *checking, struct sf_check_culprit *culprit) SF_MUST_USE;

#endif
