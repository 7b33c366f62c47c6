/* How much memory a case takes, known before it runs. A case that is too large for the machine is refused: the system would end the
 * process, which looks like a crash of the code under test. */
#ifndef SF_RUN_CASE_SIZE_H
#define SF_RUN_CASE_SIZE_H

#include "harness/spec/catalog.h"

/* Bytes. Only terms that matter once they are gigabytes count; the sum is within a quarter of the measured size. */
struct sf_case_size {
  double trace;     /* all traced tensors of the reference, and as much again for the candidate's, merged */
  double reference; /* weights, optimizer state and activations of a run */
  double ranks;     /* the same of all ranks together */
};
/* catalog: of the same case. */
struct sf_case_size sf_case_size(const struct sf_catalog *catalog, const struct sf_case *c);
/* All of it, in bytes. */
static inline double sf_case_size_total(struct sf_case_size size) { return size.trace + size.reference + size.ranks; }

#endif
