/* Modules and parameters of a case, and where they stand. Both lists are regular (head, equal layers, tail, depths of multi-token
 * prediction), so a place is arithmetic and not a search. */
#include "harness/spec/catalog.h"

#include "harness/base/alloc.h"
#include "harness/base/assert.h"

#include <stdio.h>
#include <string.h>

static const char *const CLASS_NAMES[] = {
#define X(name, text) text,
    SF_MODULE_MAP(X)
#undef X
};

const char *sf_module_class_name(enum sf_module_class cls) {
  SF_ASSERT_LT((unsigned)cls, SF_MODULE_CLASS_COUNT);
  return CLASS_NAMES[cls];
}

static bool in_mtp(enum sf_module_class cls) { return cls >= SF_MODULE_MTP_EMBEDDING && cls <= SF_MODULE_MTP_LOSS; }
static bool in_layers(enum sf_module_class cls) { return cls >= SF_MODULE_INPUT_LAYERNORM && cls <= SF_MODULE_MLP_BDA; }

static bool class_exists(const struct sf_case *c, enum sf_module_class cls) {
  const struct sf_model *model = &c->model;
  switch (cls) {
  case SF_MODULE_LINEAR_FC1:
  case SF_MODULE_ACTIVATION:
  case SF_MODULE_LINEAR_FC2: return c->moe.experts == 0;
  case SF_MODULE_ROUTER:
  case SF_MODULE_ROUTING:
  case SF_MODULE_EXPERTS_FC1:
  case SF_MODULE_EXPERTS_FC2:
  case SF_MODULE_COMBINE: return c->moe.experts > 0;
  case SF_MODULE_SHARED_FC1:
  case SF_MODULE_SHARED_ACTIVATION:
  case SF_MODULE_SHARED_FC2:
  case SF_MODULE_SHARED_ADD: return c->moe.shared_ffn > 0;
  case SF_MODULE_AUX_LOSS: return c->moe.aux_micro > 0 || c->moe.z_micro > 0;
  case SF_MODULE_EMBEDDING: return model->positions == SF_POS_LEARNED;
  case SF_MODULE_LINEAR_QKV: return model->kv_lora_rank == 0;
  case SF_MODULE_LINEAR_Q: return model->kv_lora_rank > 0 && model->q_lora_rank == 0;
  case SF_MODULE_LINEAR_Q_DOWN:
  case SF_MODULE_Q_LAYERNORM:
  case SF_MODULE_LINEAR_Q_UP: return model->q_lora_rank > 0;
  case SF_MODULE_LINEAR_KV_DOWN:
  case SF_MODULE_KV_LAYERNORM:
  case SF_MODULE_LINEAR_KV_UP: return model->kv_lora_rank > 0;
  case SF_MODULE_QK_NORM: return model->qk_norm;
  case SF_MODULE_POST_SELF_ATTN_LAYERNORM:
  case SF_MODULE_POST_MLP_LAYERNORM: return model->post_norm;
  case SF_MODULE_ROTARY: return model->positions == SF_POS_ROTARY;
  case SF_MODULE_PRE_CROSS_ATTN_LAYERNORM:
  case SF_MODULE_CROSS_LINEAR_Q:
  case SF_MODULE_CROSS_LINEAR_KV:
  case SF_MODULE_CROSS_KEY_VALUE:
  case SF_MODULE_CROSS_CORE_ATTENTION:
  case SF_MODULE_CROSS_LINEAR_PROJ:
  case SF_MODULE_CROSS_ATTN_BDA: return model->memory_seq > 0;
  case SF_MODULE_ADAPTER:
  case SF_MODULE_ADAPTER_BDA: return model->adapter;
  default: return true;
  }
}

/* --- parameters ----------------------------------------------------------------------------------------------- */

/* 2^-round(log2(n) / 2), halves away from zero: the power of two nearest to 1 / sqrt(n) on the logarithmic scale. */
bool sf_module_class_is_norm(enum sf_module_class cls) {
  switch (cls) {
  case SF_MODULE_INPUT_LAYERNORM:
  case SF_MODULE_Q_LAYERNORM:
  case SF_MODULE_KV_LAYERNORM:
  case SF_MODULE_QK_NORM:
  case SF_MODULE_POST_SELF_ATTN_LAYERNORM:
  case SF_MODULE_PRE_CROSS_ATTN_LAYERNORM:
  case SF_MODULE_PRE_MLP_LAYERNORM:
  case SF_MODULE_POST_MLP_LAYERNORM:
  case SF_MODULE_MTP_ENORM:
  case SF_MODULE_MTP_HNORM:
  case SF_MODULE_MTP_FINAL_LAYERNORM:
  case SF_MODULE_FINAL_LAYERNORM: return true;
  default: return false;
  }
}

static float pow2_inverse_sqrt(int64_t n) {
  int log2_floor = 0;
  while (n >> (log2_floor + 1) > 0) log2_floor++;
  return 1.0f / (float)(INT64_C(1) << ((log2_floor + 1) / 2));
}

/* Projections of multi-latent attention, which have no bias. */
static bool is_latent_linear(enum sf_module_class cls) {
  return cls == SF_MODULE_LINEAR_Q || cls == SF_MODULE_LINEAR_Q_DOWN || cls == SF_MODULE_LINEAR_Q_UP || cls == SF_MODULE_LINEAR_KV_DOWN ||
         cls == SF_MODULE_LINEAR_KV_UP;
}

static bool is_linear(enum sf_module_class cls) {
  return cls == SF_MODULE_LINEAR_QKV || cls == SF_MODULE_LINEAR_PROJ || cls == SF_MODULE_LINEAR_FC1 || cls == SF_MODULE_LINEAR_FC2 ||
         cls == SF_MODULE_CROSS_LINEAR_Q || cls == SF_MODULE_CROSS_LINEAR_KV || cls == SF_MODULE_CROSS_LINEAR_PROJ;
}

/* Parameters of a module of this class: 0, 1 (weight) or 2 (weight, bias); of QK_NORM twice as many. */
static int param_count(const struct sf_case *c, enum sf_module_class cls) {
  const struct sf_model *model = &c->model;
  if (!class_exists(c, cls)) return 0;
  if (sf_module_class_is_norm(cls)) return (model->norm == SF_NORM_LAYER ? 2 : 1) * (cls == SF_MODULE_QK_NORM ? 2 : 1);
  if (is_linear(cls)) return model->bias ? 2 : 1;
  if (is_latent_linear(cls)) return 1;
  switch (cls) {
  case SF_MODULE_WORD_EMBEDDINGS:
  case SF_MODULE_EMBEDDING:
  case SF_MODULE_ROUTER:
  case SF_MODULE_EXPERTS_FC1:
  case SF_MODULE_EXPERTS_FC2:
  case SF_MODULE_SHARED_FC1:
  case SF_MODULE_SHARED_FC2:
  case SF_MODULE_MTP_EH_PROJ:
  case SF_MODULE_ADAPTER: return 1;
  case SF_MODULE_CORE_ATTENTION: return model->sinks ? 1 : 0;
  case SF_MODULE_OUTPUT_LAYER: return model->tied ? 0 : 1;
  default: return 0;
  }
}

static int64_t qkv_width(const struct sf_model *model) { return (model->heads + 2 * model->kv_heads) * model->head_dim; }
static int64_t fc1_width(const struct sf_model *model, int64_t ffn) { return model->activation == SF_ACT_SWIGLU ? 2 * ffn : ffn; }
static enum sf_cut fc1_cut(const struct sf_model *model) { return model->activation == SF_ACT_SWIGLU ? SF_CUT_GATE_UP : SF_CUT_EVEN; }

static int64_t frozen_bit(enum sf_module_class cls) {
  if (sf_module_class_is_norm(cls)) return SF_FROZEN_NORMS;
  if (is_latent_linear(cls)) return SF_FROZEN_QKV;
  switch (cls) {
  case SF_MODULE_WORD_EMBEDDINGS:
  case SF_MODULE_EMBEDDING: return SF_FROZEN_EMBEDDING;
  case SF_MODULE_LINEAR_QKV:
  case SF_MODULE_CROSS_LINEAR_Q:
  case SF_MODULE_CROSS_LINEAR_KV:
  case SF_MODULE_CORE_ATTENTION: return SF_FROZEN_QKV;
  case SF_MODULE_CROSS_LINEAR_PROJ:
  case SF_MODULE_LINEAR_PROJ: return SF_FROZEN_PROJ;
  case SF_MODULE_EXPERTS_FC1:
  case SF_MODULE_SHARED_FC1:
  case SF_MODULE_LINEAR_FC1: return SF_FROZEN_FC1;
  case SF_MODULE_EXPERTS_FC2:
  case SF_MODULE_SHARED_FC2:
  case SF_MODULE_LINEAR_FC2: return SF_FROZEN_FC2;
  default: return 0;
  }
}

/* [out x in]; a down projection is whole on every rank, the others are cut by heads. */
static void describe_latent_linear(struct sf_param *param, const struct sf_model *m, enum sf_module_class cls) {
  const int64_t nope = m->head_dim - m->qk_rope_dim;
  const bool down = cls == SF_MODULE_LINEAR_Q_DOWN || cls == SF_MODULE_LINEAR_KV_DOWN;
  struct sf_shape shape = {m->heads * m->head_dim, m->hidden};
  if (cls == SF_MODULE_LINEAR_Q_DOWN) shape.rows = m->q_lora_rank;
  if (cls == SF_MODULE_LINEAR_Q_UP) shape.cols = m->q_lora_rank;
  if (cls == SF_MODULE_LINEAR_KV_DOWN) shape.rows = m->kv_lora_rank + m->qk_rope_dim;
  if (cls == SF_MODULE_LINEAR_KV_UP) shape = (struct sf_shape){m->heads * (nope + m->head_dim), m->kv_lora_rank};
  param->shape = shape;
  param->row_cut = down ? SF_CUT_NONE : SF_CUT_EVEN, param->col_cut = SF_CUT_NONE;
  param->scale = pow2_inverse_sqrt(shape.cols);
}

static int64_t norm_width(const struct sf_model *m, enum sf_module_class cls) {
  switch (cls) {
  case SF_MODULE_QK_NORM: return m->head_dim;
  case SF_MODULE_Q_LAYERNORM: return m->q_lora_rank;
  case SF_MODULE_KV_LAYERNORM: return m->kv_lora_rank;
  default: return m->hidden;
  }
}

/* The experts' weights stand one after the other: linear_fc1's below each other, linear_fc2's side by side. */
static void describe_experts(struct sf_param *param, const struct sf_case *c, enum sf_module_class cls) {
  const bool swiglu = c->model.activation == SF_ACT_SWIGLU;
  const int64_t width = c->moe.experts * c->moe.ffn;
  param->row_cut = param->col_cut = SF_CUT_NONE;
  if (cls == SF_MODULE_EXPERTS_FC1) {
    param->shape = (struct sf_shape){swiglu ? 2 * width : width, c->model.hidden};
    param->row_cut = swiglu ? SF_CUT_EXPERTS_GATE_UP : SF_CUT_EXPERTS;
    param->scale = pow2_inverse_sqrt(c->model.hidden);
  } else {
    param->shape = (struct sf_shape){c->model.hidden, width};
    param->col_cut = SF_CUT_EXPERTS;
    param->scale = pow2_inverse_sqrt(c->moe.ffn);
  }
}

static void describe_weight(struct sf_param *param, const struct sf_case *c, enum sf_module_class cls) {
  const struct sf_model *m = &c->model;
  if (cls == SF_MODULE_EXPERTS_FC1 || cls == SF_MODULE_EXPERTS_FC2) {
    describe_experts(param, c, cls);
    return;
  }
  const int64_t hidden = m->hidden, attention = m->heads * m->head_dim;
  struct sf_shape shape = {1, hidden};
  enum sf_cut row_cut = SF_CUT_NONE, col_cut = SF_CUT_NONE;
  float scale = pow2_inverse_sqrt(hidden);
  switch (cls) {
  case SF_MODULE_WORD_EMBEDDINGS:
    shape.rows = m->vocab_padded, row_cut = SF_CUT_EVEN;
    if (!m->tied) scale = 0.5f;
    break;
  case SF_MODULE_EMBEDDING: shape.rows = m->seq, scale = 0.5f; break;
  case SF_MODULE_LINEAR_QKV: shape.rows = qkv_width(m), row_cut = SF_CUT_QKV; break;
  case SF_MODULE_CROSS_LINEAR_Q: shape.rows = attention, row_cut = SF_CUT_EVEN; break;
  case SF_MODULE_CROSS_LINEAR_KV: shape.rows = 2 * attention, row_cut = SF_CUT_EVEN; break;
  case SF_MODULE_CORE_ATTENTION: shape.cols = m->heads, col_cut = SF_CUT_EVEN, scale = 1; break;
  case SF_MODULE_CROSS_LINEAR_PROJ:
  case SF_MODULE_LINEAR_PROJ:
    shape = (struct sf_shape){hidden, attention}, col_cut = SF_CUT_EVEN, scale = pow2_inverse_sqrt(attention);
    break;
  case SF_MODULE_LINEAR_FC1: shape.rows = fc1_width(m, m->ffn), row_cut = fc1_cut(m); break;
  case SF_MODULE_LINEAR_FC2:
    shape = (struct sf_shape){hidden, m->ffn}, col_cut = SF_CUT_EVEN, scale = pow2_inverse_sqrt(m->ffn);
    break;
  case SF_MODULE_ROUTER: shape.rows = c->moe.experts; break;
  case SF_MODULE_SHARED_FC1: shape.rows = fc1_width(m, c->moe.shared_ffn), row_cut = fc1_cut(m); break;
  case SF_MODULE_SHARED_FC2:
    shape = (struct sf_shape){hidden, c->moe.shared_ffn}, col_cut = SF_CUT_EVEN, scale = pow2_inverse_sqrt(c->moe.shared_ffn);
    break;
  case SF_MODULE_ADAPTER: shape.rows = hidden; break;
  case SF_MODULE_MTP_EH_PROJ:
    shape = (struct sf_shape){hidden, 2 * hidden}, row_cut = SF_CUT_EVEN, scale = pow2_inverse_sqrt(2 * hidden);
    break;
  case SF_MODULE_OUTPUT_LAYER: shape.rows = m->vocab_padded, row_cut = SF_CUT_EVEN; break;
  default:
    SF_ASSERT(sf_module_class_is_norm(cls));
    shape.cols = norm_width(m, cls);
    scale = 0.125f, param->offset = 1.0f;
  }
  param->shape = shape;
  param->row_cut = row_cut, param->col_cut = col_cut;
  param->scale = scale;
}

static void describe_bias(struct sf_param *param, const struct sf_model *m, enum sf_module_class cls) {
  param->shape = (struct sf_shape){1, m->hidden};
  param->row_cut = param->col_cut = SF_CUT_NONE;
  param->scale = 0.125f;
  if (sf_module_class_is_norm(cls)) param->shape.cols = norm_width(m, cls);
  if (cls == SF_MODULE_LINEAR_QKV) param->shape.cols = qkv_width(m), param->col_cut = SF_CUT_QKV;
  if (cls == SF_MODULE_LINEAR_FC1) param->shape.cols = fc1_width(m, m->ffn), param->col_cut = fc1_cut(m);
  if (cls == SF_MODULE_CROSS_LINEAR_Q) param->shape.cols = m->heads * m->head_dim, param->col_cut = SF_CUT_EVEN;
  if (cls == SF_MODULE_CROSS_LINEAR_KV) param->shape.cols = 2 * m->heads * m->head_dim, param->col_cut = SF_CUT_EVEN;
}

/* What follows the module's name. The position table is a parameter of the module that adds it. */
static const char *param_part(enum sf_module_class cls, int which) {
  if (cls == SF_MODULE_EMBEDDING) return "position_embeddings.weight";
  if (cls == SF_MODULE_CORE_ATTENTION) return "softmax_offset";
  static const char *const QK_PARTS[] = {"q.weight", "k.weight", "q.bias", "k.bias"};
  if (cls == SF_MODULE_QK_NORM) return QK_PARTS[which];
  return which == 0 ? "weight" : "bias";
}

static void catalog_add_params(struct sf_catalog *catalog, int32_t module) {
  const struct sf_module *owner = &catalog->modules[module];
  const struct sf_case *c = &catalog->logical;
  const int count = param_count(c, owner->cls);
  for (int which = 0; which < count; which++) {
    struct sf_param *param = &catalog->params[catalog->param_count++];
    const int length = snprintf(param->name, sizeof param->name, "%s.%s", owner->name, param_part(owner->cls, which));
    SF_ASSERT_LT(length, sizeof param->name);
    param->module = module;
    const bool is_weight = which < (owner->cls == SF_MODULE_QK_NORM ? 2 : 1);
    if (is_latent_linear(owner->cls)) describe_latent_linear(param, &c->model, owner->cls);
    else if (is_weight) describe_weight(param, c, owner->cls);
    else describe_bias(param, &c->model, owner->cls);
    param->frozen = (catalog->logical.train.frozen & frozen_bit(owner->cls)) != 0;
    param->decayed = param->shape.rows > 1;
  }
}

/* --- modules -------------------------------------------------------------------------------------------------- */

/* Sections of the list of modules: each takes its classes in order, `times` times over. A section of multi-token prediction is one depth.
 */
struct section {
  int first, end;
  int32_t layer, times; /* of the first of them; -1: no layers */
};
enum { SECTIONS_MAX = 16 };

static int sections_of(struct section out[SECTIONS_MAX], const struct sf_model *model) {
  const int first = SF_MODULE_INPUT_LAYERNORM, end = SF_MODULE_MLP_BDA + 1, mtp = SF_MODULE_MTP_EMBEDDING,
            behind = SF_MODULE_MTP_FINAL_LAYERNORM;
  int count = 0;
  out[count++] = (struct section){0, first, -1, 1};
  out[count++] = (struct section){first, end, 0, (int32_t)model->layers};
  out[count++] = (struct section){end, mtp, -1, 1};
  for (int32_t depth = 0; depth < model->mtp_depth; depth++) {
    const int32_t layer = (int32_t)model->layers + depth;
    out[count++] = (struct section){mtp, behind, layer, 1};
    out[count++] = (struct section){first, end, layer, 1};
    out[count++] = (struct section){behind, SF_MODULE_OPTIMIZER, layer, 1};
  }
  out[count++] = (struct section){SF_MODULE_OPTIMIZER, SF_MODULE_CLASS_COUNT, -1, 1};
  SF_ASSERT_LE(count, SECTIONS_MAX);
  return count;
}

/* Modules, or parameters, of the classes [first, end). */
static int32_t count_modules(const struct sf_case *c, int first, int end) {
  int32_t count = 0;
  for (int cls = first; cls < end; cls++) count += class_exists(c, (enum sf_module_class)cls);
  return count;
}

static int32_t count_params(const struct sf_case *c, int first, int end) {
  int32_t count = 0;
  for (int cls = first; cls < end; cls++) count += param_count(c, (enum sf_module_class)cls);
  return count;
}

/* Place of class cls of a layer in a list that counts classes by `count`; cls SF_MODULE_CLASS_COUNT: the list's length. */
static int32_t place(const struct sf_case *c, int32_t (*count)(const struct sf_case *, int, int), enum sf_module_class cls,
                     int32_t layer) {
  struct section sections[SECTIONS_MAX];
  const int section_count = sections_of(sections, &c->model), at = (int)cls;
  int32_t before = 0;
  for (int i = 0; i < section_count; i++) {
    const struct section *s = &sections[i];
    const int32_t size = count(c, s->first, s->end);
    const bool here = at >= s->first && at < s->end && (s->layer < 0 || (layer >= s->layer && layer < s->layer + s->times));
    if (here) return before + (s->layer < 0 ? 0 : (layer - s->layer) * size) + count(c, s->first, at);
    before += s->times * size;
  }
  return before;
}

static bool has_module(const struct sf_catalog *catalog, enum sf_module_class cls, int32_t layer) {
  const struct sf_model *model = &catalog->logical.model;
  if ((unsigned)cls >= SF_MODULE_CLASS_COUNT || !class_exists(&catalog->logical, cls)) return false;
  if (in_mtp(cls)) return layer >= model->layers && layer < model->layers + model->mtp_depth;
  return in_layers(cls) ? layer >= 0 && layer < model->layers + model->mtp_depth : layer == -1;
}

int32_t sf_catalog_module(const struct sf_catalog *catalog, enum sf_module_class cls, int32_t layer) {
  return has_module(catalog, cls, layer) ? place(&catalog->logical, count_modules, cls, layer) : -1;
}

int32_t sf_catalog_param(const struct sf_catalog *catalog, enum sf_module_class cls, int32_t layer, int which) {
  if (!has_module(catalog, cls, layer) || which < 0 || which >= param_count(&catalog->logical, cls)) return -1;
  return place(&catalog->logical, count_params, cls, layer) + which;
}

static int name_module(char *out, size_t out_size, const struct sf_model *model, enum sf_module_class cls, int32_t layer) {
  const int32_t depth = layer - (int32_t)model->layers;
  if (layer < 0) return snprintf(out, out_size, "%s", CLASS_NAMES[cls]);
  if (depth < 0) return snprintf(out, out_size, "decoder.layers.%d.%s", layer, CLASS_NAMES[cls]);
  if (in_layers(cls)) return snprintf(out, out_size, "mtp.layers.%d.transformer_layer.%s", depth, CLASS_NAMES[cls]);
  return snprintf(out, out_size, "mtp.layers.%d.%s", depth, CLASS_NAMES[cls] + strlen("mtp."));
}

static void catalog_add_module(struct sf_catalog *catalog, enum sf_module_class cls, int32_t layer) {
  if (!class_exists(&catalog->logical, cls)) return;
  const int32_t index = catalog->module_count++;
  struct sf_module *module = &catalog->modules[index];
  module->cls = cls;
  module->layer = layer;
  SF_ASSERT_LT(name_module(module->name, sizeof module->name, &catalog->logical.model, cls, layer), sizeof module->name);
  catalog_add_params(catalog, index);
}

static void catalog_add_all(struct sf_catalog *catalog) {
  struct section sections[SECTIONS_MAX];
  const int count = sections_of(sections, &catalog->logical.model);
  for (int i = 0; i < count; i++)
    for (int32_t k = 0; k < sections[i].times; k++)
      for (int cls = sections[i].first; cls < sections[i].end; cls++)
        catalog_add_module(catalog, (enum sf_module_class)cls, sections[i].layer < 0 ? -1 : sections[i].layer + k);
}

enum sf_status sf_catalog_create(struct sf_catalog **out, const struct sf_case *c) {
  const int32_t module_count = place(c, count_modules, SF_MODULE_CLASS_COUNT, 0);
  const int32_t params = place(c, count_params, SF_MODULE_CLASS_COUNT, 0);
  struct sf_catalog *catalog = sf_alloc(sizeof *catalog);
  if (catalog == NULL) return SF_ENOMEM;
  catalog->modules = sf_alloc((size_t)module_count * sizeof *catalog->modules);
  catalog->params = sf_alloc((size_t)params * sizeof *catalog->params);
  if (catalog->modules == NULL || catalog->params == NULL) {
    sf_catalog_destroy(catalog);
    return SF_ENOMEM;
  }
  catalog->logical = *c;
  catalog_add_all(catalog);
  SF_ASSERT_EQ(catalog->module_count, module_count);
  SF_ASSERT_EQ(catalog->param_count, params);
  *out = catalog;
  return SF_OK;
}

void sf_catalog_destroy(struct sf_catalog *catalog) {
  if (catalog == NULL) return;
  sf_free(catalog->modules);
  sf_free(catalog->params);
  sf_free(catalog);
}
