#include "harness/run/opfuzz/op_target.h"

#include "harness/base/nearest.h"
#include "harness/run/opfuzz/op_device.h"
#include "harness/run/plugins/plugin_probe.h"
#include "targets/plugin/plugin.h"

#include <stdio.h>
#include <string.h>

static const char op_prefix[] = "op:", plugin_prefix[] = "plugin:";

static bool begins(const char *text, const char *prefix) { return strncmp(text, prefix, strlen(prefix)) == 0; }
bool sf_op_target_is_one(const char *name) {
  return begins(name, op_prefix) || (begins(name, plugin_prefix) && !sf_plugin_is_target(name));
}

static struct sf_op_entry entry_of(const struct sf_op *op) {
  struct sf_op_entry entry = {.op = op, .declared = -1, .stores = op->stores, .strided = true, .unaligned = true, .in_place = true};
  for (int32_t i = 0; i < SF_OP_ATTRS_MAX; i++) entry.attr_fixed[i] = -1;
  for (int32_t i = 0; i < SF_OP_DIMS_MAX; i++) entry.dim_max[i] = SF_OP_DIM_LIMIT, entry.dim_multiple[i] = 1;
  return entry;
}

static enum sf_status make_device(struct sf_op_target *out, const char *wanted, struct sf_error *error) {
  const bool all = strcmp(wanted, "all") == 0;
  const struct sf_op *exact = sf_op_find(wanted);
  for (int32_t i = 0; i < sf_op_count(); i++) {
    const struct sf_op *op = sf_op_at(i);
    if (!sf_op_device_has(op)) continue;
    if (all || op == exact || (!exact && *wanted && strstr(op->name, wanted))) out->entries[out->entry_count++] = entry_of(op);
  }
  if (out->entry_count > 0) return SF_OK;
  struct sf_nearest nearest = sf_nearest_to(wanted);
  for (int32_t i = 0; i < sf_op_count(); i++) sf_nearest_offer(&nearest, sf_op_at(i)->name);
  return sf_error_set(error, SF_EUSAGE, "op:%s: the device has no such operation (shardfuzz list operations)%s", wanted,
                      sf_nearest_text(&nearest));
}

/* --- what a plugin declares -------------------------------------------------------------------------------------------------- */

static uint32_t stores_of(uint32_t declared) {
  static const uint32_t pairs[][2] = {{SHARDFUZZ_F32, SF_F32},
                                      {SHARDFUZZ_BF16, SF_BF16},
                                      {SHARDFUZZ_F16, SF_F16},
                                      {SHARDFUZZ_F8E4M3, SF_F8E4M3},
                                      {SHARDFUZZ_F8E5M2, SF_F8E5M2}};
  uint32_t stores = 0;
  for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
    if (declared & SHARDFUZZ_BIT(pairs[i][0])) stores |= 1u << pairs[i][1];
  return stores;
}

static enum sf_status declare_limits(struct sf_op_entry *entry, const struct shardfuzz_operation *declared, struct sf_error *error) {
  for (int32_t k = 0; k < declared->fixed_count; k++)
    for (int32_t i = 0; i < entry->op->attr_count; i++) {
      if (strcmp(entry->op->attrs[i].name, declared->fixed[k].name) != 0) continue;
      entry->attr_fixed[i] = declared->fixed[k].integer;
      if (entry->attr_fixed[i] < 0 || entry->attr_fixed[i] > entry->op->attrs[i].max)
        return sf_error_set(error, SF_EINPUT, "operation %s: attribute %s has no value %lld", declared->name, declared->fixed[k].name,
                            (long long)declared->fixed[k].integer);
    }
  for (int32_t k = 0; k < declared->limit_count; k++)
    for (int32_t i = 0; i < entry->op->dim_count; i++) {
      if (strcmp(entry->op->dims[i], declared->limits[k].dimension) != 0) continue;
      if (declared->limits[k].max > 0 && declared->limits[k].max < SF_OP_DIM_LIMIT) entry->dim_max[i] = declared->limits[k].max;
      if (declared->limits[k].multiple > 0) entry->dim_multiple[i] = declared->limits[k].multiple;
      if (sf_op_field_range(entry, SF_OP_DIM + i).least > entry->dim_max[i])
        return sf_error_set(error, SF_EINPUT, "operation %s: dimension %s has no size within its limits", declared->name,
                            declared->limits[k].dimension);
    }
  return SF_OK;
}

static bool name_known(const struct sf_op *op, const char *name, bool dims) {
  const int32_t count = dims ? op->dim_count : op->attr_count;
  for (int32_t i = 0; i < count; i++)
    if (strcmp(dims ? op->dims[i] : op->attrs[i].name, name) == 0) return true;
  return false;
}

/* Refuses a fixed attribute or a limit that no operation of the declaration has: such a mistake would silently widen the cases. */
static enum sf_status check_names(const struct sf_op_target *target, int32_t first, const struct shardfuzz_operation *declared,
                                  struct sf_error *error) {
  for (int32_t k = 0; k < declared->fixed_count + declared->limit_count; k++) {
    const bool dims = k >= declared->fixed_count;
    const char *name = dims ? declared->limits[k - declared->fixed_count].dimension : declared->fixed[k].name;
    bool known = false;
    for (int32_t i = first; i < target->entry_count; i++) known |= name_known(target->entries[i].op, name, dims);
    if (!known)
      return sf_error_set(error, SF_EINPUT, "operation %s: there is no %s '%s'", declared->name, dims ? "dimension" : "attribute", name);
  }
  return SF_OK;
}

static enum sf_status declare(struct sf_op_target *target, const struct shardfuzz_operation *declared, int32_t number,
                              struct sf_error *error) {
  const int32_t first = target->entry_count;
  for (int32_t i = 0; i < sf_op_count(); i++) {
    const struct sf_op *op = sf_op_at(i);
    const bool exact = strcmp(op->name, declared->name) == 0;
    if (!exact && strcmp(op->family, declared->name) != 0) continue;
    struct sf_op_entry entry = entry_of(op);
    entry.backward = exact ? !declared->forward : op->backward;
    if (entry.backward ? !declared->backward : !declared->forward) continue;
    if (target->entry_count == SF_OP_ENTRIES_MAX) return sf_error_set(error, SF_EINPUT, "too many operations");
    entry.declared = number;
    entry.stores &= stores_of(declared->dtypes);
    entry.strided = declared->takes & SHARDFUZZ_TAKES_STRIDED;
    entry.unaligned = declared->takes & SHARDFUZZ_TAKES_UNALIGNED;
    entry.in_place = declared->takes & SHARDFUZZ_TAKES_IN_PLACE;
    if (!entry.stores)
      return sf_error_set(error, SF_EINPUT, "operation %s: none of its formats is one that %s is tested in", declared->name, op->name);
    enum sf_status status = declare_limits(&entry, declared, error);
    if (status == SF_OK) status = sf_op_plugin_check_entry(target, &entry, error);
    if (status != SF_OK) return status;
    target->entries[target->entry_count++] = entry;
  }
  if (target->entry_count == first)
    return sf_error_set(error, SF_EINPUT, "operation '%.64s' is none of the reference's; shardfuzz list operations", declared->name);
  return check_names(target, first, declared, error);
}

struct declaration {
  enum sf_status status;
  struct sf_error error;
  struct sf_op_target target;
};

/* Runs in a process of its own. */
static void read_declaration(void *answer) {
  struct declaration *out = answer;
  const struct shardfuzz_plugin *plugin = NULL;
  struct sf_error reason = {SF_OK, ""};
  out->status = sf_plugin_load(&plugin, out->target.path, &out->error);
  if (out->status == SF_OK && plugin->kind != SHARDFUZZ_KIND_OPERATIONS)
    out->status = sf_error_set(&out->error, SF_EINPUT, "%s: has no operations", out->target.path);
  for (int32_t i = 0; out->status == SF_OK && i < plugin->entry_count; i++) {
    out->status = declare(&out->target, sf_plugin_operation(plugin, i), i, &reason);
    if (out->status != SF_OK) sf_error_set(&out->error, out->status, "%s: %.300s", out->target.path, reason.text);
  }
}

static enum sf_status make_plugin(struct sf_op_target *out, const char *path, struct sf_error *error) {
  static struct declaration declaration;
  memset(&declaration, 0, sizeof declaration);
  enum sf_status status = sf_plugin_full_path(out->path, sizeof out->path, path, error);
  if (status != SF_OK) return status;
  snprintf(out->name, sizeof out->name, "plugin:%s", out->path);
  declaration.target = *out;
  status = sf_plugin_probe(&declaration, sizeof declaration, read_declaration, path, error);
  if (status != SF_OK) return status;
  if (declaration.status != SF_OK) return sf_error_set(error, declaration.status, "%s", declaration.error.text);
  *out = declaration.target;
  return SF_OK;
}

enum sf_status sf_op_target_make(struct sf_op_target *out, const char *name, int64_t max_elements, struct sf_error *error) {
  memset(out, 0, sizeof *out);
  out->max_elements = max_elements;
  if (snprintf(out->name, sizeof out->name, "%s", name) >= SF_OP_PATH)
    return sf_error_set(error, SF_EUSAGE, "--target: the name is too long");
  if (begins(name, op_prefix)) return make_device(out, name + strlen(op_prefix), error);
  return make_plugin(out, name + strlen(plugin_prefix), error);
}

void sf_op_target_reference(struct sf_op_target *out, const char *name, int64_t max_elements) {
  memset(out, 0, sizeof *out);
  out->max_elements = max_elements;
  snprintf(out->name, sizeof out->name, "%.*s", SF_OP_PATH, name);
  for (int32_t i = 0; i < sf_op_count(); i++) {
    struct sf_op_entry *entry = &out->entries[out->entry_count++];
    *entry = entry_of(sf_op_at(i));
    if (begins(name, plugin_prefix)) entry->declared = 0;
  }
}

enum sf_status sf_op_lab_create(struct sf_op_lab *out, const struct sf_op_target *target, enum sf_device_kind device, enum sf_cpu_gemm gemm,
                                struct sf_error *error) {
  const struct shardfuzz_plugin *plugin = NULL;
  memset(out, 0, sizeof *out);
  out->target = target;
  enum sf_status status =
      *target->path ? sf_plugin_load(&plugin, target->path, error) : sf_device_create(&out->device, device, gemm, error);
  if (status == SF_OK)
    status = sf_op_memory_create(&out->memory, target->max_elements, out->device ? out->device->memory : NULL, plugin != NULL);
  out->runner =
      plugin ? (struct sf_op_runner){sf_op_plugin_call, (void *)(uintptr_t)plugin} : (struct sf_op_runner){sf_op_device_call, out->device};
  if (status != SF_OK) sf_op_lab_destroy(out);
  return status;
}

void sf_op_lab_destroy(struct sf_op_lab *lab) {
  sf_op_memory_destroy(&lab->memory);
  sf_device_destroy(lab->device);
  memset(lab, 0, sizeof *lab);
}
