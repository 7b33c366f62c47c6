#include "targets/plugin/plugin.h"

#include <dlfcn.h>
#include <string.h>

enum { ENTRIES_MAX = 64, LISTED_MAX = 16 };

const struct shardfuzz_operation *sf_plugin_operation(const struct shardfuzz_plugin *plugin, int32_t index) {
  return (const struct shardfuzz_operation *)(const void *)((const char *)plugin->entries + (size_t)index * plugin->entry_bytes);
}

static enum sf_status check_operation(const struct shardfuzz_operation *op, int32_t index, const char *path, struct sf_error *error) {
  const char *missing = NULL;
  if (!op->name || !*op->name) missing = "a name";
  else if (!op->forward && !op->backward) missing = "a function";
  else if (op->dtypes == 0) missing = "a format";
  else if (op->fixed_count < 0 || op->fixed_count > LISTED_MAX || (op->fixed_count > 0 && !op->fixed)) missing = "the list of fixed attributes";
  else if (op->limit_count < 0 || op->limit_count > LISTED_MAX || (op->limit_count > 0 && !op->limits)) missing = "the list of limits";
  for (int32_t i = 0; !missing && i < op->fixed_count; i++)
    if (!op->fixed[i].name) missing = "a fixed attribute's name";
  for (int32_t i = 0; !missing && i < op->limit_count; i++)
    if (!op->limits[i].dimension || op->limits[i].max < 0 || op->limits[i].multiple < 0) missing = "a limit's dimension or numbers that are not negative";
  if (!missing) return SF_OK;
  return sf_error_set(error, SF_EINPUT, "%s: operation %d lacks %s", path, index, missing);
}

static enum sf_status check(const struct shardfuzz_plugin *plugin, const char *path, struct sf_error *error) {
  if (!plugin) return sf_error_set(error, SF_EINPUT, "%s: shardfuzz_plugin_get() gave NULL", path);
  if (plugin->abi != SHARDFUZZ_PLUGIN_ABI) {
    return sf_error_set(error, SF_EINPUT, "%s: made for plugin ABI %u, this is %u", path, plugin->abi, SHARDFUZZ_PLUGIN_ABI);
  }
  if (plugin->size_bytes < sizeof *plugin || plugin->entry_bytes < sizeof(struct shardfuzz_operation)) {
    return sf_error_set(error, SF_EINPUT, "%s: its declaration is shorter than that of plugin ABI %u", path, SHARDFUZZ_PLUGIN_ABI);
  }
  if (plugin->kind != SHARDFUZZ_KIND_OPERATIONS) return sf_error_set(error, SF_EINPUT, "%s: declares kind %u; this version runs operations", path, plugin->kind);
  if (plugin->entry_count < 1 || plugin->entry_count > ENTRIES_MAX || !plugin->entries) {
    return sf_error_set(error, SF_EINPUT, "%s: declares %d operations; 1 to %d are taken", path, plugin->entry_count, ENTRIES_MAX);
  }
  for (int32_t i = 0; i < plugin->entry_count; i++) {
    const enum sf_status status = check_operation(sf_plugin_operation(plugin, i), i, path, error);
    if (status != SF_OK) return status;
  }
  return SF_OK;
}

enum sf_status sf_plugin_load(const struct shardfuzz_plugin **out, const char *path, struct sf_error *error) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char *reason = dlerror();
    return sf_error_set(error, SF_EINPUT, "%s: cannot be loaded: %s", path, reason ? reason : "no reason given");
  }
  const struct shardfuzz_plugin *(*entry)(void);
  void *symbol = dlsym(library, "shardfuzz_plugin_get");
  if (!symbol) return sf_error_set(error, SF_EINPUT, "%s: has no function shardfuzz_plugin_get", path);
  memcpy(&entry, &symbol, sizeof entry);
  const struct shardfuzz_plugin *plugin = entry();
  const enum sf_status status = check(plugin, path, error);
  if (status == SF_OK) *out = plugin;
  return status;
}
