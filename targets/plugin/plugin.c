#include "targets/plugin/plugin.h"

#include "harness/base/float_mode.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { ENTRIES_MAX = 64, LAYERS_MAX = 32, LISTED_MAX = 16, RANGES_MAX = 128 };

const struct shardfuzz_operation *sf_plugin_operation(const struct shardfuzz_plugin *plugin, int32_t index) {
  return (const struct shardfuzz_operation *)(const void *)((const char *)plugin->entries + (size_t)index * plugin->entry_bytes);
}

/* The declarations that operations and layers share. */
struct declared {
  const char *name;
  uint32_t dtypes;
  bool computes;
  const struct shardfuzz_attribute *fixed;
  const struct shardfuzz_limit *limits;
  int32_t fixed_count, limit_count;
};

const struct shardfuzz_layer *sf_plugin_layer(const struct shardfuzz_plugin *plugin, int32_t index) {
  return (const struct shardfuzz_layer *)(const void *)((const char *)plugin->entries + (size_t)index * plugin->entry_bytes);
}

const struct shardfuzz_model *sf_plugin_model_declared(const struct shardfuzz_plugin *plugin) { return plugin->entries; }

static struct declared entry_of(const struct shardfuzz_plugin *plugin, int32_t index) {
  if (plugin->kind == SHARDFUZZ_KIND_MODEL) {
    const struct shardfuzz_model *model = sf_plugin_model_declared(plugin);
    return (struct declared){.name = model->name, .dtypes = model->dtypes, .computes = model->run != NULL};
  }
  if (plugin->kind == SHARDFUZZ_KIND_LAYERS) {
    const struct shardfuzz_layer *layer = sf_plugin_layer(plugin, index);
    return (struct declared){layer->module,      layer->dtypes,     layer->forward && layer->backward, layer->fixed, layer->limits,
                             layer->fixed_count, layer->limit_count};
  }
  const struct shardfuzz_operation *op = sf_plugin_operation(plugin, index);
  return (struct declared){op->name, op->dtypes, op->forward || op->backward, op->fixed, op->limits, op->fixed_count, op->limit_count};
}

/* The declarations of each kind. */
static const struct kind {
  const char *one, *many, *functions; /* functions: those it must have */
  int32_t most;
  size_t entry_bytes;
} kinds[] = {
    [SHARDFUZZ_KIND_OPERATIONS] = {"operation", "operations", "a function", ENTRIES_MAX, sizeof(struct shardfuzz_operation)},
    [SHARDFUZZ_KIND_LAYERS] = {"layer", "layers", "forward or backward", LAYERS_MAX, sizeof(struct shardfuzz_layer)},
    [SHARDFUZZ_KIND_MODEL] = {"model", "models", "its function", 1, sizeof(struct shardfuzz_model)},
};

static enum sf_status check_ranges(const struct shardfuzz_plugin *plugin, const char *path, struct sf_error *error) {
  const struct shardfuzz_model *model = sf_plugin_model_declared(plugin);
  bool sound = model->range_count >= 0 && model->range_count <= RANGES_MAX && (model->range_count == 0 || model->ranges != NULL);
  for (int32_t i = 0; sound && i < model->range_count; i++) sound = model->ranges[i].field != NULL;
  return sound ? SF_OK
               : sf_error_set(error, SF_EINPUT, "%s: model %.60s lacks the list of ranges, or a range its field", path, model->name);
}

static enum sf_status check_entry(const struct shardfuzz_plugin *plugin, int32_t index, const char *path, struct sf_error *error) {
  const struct declared entry = entry_of(plugin, index);
  const char *missing = NULL;
  if (!entry.name || !*entry.name) missing = "a name";
  else if (!entry.computes) missing = kinds[plugin->kind].functions;
  else if (entry.dtypes == 0) missing = "a format";
  else if (entry.fixed_count < 0 || entry.fixed_count > LISTED_MAX || (entry.fixed_count > 0 && !entry.fixed))
    missing = "the list of fixed attributes";
  else if (entry.limit_count < 0 || entry.limit_count > LISTED_MAX || (entry.limit_count > 0 && !entry.limits))
    missing = "the list of limits";
  for (int32_t i = 0; !missing && i < entry.fixed_count; i++)
    if (!entry.fixed[i].name) missing = "a fixed attribute's name";
  for (int32_t i = 0; !missing && i < entry.limit_count; i++)
    if (!entry.limits[i].dimension || entry.limits[i].max < 0 || entry.limits[i].multiple < 0)
      missing = "a limit's dimension or numbers that are not negative";
  if (!missing) return SF_OK;
  return sf_error_set(error, SF_EINPUT, "%s: %s %d lacks %s", path, kinds[plugin->kind].one, index, missing);
}

static enum sf_status check(const struct shardfuzz_plugin *plugin, const char *path, struct sf_error *error) {
  if (!plugin) return sf_error_set(error, SF_EINPUT, "%s: shardfuzz_plugin_get() gave NULL", path);
  if (plugin->abi != SHARDFUZZ_PLUGIN_ABI) {
    return sf_error_set(error, SF_EINPUT, "%s: made for plugin ABI %u, this is %u", path, plugin->abi, SHARDFUZZ_PLUGIN_ABI);
  }
  if (plugin->kind < SHARDFUZZ_KIND_OPERATIONS || plugin->kind > SHARDFUZZ_KIND_MODEL) {
    return sf_error_set(error, SF_EINPUT, "%s: declares kind %u; this version runs operations, layers and models", path, plugin->kind);
  }
  const struct kind *kind = &kinds[plugin->kind];
  if (plugin->size_bytes < sizeof *plugin || plugin->entry_bytes < kind->entry_bytes) {
    return sf_error_set(error, SF_EINPUT, "%s: its declaration is shorter than that of plugin ABI %u", path, SHARDFUZZ_PLUGIN_ABI);
  }
  if (plugin->entry_count < 1 || plugin->entry_count > kind->most || !plugin->entries) {
    return sf_error_set(error, SF_EINPUT, "%s: declares %d %s; 1 to %d are taken", path, plugin->entry_count, kind->many, kind->most);
  }
  for (int32_t i = 0; i < plugin->entry_count; i++) {
    const enum sf_status status = check_entry(plugin, i, path, error);
    if (status != SF_OK) return status;
  }
  return plugin->kind == SHARDFUZZ_KIND_MODEL ? check_ranges(plugin, path, error) : SF_OK;
}

static const char *machine_name(unsigned machine) {
  switch (machine) {
  case EM_386: return "x86";
  case EM_X86_64: return "x86-64";
  case EM_ARM: return "arm";
  case EM_AARCH64: return "aarch64";
  case EM_PPC64: return "ppc64";
  case EM_RISCV: return "riscv";
  default: return NULL;
  }
}

#if defined(__x86_64__)
enum { OWN_MACHINE = EM_X86_64 };
#elif defined(__aarch64__)
enum { OWN_MACHINE = EM_AARCH64 };
#else
enum { OWN_MACHINE = EM_NONE }; /* only the loader can tell */
#endif

/* Refuses a library for another machine, which the loader reports as a missing file, or with a useless message. Files that are not ELF are
 * left to the loader. */
static enum sf_status check_machine(const char *path, struct sf_error *error) {
  unsigned char head[20];
  char number[32];
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return SF_OK;
  const ssize_t count = read(file, head, sizeof head);
  close(file);
  if (count != (ssize_t)sizeof head || memcmp(head, ELFMAG, SELFMAG) != 0) return SF_OK;
  const unsigned machine = head[EI_DATA] == ELFDATA2MSB ? head[18] << 8 | head[19] : head[19] << 8 | head[18];
  if (OWN_MACHINE == EM_NONE || machine == OWN_MACHINE) return SF_OK;
  snprintf(number, sizeof number, "machine %u of ELF", machine);
  const char *name = machine_name(machine);
  return sf_error_set(error, SF_EINPUT, "%s is built for %s; this is %s", path, name ? name : number, machine_name(OWN_MACHINE));
}

enum sf_status sf_plugin_load(const struct shardfuzz_plugin **out, const char *path, struct sf_error *error) {
  const enum sf_status fits = check_machine(path, error);
  if (fits != SF_OK) return fits;
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  sf_float_mode_restore(); /* a library that was linked with -Ofast makes the process flush subnormal numbers from here on */
  if (!library) {
    const char *reason = dlerror();
    return sf_error_set(error, SF_EINPUT, "%s: cannot be loaded: %s", path, reason ? reason : "no reason given");
  }
  const struct shardfuzz_plugin *(*entry)(void);
  void *symbol = dlsym(library, "shardfuzz_plugin_get");
  if (!symbol) return sf_error_set(error, SF_EINPUT, "%s: has no function shardfuzz_plugin_get", path);
  memcpy(&entry, &symbol, sizeof entry);
  const struct shardfuzz_plugin *plugin = entry();
  sf_float_mode_restore();
  const enum sf_status status = check(plugin, path, error);
  if (status == SF_OK) *out = plugin;
  return status;
}
