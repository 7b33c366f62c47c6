/* The power of the oracle: planted bugs searched for blind (the generator never sees the plant), and clean cases beside them. */
#ifndef SF_RUN_POWER_H
#define SF_RUN_POWER_H

#include "harness/run/campaign/campaign.h"
#include "targets/builtin/faults/plants.h"

struct sf_power_options {
  struct sf_campaign_options campaign; /* space, layouts, pool, deadline, shrink_budget; seed = the first one */
  const struct sf_plant *plants[SF_FAULT_COUNT];
  int32_t plant_count;
  int32_t seeds;         /* searches per plant, with consecutive seeds */
  int64_t cases;         /* at most, per search */
  int64_t clean_cases;
};

/* One search for one plant, by the oracle and by the flat bound (oracles/judge/flat_bound.h) on the same cases. It ends when both have
 * found it. The flat bound finds a plant in a case that passes it without the plant; it is not asked for canaries (which need no
 * comparison) nor with a launcher. */
struct sf_power_search {
  const struct sf_plant *plant;
  uint64_t seed;
  int64_t triggered;     /* cases handed out that contain the plant's trigger */
  int64_t found_at;      /* index of the first case with a finding; -1 = none */
  bool flat_asked;       /* whether the flat bound is asked */
  int64_t flat_at;       /* index of the first case that the flat bound finds; -1 = none */
  struct sf_outcome outcome, min_outcome;
  struct sf_case c, min;
  int32_t evaluations;
  bool localised, minimal, diagnosed;
};

/* flat_cases, flat_alarms: cases that the flat bound judged, and found fault with. */
struct sf_power_clean { int64_t cases, false_alarms, inconclusive, skipped, flat_cases, flat_alarms; };
enum { SF_POWER_PRECISIONS = SF_COMPUTE_COUNT };
struct sf_power_result {
  int32_t search_count;  /* plant_count * seeds, plant by plant */
  struct sf_power_search *searches;
  struct sf_power_clean clean[SF_POWER_PRECISIONS]; /* by precision.compute */
  struct sf_outcome first_false_alarm;
};
/* Looks for every planted bug of the options, in worker processes. SF_OK however many were found; else the harness failed, and the error
 * says how. Destroy the result in either case. */
enum sf_status sf_power_run(const struct sf_power_options *options, struct sf_power_result *result, struct sf_error *error) SF_MUST_USE;
void sf_power_destroy(struct sf_power_result *result); /* takes what is zeroed */

/* Whether the first divergence is where the plant table says; for canaries, whether rank and label were reported. */
bool sf_power_is_localised(const struct sf_plant *plant, const struct sf_outcome *outcome);
/* Whether a shrunk case's diagnosis is of the class that the plant table declares; true where it declares none. */
bool sf_power_is_diagnosed(const struct sf_plant *plant, const struct sf_diagnosis *diagnosis);
/* Whether a shrunk case is what the plant table calls minimal for its shrink key. */
bool sf_power_is_minimal(const struct sf_plant *plant, const struct sf_case *min, const char *shrink_key);

#endif
