#include "targets/target.h"

#include "targets/plugin/plugin_target.h"

#include <string.h>

const struct sf_target *sf_target_find(const char *name) {
  if (sf_plugin_target_path(name) != NULL) return &sf_target_plugin;
  return strcmp(name, sf_target_builtin.name) == 0 ? &sf_target_builtin : NULL;
}
