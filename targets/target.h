/* Targets: what is under test. A target runs one rank's whole program of a case and hands its tensors to the sink. */
#ifndef SF_TARGETS_TARGET_H
#define SF_TARGETS_TARGET_H

#include "harness/base/alloc.h"
#include "harness/comm/comm.h"
#include "harness/device/device.h"
#include "harness/spec/mesh.h"
#include "harness/tensor/consistent.h"
#include "harness/tensor/trace.h"
#include "targets/builtin/faults/plants.h"

struct sf_plugin_layers;
struct sf_plugin_model;
struct sf_walled_pool;

/* All that one rank is given; nothing else may be read. Groups are made from `mesh` and handed to layers as values; only planted
 * faults may look at `default_mesh`. */
struct sf_rank_env {
  const struct sf_case *c;
  const struct sf_catalog *catalog;
  struct sf_mesh mesh, default_mesh;
  struct sf_comm *comm;
  struct sf_device *device;
  struct sf_arena *arena;             /* of this rank and this trial */
  struct sf_group_lists *groups;      /* of this process and this trial: its ranks share the lists of their groups */
  const struct sf_trace_sink *sink;
  uint64_t faults;                    /* which are planted: bits SF_FAULT_BIT */
  const struct sf_plugin_layers *layers; /* NULL, or what takes the place of built-in modules (targets/plugin/plugin_layers.h) */
  struct sf_plugin_model *model;         /* NULL, or what takes the place of the whole target (targets/plugin/plugin_model.h) */
  struct sf_walled_pool *walled; /* what a plugin is handed is taken from there, by all ranks of the process; NULL: from the arena */
};

/* Takes every case that sf_case_validate accepts; what a plugin takes is asked when it is loaded (sf_plugin_target_support). */
struct sf_target {
  const char *name;
  /* Runs the rank; failures leave through the communicator. */
  void (*run)(struct sf_rank_env *env);
};
extern const struct sf_target sf_target_builtin;
/* name: "builtin", or "plugin:PATH" (targets/plugin/plugin_target.h). NULL: there is none. */
const struct sf_target *sf_target_find(const char *name);

#endif
