/* Modules and parameters of a case, and where they stand. */
#include "harness/spec/catalog.h"

#include "harness/base/alloc.h"
#include "harness/base/assert.h"

#include <stdio.h>
#include <string.h>

/* The classes of a layer, of the decoder or of multi-token prediction, and those around a layer of the latter. */
enum {
  LAYER_FIRST = SF_MODULE_INPUT_LAYERNORM,
  LAYER_END = SF_MODULE_MLP_BDA + 1,
  MTP_FIRST = SF_MODULE_MTP_EMBEDDING,
  MTP_BEHIND = SF_MODULE_MTP_FINAL_LAYERNORM,
  MTP_END = SF_MODULE_OPTIMIZER
};

/* --- parameters ----------------------------------------------------------------------------------------------- */

/* 2^-round(log2(n) / 2), halves away from zero: the power of two nearest to 1 / sqrt(n) on the logarithmic scale. */
static float pow2_inverse_sqrt(int64_t n) {
  int log2_floor = 0;
  while (n >> (log2_floor + 1) > 0) log2_floor++;
  return 1.0f / (float)(INT64_C(1) << ((log2_floor + 1) / 2));
}

static float initial_scale(const struct sf_case *c, enum sf_initial initial, int64_t cols) {
  switch (initial) {
  case SF_INITIAL_FAN_IN:
    return pow2_inverse_sqrt(cols);
  case SF_INITIAL_EXPERT:
    return pow2_inverse_sqrt(c->moe.ffn);
  case SF_INITIAL_WORDS:
    return c->model.tied ? pow2_inverse_sqrt(cols) : 0.5f;
  case SF_INITIAL_TABLE:
    return 0.5f;
  case SF_INITIAL_UNIT:
    return 1;
  case SF_INITIAL_SMALL:
  case SF_INITIAL_AROUND_1:
    return 0.125f;
  }
  SF_ASSERT(!"an initial value");
  return 0;
}

static void catalog_add_param(struct sf_catalog *catalog, int32_t module, const struct sf_module_param *row) {
  const struct sf_case *c = &catalog->logical;
  const int32_t index = catalog->param_count++;
  if (catalog->params == NULL) return;
  struct sf_module *owner = &catalog->modules[module];
  struct sf_param *param = &catalog->params[index];
  const int length = snprintf(param->name, sizeof param->name, "%s.%s", owner->name, row->part);
  SF_ASSERT_LT(length, sizeof param->name);
  owner->param_count++;
  param->module = module;
  param->shape = (struct sf_shape){sf_size_of(c, row->rows), sf_size_of(c, row->cols)};
  param->row_cut = sf_module_cut(row->row_cut, c), param->col_cut = sf_module_cut(row->col_cut, c);
  param->frozen = (c->train.frozen & sf_modules[owner->cls].frozen) != 0;
  param->decayed = param->shape.rows > 1;
  param->scale = initial_scale(c, row->initial, param->shape.cols);
  param->offset = row->initial == SF_INITIAL_AROUND_1 ? 1.0f : 0.0f;
}

/* --- modules -------------------------------------------------------------------------------------------------- */

static int name_module(char *out, size_t out_size, const struct sf_model *model, enum sf_module_class cls, int32_t layer) {
  const char *name = sf_modules[cls].name;
  const int32_t depth = layer - (int32_t)model->layers;
  if (layer < 0) return snprintf(out, out_size, "%s", name);
  if (depth < 0) return snprintf(out, out_size, "decoder.layers.%d.%s", layer, name);
  if ((int)cls < LAYER_END) return snprintf(out, out_size, "mtp.layers.%d.transformer_layer.%s", depth, name);
  return snprintf(out, out_size, "mtp.layers.%d.%s", depth, name + strlen("mtp."));
}

static int64_t place_count(const struct sf_case *c) { return (1 + c->model.layers + c->model.mtp_depth) * SF_MODULE_CLASS_COUNT; }
static int64_t place_of(enum sf_module_class cls, int32_t layer) { return (int64_t)(layer + 1) * SF_MODULE_CLASS_COUNT + (int64_t)cls; }

static void catalog_add_module(struct sf_catalog *catalog, enum sf_module_class cls, int32_t layer) {
  const struct sf_case *c = &catalog->logical;
  const struct sf_module_param *params = sf_modules[cls].params;
  const int32_t index = catalog->module_count++;
  if (catalog->modules != NULL) {
    struct sf_module *module = &catalog->modules[index];
    *module = (struct sf_module){.cls = cls, .layer = layer, .first_param = catalog->param_count};
    SF_ASSERT_LT(name_module(module->name, sizeof module->name, &c->model, cls, layer), sizeof module->name);
    catalog->places[place_of(cls, layer)] = index;
  }
  for (size_t i = 0; i < sizeof sf_modules[cls].params / sizeof params[0]; i++)
    if (params[i].part != NULL && sf_need_holds(&params[i].when, c)) catalog_add_param(catalog, index, &params[i]);
}

/* Those of the classes [first, end) that the model has. */
static void catalog_add_classes(struct sf_catalog *catalog, int first, int end, int32_t layer) {
  for (int cls = first; cls < end; cls++)
    if (sf_module_exists((enum sf_module_class)cls, &catalog->logical)) catalog_add_module(catalog, (enum sf_module_class)cls, layer);
}

/* Adds all modules in execution order; while there is no memory for them, only counts them. */
static void catalog_add_all(struct sf_catalog *catalog) {
  const struct sf_model *model = &catalog->logical.model;
  const int32_t layers = (int32_t)model->layers, end = layers + (int32_t)model->mtp_depth;
  catalog->module_count = catalog->param_count = 0;
  catalog_add_classes(catalog, 0, LAYER_FIRST, -1);
  for (int32_t layer = 0; layer < layers; layer++) catalog_add_classes(catalog, LAYER_FIRST, LAYER_END, layer);
  catalog_add_classes(catalog, LAYER_END, MTP_FIRST, -1);
  for (int32_t layer = layers; layer < end; layer++) {
    catalog_add_classes(catalog, MTP_FIRST, MTP_BEHIND, layer);
    catalog_add_classes(catalog, LAYER_FIRST, LAYER_END, layer);
    catalog_add_classes(catalog, MTP_BEHIND, MTP_END, layer);
  }
  catalog_add_classes(catalog, MTP_END, SF_MODULE_CLASS_COUNT, -1);
}

int32_t sf_catalog_module(const struct sf_catalog *catalog, enum sf_module_class cls, int32_t layer) {
  const struct sf_model *model = &catalog->logical.model;
  const bool is_place = (unsigned)cls < SF_MODULE_CLASS_COUNT && layer >= -1 && layer < model->layers + model->mtp_depth;
  return is_place ? catalog->places[place_of(cls, layer)] : -1;
}

int32_t sf_catalog_param(const struct sf_catalog *catalog, enum sf_module_class cls, int32_t layer, int which) {
  const int32_t module = sf_catalog_module(catalog, cls, layer);
  if (module < 0 || which < 0 || which >= catalog->modules[module].param_count) return -1;
  return catalog->modules[module].first_param + which;
}

enum sf_status sf_catalog_create(struct sf_catalog **out, const struct sf_case *c) {
  struct sf_catalog *catalog = sf_alloc(sizeof *catalog);
  if (catalog == NULL) return SF_ENOMEM;
  *catalog = (struct sf_catalog){.logical = *c};
  catalog_add_all(catalog);
  catalog->modules = sf_alloc((size_t)catalog->module_count * sizeof *catalog->modules);
  catalog->params = sf_alloc((size_t)catalog->param_count * sizeof *catalog->params);
  catalog->places = sf_alloc((size_t)place_count(c) * sizeof *catalog->places);
  if (catalog->modules == NULL || catalog->params == NULL || catalog->places == NULL) {
    sf_catalog_destroy(catalog);
    return SF_ENOMEM;
  }
  memset(catalog->places, 0xff, (size_t)place_count(c) * sizeof *catalog->places); /* -1 */
  catalog_add_all(catalog);
  *out = catalog;
  return SF_OK;
}

void sf_catalog_destroy(struct sf_catalog *catalog) {
  if (catalog == NULL) return;
  sf_free(catalog->modules);
  sf_free(catalog->params);
  sf_free(catalog->places);
  sf_free(catalog);
}
