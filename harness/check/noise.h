/* noise.safetensors: how far rounding alone moves each tensor of a reference (targets/trace_format.md). */
#ifndef SF_CHECK_NOISE_H
#define SF_CHECK_NOISE_H

#include "harness/check/trace_set.h"

/* Places in a tensor's vector; from SF_NOISE_ROWS on one number for each row. */
enum { SF_NOISE_NORM, SF_NOISE_LEVEL, SF_NOISE_ROLLED, SF_NOISE_ROWS };

struct sf_noise_file {
  struct sf_st_open file;
  int64_t draws;
  double widening;         /* of what the draws measured, since they are few */
  bool has_mode, isolated; /* what the draws were */
};

/* Checks that there is a vector of the right length for each tensor of the reference. SF_EINPUT with one line; when there is no file, how
 * to make it. Close with sf_noise_close. */
enum sf_status sf_noise_open(struct sf_noise_file *out, const char *path, const struct sf_trace_set *reference,
                             struct sf_error *error) SF_MUST_USE;
void sf_noise_close(struct sf_noise_file *noise); /* takes NULL and what is zeroed */

/* Whether the trace can be a reference: one rank, that names no element twice. SF_EINPUT. */
enum sf_status sf_reference_check(const struct sf_trace_set *reference, struct sf_error *error) SF_MUST_USE;

/* Perturbed runs of a reference. A draw with the reference's values, or an earlier draw's, in every tensor tells nothing and does not
 * count. */
struct sf_noise_draws {
  const struct sf_trace_set *sets;
  int32_t count;
  int32_t distinct_min; /* fewer that count are SF_EINPUT; 0: any number will do */
  bool first; /* of more, which follow where these do not suffice: bounds are as narrow as they measure. Else few draws make wider ones */
};

/* Computes the file from the (checked) reference and perturbed runs of it, tensor by tensor, and writes it whole or not at all. SF_EINPUT
 * when a draw lacks a tensor or has another shape, ranks that contradict each other, values that are not finite where the reference's are,
 * or draws that are too much alike; SF_EIO, SF_ENOMEM. */
enum sf_status sf_noise_make(const char *path, const struct sf_trace_set *reference, const struct sf_noise_draws *draws,
                             struct sf_error *error) SF_MUST_USE;

#endif
