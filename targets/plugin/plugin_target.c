#include "targets/plugin/plugin_target.h"

#include <string.h>

static const char prefix[] = "plugin:";

const char *sf_plugin_target_path(const char *target) {
  const size_t length = sizeof prefix - 1;
  return strncmp(target, prefix, length) == 0 ? target + length : NULL;
}

enum sf_status sf_plugin_target_create(struct sf_plugin_target **out, const char *path, struct sf_error *error) {
  const struct shardfuzz_plugin *plugin = NULL;
  struct sf_error reason = {SF_OK, ""};
  enum sf_status status = sf_plugin_load(&plugin, path, error);
  if (status != SF_OK) return status;
  if (plugin->kind == SHARDFUZZ_KIND_OPERATIONS)
    return sf_error_set(error, SF_EINPUT, "%s: has operations, and neither layers nor a model", path);
  struct sf_plugin_target *target = sf_alloc(sizeof *target);
  if (target) target->walled = sf_walled_pool_create();
  if (!target || !target->walled) {
    sf_plugin_target_destroy(target);
    return sf_error_set(error, SF_ENOMEM, "%s: %s", path, sf_status_text(SF_ENOMEM));
  }
  target->is_model = plugin->kind == SHARDFUZZ_KIND_MODEL;
  status =
      target->is_model ? sf_plugin_model_init(&target->model, plugin, &reason) : sf_plugin_layers_init(&target->layers, plugin, &reason);
  if (status != SF_OK) {
    sf_plugin_target_destroy(target);
    return sf_error_set(error, status, "%s: %.300s", path, reason.text);
  }
  *out = target;
  return SF_OK;
}

void sf_plugin_target_destroy(struct sf_plugin_target *target) {
  if (target) sf_walled_pool_destroy(target->walled);
  sf_free(target);
}

enum sf_status sf_plugin_target_support(const struct sf_plugin_target *target, const struct sf_case *c, struct sf_error *error) {
  return target->is_model ? sf_plugin_model_support(&target->model, c, error) : sf_plugin_layers_support(&target->layers, c, error);
}

int32_t sf_plugin_target_ranges(struct sf_plugin_range *out, const struct sf_plugin_target *target) {
  return target->is_model ? sf_plugin_model_ranges(out, &target->model) : sf_plugin_layers_ranges(out, &target->layers);
}

static void run_rank(struct sf_rank_env *env) {
  if (env->model != NULL)
    sf_plugged_model_run(env);
  else
    sf_target_builtin.run(env);
}

const struct sf_target sf_target_plugin = {.name = "plugin", .run = run_rank};

const struct sf_target *sf_target_find(const char *name) {
  if (sf_plugin_target_path(name) != NULL) return &sf_target_plugin;
  return strcmp(name, sf_target_builtin.name) == 0 ? &sf_target_builtin : NULL;
}
