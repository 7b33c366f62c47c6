/* Traced tensors: their ids, and what each logically is. */
#include "harness/spec/catalog.h"

#include "harness/base/assert.h"

#include <stdio.h>

#define TEXT(name, text, ...) text,
static const char *const KIND_NAMES[] = {SF_KIND_MAP(TEXT)};
static const char *const SCALAR_NAMES[] = {SF_SCALAR_MAP(TEXT)};
static const char *const PASS_NAMES[] = {SF_PASS_MAP(TEXT)};
#undef TEXT

const char *sf_kind_name(enum sf_kind kind) {
  SF_ASSERT_LT((unsigned)kind, SF_KIND_COUNT);
  return KIND_NAMES[kind];
}

const char *sf_scalar_name(enum sf_scalar scalar) {
  SF_ASSERT_LT((unsigned)scalar, SF_SCALAR_COUNT);
  return SCALAR_NAMES[scalar];
}

const char *sf_pass_name(enum sf_pass pass) {
  SF_ASSERT_LT((unsigned)pass, SF_PASS_COUNT);
  return PASS_NAMES[pass];
}

/* Key, from the lowest bit: subject 32, microbatch 16, step 4, pass 4, kind 4, call 4. */
uint64_t sf_trace_key(struct sf_trace_id id) {
  SF_ASSERT(id.step < 16 && id.pass < 16 && id.kind < 16 && id.call < 16);
  const uint64_t small = (uint64_t)id.step | (uint64_t)id.pass << 4 | (uint64_t)id.kind << 8 | (uint64_t)id.call << 12;
  return (uint64_t)(uint32_t)id.subject | (uint64_t)id.microbatch << 32 | small << 48;
}

struct sf_trace_id sf_trace_id_from_key(uint64_t key) {
  const unsigned small = (unsigned)(key >> 48);
  return (struct sf_trace_id){.step = (uint16_t)(small & 15u),
                              .microbatch = (uint16_t)(key >> 32),
                              .pass = (uint8_t)(small >> 4 & 15u),
                              .kind = (uint8_t)(small >> 8 & 15u),
                              .call = (uint8_t)(small >> 12),
                              .subject = (int32_t)(uint32_t)key};
}

static const char *subject_name(const struct sf_catalog *catalog, struct sf_trace_id id) {
  switch (id.kind) {
  case SF_KIND_ACT:
  case SF_KIND_ACT_GRAD: return id.subject >= 0 && id.subject < catalog->module_count ? catalog->modules[id.subject].name : "?";
  case SF_KIND_SCALAR: return id.subject >= 0 && id.subject < SF_SCALAR_COUNT ? SCALAR_NAMES[id.subject] : "?";
  default: return id.subject >= 0 && id.subject < catalog->param_count ? catalog->params[id.subject].name : "?";
  }
}

void sf_trace_id_text(char *out, size_t out_size, const struct sf_catalog *catalog, struct sf_trace_id id) {
  const char *pass = id.pass < SF_PASS_COUNT ? PASS_NAMES[id.pass] : "?";
  const char *kind = id.kind < SF_KIND_COUNT ? KIND_NAMES[id.kind] : "?";
  snprintf(out, out_size, "s%u/mb%u/%s/%s/%s/%u", id.step, id.microbatch, pass, kind, subject_name(catalog, id), id.call);
}

/* --- what a traced tensor is ------------------------------------------------------------------------------------ */

static void spec_of_tensor(struct sf_trace_spec *spec, const struct sf_case *c, const struct sf_module_tensor *tensor) {
  const bool is_fp32 = tensor->promise == SF_PROMISE_F32 || (tensor->promise == SF_PROMISE_STREAM && c->precision.residual_fp32);
  spec->shape = (struct sf_shape){sf_size_of(c, tensor->rows), sf_size_of(c, tensor->cols)};
  spec->row_cut = sf_module_cut(tensor->row_cut, c), spec->col_cut = sf_module_cut(tensor->col_cut, c);
  spec->promised = is_fp32 ? SF_F32 : sf_case_storage(c);
}

/* Whether a pipeline stage may have received this tensor from a neighbour: any cut between two layers. */
static bool crosses_stages(const struct sf_catalog *catalog, const struct sf_module *module, enum sf_kind kind) {
  if (kind == SF_KIND_ACT) return module->cls == SF_MODULE_MLP_BDA && module->layer < catalog->logical.model.layers - 1;
  return module->cls == SF_MODULE_SELF_ATTN_BDA && module->layer > 0 && module->layer < catalog->logical.model.layers;
}

static bool spec_of_module(struct sf_trace_spec *spec, const struct sf_catalog *catalog, struct sf_trace_id id) {
  if (id.subject < 0 || id.subject >= catalog->module_count) return false;
  const struct sf_module *module = &catalog->modules[id.subject];
  const enum sf_kind kind = (enum sf_kind)id.kind;
  const struct sf_module_row *row = &sf_modules[module->cls];
  const struct sf_module_tensor *tensor = kind == SF_KIND_ACT ? &row->act : &row->act_grad;
  if (tensor->rows == SF_SIZE_NONE) return false;
  if (id.call > 1 || (id.call == 1 && !crosses_stages(catalog, module, kind))) return false;
  if (kind == SF_KIND_ACT_GRAD && id.pass != SF_PASS_BWD) return false;
  const bool again = id.pass == SF_PASS_RECOMPUTE && id.call == 0 && module->layer >= 0 && module->layer < catalog->logical.model.layers;
  if (kind == SF_KIND_ACT && id.pass != SF_PASS_FWD && !again) return false;
  spec_of_tensor(spec, &catalog->logical, tensor);
  spec->module = id.subject;
  return true;
}

/* The module whose use of a parameter a WGRAD of this call is the gradient of; -1 when there is no such use. */
static int32_t module_of_use(const struct sf_catalog *catalog, const struct sf_param *param, uint8_t call) {
  const struct sf_model *model = &catalog->logical.model;
  const bool word = catalog->modules[param->module].cls == SF_MODULE_WORD_EMBEDDINGS;
  const bool head = model->tied ? word : catalog->modules[param->module].cls == SF_MODULE_OUTPUT_LAYER;
  if (call == 0) return param->module;
  if (call == SF_CALL_TIED_HEAD) return word && model->tied ? sf_catalog_module(catalog, SF_MODULE_OUTPUT_LAYER, -1) : -1;
  const int32_t layer = (int32_t)model->layers + (call - SF_CALL_MTP_EMBEDDING) / SF_CALLS_PER_DEPTH;
  if ((call - SF_CALL_MTP_EMBEDDING) % SF_CALLS_PER_DEPTH == 0)
    return word ? sf_catalog_module(catalog, SF_MODULE_MTP_EMBEDDING, layer) : -1;
  return head ? sf_catalog_module(catalog, SF_MODULE_MTP_OUTPUT_LAYER, layer) : -1;
}

static bool spec_of_param(struct sf_trace_spec *spec, const struct sf_catalog *catalog, struct sf_trace_id id) {
  if (id.subject < 0 || id.subject >= catalog->param_count) return false;
  const struct sf_param *param = &catalog->params[id.subject];
  if (param->frozen && id.kind != SF_KIND_PARAM) return false;
  const int32_t use = module_of_use(catalog, param, id.call);
  if (use < 0 || (id.call != 0 && id.kind != SF_KIND_WGRAD)) return false;
  if ((id.kind == SF_KIND_WGRAD) != (id.pass == SF_PASS_BWD)) return false;
  /* A rank's experts see tokens of several microbatches at once. */
  const bool expert = sf_cut_is_expert(param->row_cut) || sf_cut_is_expert(param->col_cut);
  if (expert && id.kind == SF_KIND_WGRAD) return false;
  spec->shape = param->shape;
  spec->row_cut = param->row_cut, spec->col_cut = param->col_cut;
  spec->promised = id.kind == SF_KIND_PARAM ? sf_case_storage(&catalog->logical) : SF_F32;
  spec->module = use;
  if (id.kind == SF_KIND_PARAM_DELTA) spec->module = sf_catalog_module(catalog, SF_MODULE_OPTIMIZER, -1);
  return true;
}

static bool spec_of_scalar(struct sf_trace_spec *spec, const struct sf_catalog *catalog, struct sf_trace_id id) {
  if (id.subject < 0 || id.subject >= SF_SCALAR_COUNT || id.call != 0) return false;
  const bool of_scaling = id.subject == SF_SCALAR_LOSS_SCALE || id.subject == SF_SCALAR_OVERFLOW;
  if (of_scaling && catalog->logical.precision.loss_scale_log2 == 0) return false;
  const bool of_loss = id.subject == SF_SCALAR_LOSS || id.subject == SF_SCALAR_TOKENS;
  *spec = (struct sf_trace_spec){.shape = {1, 1}, .row_cut = SF_CUT_NONE, .col_cut = SF_CUT_NONE, .promised = SF_F32};
  spec->module = sf_catalog_module(catalog, of_loss ? SF_MODULE_LOSS : SF_MODULE_OPTIMIZER, -1);
  return true;
}

static bool time_exists(const struct sf_train *train, struct sf_trace_id id) {
  const bool has_end = id.kind == SF_KIND_PARAM || (id.kind == SF_KIND_SCALAR && id.subject == SF_SCALAR_LOSS_SCALE);
  if (id.step >= train->steps + has_end) return false;
  const bool per_microbatch = id.kind == SF_KIND_ACT || id.kind == SF_KIND_ACT_GRAD || id.kind == SF_KIND_WGRAD;
  return per_microbatch ? id.microbatch < train->microbatches : id.microbatch == 0;
}

bool sf_trace_spec(struct sf_trace_spec *out, const struct sf_catalog *catalog, struct sf_trace_id id) {
  struct sf_trace_spec spec = {0};
  bool exists = false;
  if (id.pass >= SF_PASS_COUNT || !time_exists(&catalog->logical.train, id)) return false;
  switch (id.kind) {
  case SF_KIND_ACT:
  case SF_KIND_ACT_GRAD: exists = spec_of_module(&spec, catalog, id); break;
  case SF_KIND_PARAM:
  case SF_KIND_WGRAD:
  case SF_KIND_MAIN_GRAD:
  case SF_KIND_PARAM_DELTA: exists = spec_of_param(&spec, catalog, id); break;
  case SF_KIND_SCALAR: exists = spec_of_scalar(&spec, catalog, id); break;
  default: break;
  }
  if (exists) *out = spec;
  return exists;
}

bool sf_trace_is_given(const struct sf_catalog *catalog, struct sf_trace_id id) {
  if (id.kind == SF_KIND_WGRAD) return true;
  if ((id.kind != SF_KIND_ACT && id.kind != SF_KIND_ACT_GRAD) || id.call != 0) return false;
  const bool is_module = id.subject >= 0 && id.subject < catalog->module_count;
  return is_module && !(id.kind == SF_KIND_ACT && catalog->modules[id.subject].cls == SF_MODULE_ROUTING);
}
