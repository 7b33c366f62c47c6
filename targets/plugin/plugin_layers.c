#include "targets/plugin/plugin_layers.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Groups of modules that a plugin may replace as one, by their first module. */
static const struct {
  const char *name;
  enum sf_module_class cls;
} groups[] = {{"mlp", SF_MODULE_LINEAR_FC1}, {"mlp.experts", SF_MODULE_EXPERTS_FC1}};

/* SF_MODULE_CLASS_COUNT: nothing with this name can be replaced. */
static enum sf_module_class class_of(const char *name) {
  for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++)
    if (strcmp(groups[i].name, name) == 0) return groups[i].cls;
  int cls = 0;
  while (cls < SF_MODULE_CLASS_COUNT && !(sf_module_is(cls, SF_TRAIT_PLUGGABLE) && strcmp(sf_modules[cls].name, name) == 0)) cls++;
  return (enum sf_module_class)cls;
}

/* --- what is declared -------------------------------------------------------------------------------------------- */

enum { FORMATS = SHARDFUZZ_BIT(SHARDFUZZ_F32) | SHARDFUZZ_BIT(SHARDFUZZ_BF16) | SHARDFUZZ_BIT(SHARDFUZZ_F16) };

static const struct sf_field *number_field(const char *path) {
  const struct sf_field *field = sf_case_field_find(path);
  return field && field->type != SF_FIELD_TEXT ? field : NULL;
}

static enum sf_status check_fields(const struct shardfuzz_layer *declared, struct sf_error *error) {
  for (int32_t i = 0; i < declared->fixed_count; i++) {
    const struct sf_field *field = number_field(declared->fixed[i].name);
    const int64_t value = declared->fixed[i].integer;
    if (!field) return sf_error_set(error, SF_EINPUT, "layer %s: a case has no number '%.60s'", declared->module, declared->fixed[i].name);
    if (value < field->min || value > field->max)
      return sf_error_set(error, SF_EINPUT, "layer %s: %s is never %" PRId64, declared->module, field->path, value);
  }
  for (int32_t i = 0; i < declared->limit_count; i++) {
    const struct shardfuzz_limit *limit = &declared->limits[i];
    const struct sf_field *field = number_field(limit->dimension);
    if (!field) return sf_error_set(error, SF_EINPUT, "layer %s: a case has no number '%.60s'", declared->module, limit->dimension);
    if (limit->max > 0 && limit->max < field->min)
      return sf_error_set(error, SF_EINPUT, "layer %s: %s is never below %" PRId64, declared->module, field->path, field->min);
  }
  return SF_OK;
}

void sf_plugin_place_init(struct sf_plugin_place *out, const char *name) {
  snprintf(out->name, sizeof out->name, "%s", name);
  for (int op = 0; op < SF_COMM_OP_COUNT; op++)
    snprintf(out->calls[op], sizeof out->calls[op], "%s.%s", name, sf_comm_op_name((enum sf_comm_op)op));
}

static void write_labels(struct sf_plugin_layer *layer) {
  static const char *const passes[2] = {"fwd", "bwd"};
  for (int pass = 0; pass < 2; pass++) {
    char name[SF_PLUGIN_LABEL_TEXT];
    snprintf(name, sizeof name, "%s.%s", layer->declared->module, passes[pass]);
    sf_plugin_place_init(&layer->places[pass], name);
  }
}

static bool overlap(const struct sf_plugin_layer *a, const struct sf_plugin_layer *b) {
  if (a->cls == b->cls) return true;
  const struct sf_plugin_layer *other = a->is_mlp ? b : a;
  return (a->is_mlp || b->is_mlp) && other->cls == SF_MODULE_LINEAR_FC2;
}

static enum sf_status add_layer(struct sf_plugin_layers *layers, const struct shardfuzz_layer *declared, struct sf_error *error) {
  const enum sf_module_class cls = class_of(declared->module);
  if (cls == SF_MODULE_CLASS_COUNT)
    return sf_error_set(error, SF_EINPUT, "layer '%.64s' is no module that can be replaced (shardfuzz/plugin.h lists them)",
                        declared->module);
  if (!(declared->dtypes & FORMATS)) return sf_error_set(error, SF_EINPUT, "layer %s: takes none of fp32, bf16 and fp16", declared->module);
  const enum sf_status status = check_fields(declared, error);
  if (status != SF_OK) return status;
  struct sf_plugin_layer *layer = &layers->at[layers->count];
  *layer = (struct sf_plugin_layer){.declared = declared, .cls = cls, .is_mlp = strcmp(declared->module, "mlp") == 0};
  write_labels(layer);
  for (int32_t i = 0; i < layers->count; i++)
    if (overlap(&layers->at[i], layer))
      return sf_error_set(error, SF_EINPUT, "layers %s and %s replace the same module", layers->at[i].declared->module, declared->module);
  layers->count++;
  return SF_OK;
}

enum sf_status sf_plugin_layers_init(struct sf_plugin_layers *out, const struct shardfuzz_plugin *plugin, struct sf_error *error) {
  enum sf_status status = SF_OK;
  out->count = 0;
  for (int32_t i = 0; i < plugin->entry_count && status == SF_OK; i++) status = add_layer(out, sf_plugin_layer(plugin, i), error);
  return status;
}

/* --- which cases are taken ---------------------------------------------------------------------------------------- */

/* The format's number is the same in both lists. */
_Static_assert((int)SHARDFUZZ_F32 == (int)SF_F32 && (int)SHARDFUZZ_BF16 == (int)SF_BF16 && (int)SHARDFUZZ_F16 == (int)SF_F16 &&
                   (int)SHARDFUZZ_F64 == (int)SF_F64,
               "formats");

/* "reload.tp" for "layout.tp"; NULL: the field does not belong to the layout. */
static const struct sf_field *second_field(const char *path) {
  char text[64];
  if (strncmp(path, "layout.", 7) != 0) return NULL;
  snprintf(text, sizeof text, "reload.%s", path + 7);
  return number_field(text);
}

/* Whether the field is outside of the accepted range, also in the layout that the case is loaded with. */
static bool is_outside(const struct sf_case *c, const char *path, int64_t lo, int64_t hi, int64_t multiple) {
  const struct sf_field *fields[2] = {number_field(path), c->reload.after_step > 0 ? second_field(path) : NULL};
  for (int i = 0; i < 2; i++) {
    if (!fields[i]) continue;
    const int64_t value = sf_case_field_get(c, fields[i]);
    if (value < lo || value > hi || (multiple > 0 && value % multiple != 0)) return true;
  }
  return false;
}

/* A layer that casts nothing takes cases that are stored in bf16. */
static bool takes_fp8(const struct sf_plugin_layer *layer) {
  return !sf_module_is(layer->cls, SF_TRAIT_FP8) || (!layer->is_mlp && (layer->declared->takes & SHARDFUZZ_TAKES_FP8) != 0);
}

static const char *refusal(const struct sf_plugin_layer *layer, const struct sf_case *c, char *text, size_t size) {
  const struct shardfuzz_layer *declared = layer->declared;
  if (c->precision.compute == SF_COMPUTE_FP8 && !takes_fp8(layer)) return "it does not take products of fp8";
  if (!(declared->dtypes & SHARDFUZZ_BIT((uint32_t)sf_case_storage(c)))) return "it does not take this format";
  if ((c->layout.sp || c->reload.layout.sp) && !(declared->takes & SHARDFUZZ_TAKES_SEQUENCE_PARALLEL))
    return "it does not take sequence parallelism";
  for (int32_t i = 0; i < declared->fixed_count; i++) {
    const int64_t value = declared->fixed[i].integer;
    if (!is_outside(c, declared->fixed[i].name, value, value, 0)) continue;
    snprintf(text, size, "it takes %.48s %" PRId64 " only", declared->fixed[i].name, value);
    return text;
  }
  for (int32_t i = 0; i < declared->limit_count; i++) {
    const struct shardfuzz_limit *limit = &declared->limits[i];
    if (!is_outside(c, limit->dimension, INT64_MIN, limit->max > 0 ? limit->max : INT64_MAX, limit->multiple)) continue;
    snprintf(text, size, "it does not take this %.48s", limit->dimension);
    return text;
  }
  return NULL;
}

enum sf_status sf_plugin_layers_support(const struct sf_plugin_layers *layers, const struct sf_case *c, struct sf_error *error) {
  char text[160];
  bool any = false;
  enum sf_status status = SF_OK;
  for (int32_t i = 0; i < layers->count && status == SF_OK; i++) {
    if (!sf_module_exists(layers->at[i].cls, c)) continue; /* the model's other layers stay built in */
    const char *reason = refusal(&layers->at[i], c, text, sizeof text);
    any = true;
    if (reason) status = sf_error_set(error, SF_ENOTSUP, "plugin layer %s: %s", layers->at[i].declared->module, reason);
  }
  if (status == SF_OK && !any) return sf_error_set(error, SF_ENOTSUP, "the model has none of the plugin's modules");
  return status;
}

void sf_plugin_add_range(struct sf_plugin_range *out, int32_t *count, const char *path, int64_t lo, int64_t hi) {
  if (*count == SF_PLUGIN_RANGES_MAX) return;
  out[*count] = (struct sf_plugin_range){.lo = lo, .hi = hi};
  snprintf(out[*count].path, sizeof out[*count].path, "%s", path);
  ++*count;
}

void sf_plugin_add_formats(struct sf_plugin_range *out, int32_t *count, uint32_t dtypes) {
  const int32_t at = *count;
  int64_t lo = SF_COMPUTE_FP8, hi = SF_COMPUTE_FP32;
  uint32_t left_out = 0;
  for (int64_t i = SF_COMPUTE_FP32; i < SF_COMPUTE_FP8; i++) {
    if (!(dtypes >> i & 1)) {
      left_out |= 1u << i;
      continue;
    }
    lo = i < lo ? i : lo;
    hi = i;
  }
  sf_plugin_add_range(out, count, "precision.compute", lo, hi);
  if (*count > at) out[at].left_out = left_out;
}

static int64_t highest(const struct sf_need *need) { return need->hi < INT64_MAX ? need->hi : sf_case_field_find(need->path)->max; }

/* Whether another layer needs values of the field that exclude these: a model has one or the other. */
static bool is_contested(const struct sf_plugin_layers *layers, const struct sf_need *need) {
  for (int32_t i = 0; i < layers->count; i++)
    for (int k = 0; k < SF_NEEDS; k++) {
      const struct sf_need *other = &sf_modules[layers->at[i].cls].needs[k];
      if (other->path != NULL && strcmp(other->path, need->path) == 0 && (other->lo > highest(need) || need->lo > highest(other)))
        return true;
    }
  return false;
}

static void add_needs(struct sf_plugin_range *out, int32_t *count, const struct sf_plugin_layers *layers, enum sf_module_class cls) {
  for (int i = 0; i < SF_NEEDS; i++) {
    const struct sf_need *need = &sf_modules[cls].needs[i];
    if (need->path != NULL && !is_contested(layers, need)) sf_plugin_add_range(out, count, need->path, need->lo, highest(need));
  }
}

int32_t sf_plugin_layers_ranges(struct sf_plugin_range *out, const struct sf_plugin_layers *layers) {
  int32_t count = 0;
  for (int32_t i = 0; i < layers->count; i++) {
    const struct shardfuzz_layer *declared = layers->at[i].declared;
    const int32_t formats = count;
    sf_plugin_add_formats(out, &count, declared->dtypes);
    if (count > formats && takes_fp8(&layers->at[i]) && (declared->dtypes & SHARDFUZZ_BIT(SHARDFUZZ_BF16)))
      out[formats].hi = SF_COMPUTE_FP8; /* stored as bf16 */
    add_needs(out, &count, layers, layers->at[i].cls);
    if (!(declared->takes & SHARDFUZZ_TAKES_SEQUENCE_PARALLEL))
      sf_plugin_add_range(out, &count, "layout.sp", 0, 0), sf_plugin_add_range(out, &count, "reload.sp", 0, 0);
    for (int32_t k = 0; k < declared->fixed_count; k++)
      sf_plugin_add_range(out, &count, declared->fixed[k].name, declared->fixed[k].integer, declared->fixed[k].integer);
    for (int32_t k = 0; k < declared->limit_count; k++) {
      const struct shardfuzz_limit *limit = &declared->limits[k];
      const struct sf_field *second = second_field(limit->dimension);
      if (limit->max > 0) sf_plugin_add_range(out, &count, limit->dimension, number_field(limit->dimension)->min, limit->max);
      if (limit->max > 0 && second) sf_plugin_add_range(out, &count, second->path, second->min, limit->max);
    }
  }
  return count;
}
