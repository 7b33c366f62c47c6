#include "targets/plugin/plugin_model.h"

#include "harness/base/assert.h"
#include "harness/base/float_mode.h"
#include "harness/base/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Room for a place, so that it and the longest name of an operation are a label. */
enum { PLACE_TEXT = SF_PLUGIN_LABEL_TEXT - (int)sizeof ".reduce_scatter" };

static const char *const always_drawn[] = {
    "seed",           "mode",           "schedule",          "model.layers",          "model.hidden",     "model.heads",
    "model.kv_heads", "model.head_dim", "model.ffn",         "model.vocab",           "model.vocab_padded", "model.seq",
    "train.steps",    "train.microbatches", "train.microbatch_size", "train.clip_milli", "train.lr_micro", "train.weight_decay_milli",
    "train.beta1_milli", "train.beta2_milli", "data.tokens", "data.mask",             "data.weights",     "data.acts",
    "data.grads",     "data.exact",     "data.overflow"};

/* Fields that the interface gives a model no means for, and formats, which it declares elsewhere. */
static const char *const never_taken[] = {
    "precision.compute",       "precision.stochastic", "precision.fp8_recipe", "precision.fp8_history",  "precision.fp8_bf16_first",
    "precision.fp8_bf16_last", "model.memory_seq",     "model.mtp_depth",      "train.mtp_weight_milli", "layout.zero"};

static bool is_among(const char *path, const char *const *list, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (strcmp(list[i], path) == 0) return true;
  return false;
}
static bool is_always_drawn(const char *path) { return is_among(path, always_drawn, sizeof always_drawn / sizeof always_drawn[0]); }
static bool is_never_taken(const char *path) {
  return strncmp(path, "reload.", 7) == 0 || is_among(path, never_taken, sizeof never_taken / sizeof never_taken[0]);
}

/* --- what is declared -------------------------------------------------------------------------------------------- */

enum { FORMATS = SHARDFUZZ_BIT(SHARDFUZZ_F32) | SHARDFUZZ_BIT(SHARDFUZZ_BF16) | SHARDFUZZ_BIT(SHARDFUZZ_F16) };

static enum sf_status check_range(const struct shardfuzz_range *range, struct sf_error *error) {
  const struct sf_field *field = sf_case_field_find(range->field);
  if (!field || field->type == SF_FIELD_TEXT) return sf_error_set(error, SF_EINPUT, "a case has no number '%.60s'", range->field);
  if (is_never_taken(field->path)) return sf_error_set(error, SF_EINPUT, "%s is not for models", field->path);
  if (range->min > range->max || range->max < field->min || range->min > field->max)
    return sf_error_set(error, SF_EINPUT, "%s is never in %" PRId64 "..%" PRId64, field->path, range->min, range->max);
  return SF_OK;
}

struct sf_plugin_place *sf_plugin_model_place(struct sf_plugin_model *model, const char *name) {
  char fitted[PLACE_TEXT];
  sf_name_fit(fitted, sizeof fitted, name, strlen(name));
  for (int32_t i = 0; i < model->place_count; i++)
    if (strcmp(model->places[i].name, fitted) == 0) return &model->places[i];
  if (model->place_count == SF_PLUGIN_PLACES_MAX) return NULL;
  struct sf_plugin_place *place = &model->places[model->place_count++];
  sf_plugin_place_init(place, fitted);
  return place;
}

enum sf_status sf_plugin_model_init(struct sf_plugin_model *out, const struct shardfuzz_plugin *plugin, struct sf_error *error) {
  const struct shardfuzz_model *declared = sf_plugin_model_declared(plugin);
  if (!(declared->dtypes & FORMATS))
    return sf_error_set(error, SF_EINPUT, "model %.60s: takes none of fp32, bf16 and fp16", declared->name);
  for (int32_t i = 0; i < declared->range_count; i++) {
    struct sf_error reason = {SF_OK, ""};
    if (check_range(&declared->ranges[i], &reason) != SF_OK)
      return sf_error_set(error, SF_EINPUT, "model %.60s: %s", declared->name, reason.text);
  }
  *out = (struct sf_plugin_model){.declared = declared};
  (void)sf_plugin_model_place(out, "model");
  return SF_OK;
}

/* --- which cases are taken ---------------------------------------------------------------------------------------- */

/* The values of a field that are taken. */
static void taken(const struct sf_plugin_model *model, const struct sf_field *field, int64_t *lo, int64_t *hi) {
  *lo = is_always_drawn(field->path) ? field->min : field->smallest;
  *hi = is_always_drawn(field->path) ? field->max : field->smallest;
  for (int32_t i = 0; i < model->declared->range_count; i++) {
    const struct shardfuzz_range *range = &model->declared->ranges[i];
    if (strcmp(range->field, field->path) == 0) *lo = range->min, *hi = range->max;
  }
}

static bool is_pinned(const struct sf_field *field) {
  return field->type != SF_FIELD_TEXT && strcmp(field->path, "precision.compute") != 0;
}

int32_t sf_plugin_model_fields(struct shardfuzz_attribute *out, const struct sf_case *c) {
  int32_t count = 0;
  for (int i = 0; i < sf_case_field_count; i++) {
    if (sf_case_fields[i].type == SF_FIELD_TEXT) continue;
    SF_ASSERT_LT(count, SF_PLUGIN_FIELDS_MAX);
    const int64_t value = sf_case_field_get(c, &sf_case_fields[i]);
    out[count++] = (struct shardfuzz_attribute){sf_case_fields[i].path, value, (double)value};
  }
  return count;
}

enum sf_status sf_plugin_model_support(const struct sf_plugin_model *model, const struct sf_case *c, struct sf_error *error) {
  const struct shardfuzz_model *declared = model->declared;
  struct shardfuzz_attribute fields[SF_PLUGIN_FIELDS_MAX];
  if (c->precision.compute == SF_COMPUTE_FP8)
    return sf_error_set(error, SF_ENOTSUP, "plugin model %.60s: casts to fp8 are not for models", declared->name);
  if (!(declared->dtypes & SHARDFUZZ_BIT((uint32_t)sf_case_storage(c))))
    return sf_error_set(error, SF_ENOTSUP, "plugin model %.60s: it does not take this format", declared->name);
  for (int i = 0; i < sf_case_field_count; i++) {
    const struct sf_field *field = &sf_case_fields[i];
    int64_t lo, hi;
    if (!is_pinned(field)) continue;
    taken(model, field, &lo, &hi);
    const int64_t value = sf_case_field_get(c, field);
    if (value < lo || value > hi)
      return sf_error_set(error, SF_ENOTSUP, "plugin model %.60s: it does not take %s %" PRId64, declared->name, field->path, value);
  }
  const bool taken_too = !declared->supports || declared->supports(fields, sf_plugin_model_fields(fields, c)) == SHARDFUZZ_OK;
  sf_float_mode_restore();
  if (!taken_too)
    return sf_error_set(error, SF_ENOTSUP, "plugin model %.60s: it does not take this case", declared->name);
  return SF_OK;
}

int32_t sf_plugin_model_ranges(struct sf_plugin_range *out, const struct sf_plugin_model *model) {
  int32_t count = 0;
  sf_plugin_add_formats(out, &count, model->declared->dtypes);
  for (int i = 0; i < sf_case_field_count; i++) {
    const struct sf_field *field = &sf_case_fields[i];
    int64_t lo, hi;
    if (!is_pinned(field)) continue;
    taken(model, field, &lo, &hi);
    if (lo > field->min || hi < field->max) sf_plugin_add_range(out, &count, field->path, lo, hi);
  }
  return count;
}
