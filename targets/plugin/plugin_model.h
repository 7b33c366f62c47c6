/* A model of a shared library (targets/plugin, shardfuzz/plugin.h): a rank's whole program, in the place of the built-in target's. */
#ifndef SF_TARGETS_PLUGIN_MODEL_H
#define SF_TARGETS_PLUGIN_MODEL_H

#include "targets/plugin/plugin_layers.h"

enum { SF_PLUGIN_PLACES_MAX = 24, SF_PLUGIN_FIELDS_MAX = 128 };

/* places: "model" before it says a place, then those that it names. */
struct sf_plugin_model {
  const struct shardfuzz_model *declared;
  int32_t place_count;
  struct sf_plugin_place places[SF_PLUGIN_PLACES_MAX];
};

/* Takes the model of a plugin of SHARDFUZZ_KIND_MODEL. SF_EINPUT: a field that does not exist or that a model may not take, or an empty
 * range. */
enum sf_status sf_plugin_model_init(struct sf_plugin_model *out, const struct shardfuzz_plugin *plugin, struct sf_error *error) SF_MUST_USE;

/* Whether the model takes the case. SF_ENOTSUP with the reason. Code of the library runs. */
enum sf_status sf_plugin_model_support(const struct sf_plugin_model *model, const struct sf_case *c, struct sf_error *error) SF_MUST_USE;

/* The place of that name, made if there is room for it; else NULL. */
struct sf_plugin_place *sf_plugin_model_place(struct sf_plugin_model *model, const char *name);

/* As sf_plugin_layers_ranges. */
int32_t sf_plugin_model_ranges(struct sf_plugin_range *out, const struct sf_plugin_model *model);

/* Every number of the case, in the table's order. Returns how many, at most SF_PLUGIN_FIELDS_MAX. */
int32_t sf_plugin_model_fields(struct shardfuzz_attribute *out, const struct sf_case *c);

/* Runs env->model on this rank (plugged_model.c). What it does against its contract leaves the rank. */
void sf_plugged_model_run(struct sf_rank_env *env);

#endif
