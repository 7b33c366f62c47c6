/* One rank of a plugin's model (targets/plugin/plugin_model.h). */
#ifndef SF_TARGETS_PLUGGED_MODEL_H
#define SF_TARGETS_PLUGGED_MODEL_H

#include "targets/target.h"

/* Runs env->model on this rank. What it does against its contract leaves the rank. */
void sf_plugged_model_run(struct sf_rank_env *env);

#endif
