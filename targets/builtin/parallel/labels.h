/* The calls of the built-in layers, by label: one row each. A call whose label has no row, and a row that no case reaches, fail a test
 * (tests/unit/run/test_run_mutants.c). Calls that only planted faults make have none. */
#ifndef SF_TARGETS_LABELS_H
#define SF_TARGETS_LABELS_H

#include "harness/comm/comm.h"

struct sf_comm_label {
  const char *name;
  enum sf_comm_op op;
  enum sf_reduce reduce;    /* reductions only */
  const char *receive_name; /* SEND: label of the other end; else NULL */
  bool of_world;            /* its group is all ranks: there is no other one */
};
extern const struct sf_comm_label sf_comm_labels[];
extern const int sf_comm_label_count;
const struct sf_comm_label *sf_comm_label_find(const char *name); /* NULL when there is none */

#endif
