/* The contract of a communicator, as programs that each rank runs. test_comm_contract.c runs them on each backend. */
#ifndef SF_TESTS_CONTRACT_COMM_CASES_H
#define SF_TESTS_CONTRACT_COMM_CASES_H

#include "harness/base/hash.h"
#include "harness/comm/comm.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { CASE_WORLD_MAX = 64 };

/* One rank's side of a case. Ranks do not assert, since a test framework cannot leave a fiber: they count what is wrong. */
struct case_rank {
  void (*body)(struct sf_comm *comm, struct case_rank *rank);
  int32_t variant;
  uint64_t seed;
  int32_t errors;
  char text[240];   /* the first error */
  uint64_t results; /* hash of every result */
  int32_t *shared;  /* memory of all ranks; NULL where ranks are processes */
  bool group_order; /* the backend promises to add in group order */
  bool skipped;
};

static inline void SF_PRINTF(3, 4) case_check(struct case_rank *rank, bool good, const char *format, ...) {
  if (good || rank->errors++ > 0) return;
  va_list args;
  va_start(args, format);
  vsnprintf(rank->text, sizeof rank->text, format, args);
  va_end(args);
}

static inline void case_note(struct case_rank *rank, const void *data, size_t size_bytes) {
  rank->results = sf_hash_bytes(rank->results, data, size_bytes);
}

struct comm_case {
  const char *name;
  void (*body)(struct sf_comm *comm, struct case_rank *rank);
  int32_t variants, world_min;
  int32_t variants_in_job; /* those after which a job of processes can go on; 0 = all */
  enum sf_status ends;     /* the status that every rank's report has to show, and the manner in this variant */
  enum sf_manner manners[4];
};

/* Ends with an entry without a body. */
extern const struct comm_case comm_collective_cases[], comm_async_cases[], comm_failure_cases[];

/* The groups that a rank is in, by kind. */
enum case_group { GROUP_WORLD, GROUP_REVERSED, GROUP_PARITY, GROUP_BLOCKS_OF_THREE, GROUP_ALONE, GROUP_KINDS };
struct case_members {
  int32_t ranks[CASE_WORLD_MAX];
};
struct sf_group case_group_create(struct case_members *members, const struct sf_comm *comm, enum case_group kind);

/* Element i of what a rank contributes: integers -2..2, or values of very different size. */
float case_integer(uint64_t seed, int32_t rank, int64_t i);
float case_real(uint64_t seed, int32_t rank, int64_t i);

#endif
