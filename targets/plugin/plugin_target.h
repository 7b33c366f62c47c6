/* Targets named "plugin:PATH": a shared library's layers in the built-in target, or its model in the place of that. */
#ifndef SF_TARGETS_PLUGIN_TARGET_H
#define SF_TARGETS_PLUGIN_TARGET_H

#include "harness/base/system/walled.h"
#include "targets/plugin/plugin_model.h"

struct sf_plugin_target {
  bool is_model;
  struct sf_plugin_layers layers;
  struct sf_plugin_model model;
  struct sf_walled_pool *walled; /* memory that ranks hand to it */
};

/* The library's path in a target's name; NULL when the name is not a plugin's. */
const char *sf_plugin_target_path(const char *target);

/* Loads the library into this process, for good, and checks what it declares. Code of the library runs. SF_EINPUT: as
 * sf_plugin_load, sf_plugin_layers_init, sf_plugin_model_init; a library of operations. SF_ENOMEM. */
enum sf_status sf_plugin_target_create(struct sf_plugin_target **out, const char *path, struct sf_error *error) SF_MUST_USE;
void sf_plugin_target_destroy(struct sf_plugin_target *target); /* takes NULL */
/* Whether layers or model take the case. SF_ENOTSUP with the reason. SF_ENOMEM. */
enum sf_status sf_plugin_target_support(const struct sf_plugin_target *target, const struct sf_case *c, struct sf_error *error) SF_MUST_USE;
/* Runs env->model, or the built-in target with env->layers. */
extern const struct sf_target sf_target_plugin;
/* As sf_plugin_layers_ranges, of layers or a model. */
int32_t sf_plugin_target_ranges(struct sf_plugin_range *out, const struct sf_plugin_target *target);

#endif
