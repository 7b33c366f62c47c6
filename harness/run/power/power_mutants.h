/* The power of the oracle over mutants: each is searched for blind, as plants are; what is never found must be shown to be equivalent. */
#ifndef SF_RUN_POWER_MUTANTS_H
#define SF_RUN_POWER_MUTANTS_H

#include "harness/run/campaign/campaign.h"

#define SF_MUTANT_FATE_MAP(X)                                                                                                              \
  X(SILENT, "silent")           /* found by comparing tensors: structure, equal bits, distance */                                        \
  X(LOUD, "loud")               /* deadlock, mismatch, crash, hang, or a NaN where none belongs */                                       \
  X(EQUIVALENT, "equivalent")   /* fired, never found, and in every such case proven to change nothing */                                 \
  X(SURVIVED, "survived")       /* fired, never found, not proven equivalent: a hole in the oracle */                                     \
  X(NOT_REACHED, "not_reached") /* no case in which it changed a call */
enum sf_mutant_fate {
#define X(name, text) SF_MUTANT_##name,
  SF_MUTANT_FATE_MAP(X)
#undef X
      SF_MUTANT_FATES
};
const char *sf_mutant_fate_name(enum sf_mutant_fate fate); /* the text above */

struct sf_mutant_power_options {
  struct sf_campaign_options campaign; /* space, seed, layouts, pool, deadline */
  const char *const *ids;              /* borrowed */
  int32_t id_count;
  int64_t cases; /* at most, per mutant; below 2^30 */
};

struct sf_mutant_search {
  const char *id;
  enum sf_mutant_fate fate;
  int64_t fired;              /* cases up to the first finding in which a call was changed */
  int64_t found_at;           /* index of the first case with a finding; -1 = none */
  struct sf_outcome outcome;  /* of that case */
  int64_t equal_outputs;      /* nothing found: fired cases whose changed calls gave the same bits on every rank */
  int64_t unread_outputs;     /* of the others: cases in which overwriting the outputs with NaN changes no traced tensor */
  int64_t survived_at;        /* index of the first case that is neither; -1 = none */
};

struct sf_mutant_power_result {
  int32_t count;
  struct sf_mutant_search *searches;
};
/* Equivalence is decided by running each fired case again with the calls observed and with their outputs poisoned (mutate.h). With a
 * launcher only equal outputs count, since traces of other processes are not hashed. */
enum sf_status sf_mutant_power_run(const struct sf_mutant_power_options *options, struct sf_mutant_power_result *result,
                                   struct sf_error *error) SF_MUST_USE;
void sf_mutant_power_destroy(struct sf_mutant_power_result *result); /* takes what is zeroed */

/* Whether a finding of this class shows without comparing anything. */
bool sf_finding_class_is_loud(enum sf_finding_class cls);

#endif
