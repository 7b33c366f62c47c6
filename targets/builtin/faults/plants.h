/* Planted bugs: one id each, off unless named. The table says, before any run, where each must show and how small its trigger is. */
#ifndef SF_TARGETS_PLANTS_H
#define SF_TARGETS_PLANTS_H

#include "harness/spec/catalog.h"

#include <assert.h>

enum sf_fault {
  SF_FAULT_NONE,
#define PLANT(name, ...) SF_FAULT_##name,
#define CANARY PLANT
#include "targets/builtin/faults/plants.def"
#undef CANARY
#undef PLANT
  SF_FAULT_COUNT
};
#define SF_FAULT_BIT(fault) ((uint64_t)1 << (fault))
/* A set of faults is an uint64_t. */
static_assert((int)SF_FAULT_COUNT <= 64, "more faults than bits");

/* What shrinking must reach: world size, layers, and fields as "layout.tp=2 layout.sp=true". Fields not named must be as small as those
 * allow. ranks 0: nothing. */
struct sf_plant_minimal {
  int64_t ranks, layers;
  const char *fields;
  const char *key; /* NULL, or a part of the shrink keys that it holds for, as "conflict/" or "/act/" */
};

struct sf_plant {
  enum sf_fault fault;
  const char *id;
  const char *what;             /* one sentence */
  const char *source;           /* where a real framework had it, "" for canaries */
  unsigned kinds;               /* bits of enum sf_kind: where the first divergence may show; 0 for canaries */
  uint64_t modules;             /* bits of enum sf_module_class: modules that may be blamed, */
  uint32_t traits;              /* and bits of enum sf_trait: all that have one of these */
  const char *diagnosis; /* class of diagnosis that its shrunk case must get, as the oracle names it. NULL: not declared; "" for canaries.
                            Two, with a space between, where the smallest case does not tell them apart */
  const char *label;            /* canaries: the communication label at which it must be reported; else "" */
  struct sf_plant_minimal minimal;
  struct sf_plant_minimal also;  /* the smallest case of other shrink keys, which shrinking keeps, where that is another one */
  bool (*triggers)(const struct sf_case *c); /* whether a case can show it at all; of a case that reloads: before that, or by reloading */
};
/* Whether a module of this class may be blamed for it. */
bool sf_plant_may_blame(const struct sf_plant *plant, enum sf_module_class cls);
/* Whether a case can show it in the steps of either layout. */
bool sf_plant_is_triggered(const struct sf_plant *plant, const struct sf_case *c);
extern const struct sf_plant sf_plants[]; /* SF_FAULT_COUNT - 1 entries, in order of the enum */
/* SF_FAULT_NONE's entry does not exist: NULL for it and for unknown ids. */
const struct sf_plant *sf_plant_find(const char *id);
const struct sf_plant *sf_plant_of(enum sf_fault fault); /* NULL for SF_FAULT_NONE */

/* Whether the tp groups of the default rank order lie within pipeline stages of the case's layout. */
bool sf_plant_default_tp_in_stages(const struct sf_case *c);

#endif
