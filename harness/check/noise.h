/* noise.safetensors: how far rounding alone moves each tensor of a reference (targets/trace_format.md). */
#ifndef SF_CHECK_NOISE_H
#define SF_CHECK_NOISE_H

#include "harness/check/trace_set.h"

/* Places in a tensor's vector; from SF_NOISE_ROWS on one number for each row. Files of format 1 lack SF_NOISE_ALONG. */
enum { SF_NOISE_NORM, SF_NOISE_LEVEL, SF_NOISE_ROLLED, SF_NOISE_ALONG, SF_NOISE_ROWS };

struct sf_noise_file {
  struct sf_st_open file;
  int64_t format, draws;
  double widening;         /* of what the draws measured, since they are few */
  bool has_mode, isolated; /* what the draws were */
};

/* Checks that there is a vector of the right length for each tensor of the reference. SF_EINPUT with one line, which says how to make the
 * file when there is none. */
enum sf_status sf_noise_open(struct sf_noise_file *out, const char *path, const struct sf_trace_set *reference,
                             struct sf_error *error) SF_MUST_USE;
/* The numbers of a tensor that stand before those of its rows, and `count` of its rows' from `row` on. out: [SF_NOISE_ROWS], [count].
 * SF_EINPUT: one is negative, or the file has become shorter. */
enum sf_status sf_noise_head(double *out, const struct sf_noise_file *noise, const struct sf_st_entry *vector,
                             struct sf_error *error) SF_MUST_USE;
enum sf_status sf_noise_rows(double *out, const struct sf_noise_file *noise, const struct sf_st_entry *vector, int64_t row, int64_t count,
                             struct sf_error *error) SF_MUST_USE;
void sf_noise_close(struct sf_noise_file *noise); /* takes NULL and what is zeroed */

/* SF_OK when the trace can be a reference: one rank, which names no element twice; else SF_EINPUT. */
enum sf_status sf_reference_check(const struct sf_trace_set *reference, struct sf_error *error) SF_MUST_USE;

/* Perturbed runs of a reference. A draw that has the values of the reference, or of an earlier draw, in every tensor shows nothing and
 * does not count. */
struct sf_noise_draws {
  const struct sf_trace_set *sets;
  int32_t count;
  int32_t distinct_min; /* fewer that count are SF_EINPUT; 0: any number will do */
  int32_t *distinct;    /* NULL, or where to say how many count */
  bool first; /* of more, which follow where these do not suffice: bounds are as narrow as they measure. Else few draws make wider ones */
};

/* Computes the file from a reference that sf_reference_check took and perturbed runs of it, tensor by tensor, and writes it whole or not
 * at all. SF_EINPUT: a draw lacks a tensor or has another shape, its ranks contradict each other, it has values that are not finite where
 * the reference's are, or too few draws differ. SF_EIO, SF_ENOMEM. */
enum sf_status sf_noise_make(const char *path, const struct sf_trace_set *reference, const struct sf_noise_draws *draws,
                             struct sf_error *error) SF_MUST_USE;

#endif
