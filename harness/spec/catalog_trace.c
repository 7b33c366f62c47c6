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

/* The forms that activations and their gradients take. */
enum form {
  FORM_ABSENT,
  FORM_RESIDUAL,   /* the residual stream: T x hidden, rows by sequence */
  FORM_STREAM,     /* what joins it: the same shape */
  FORM_PAIR,       /* T x 2 hidden, rows by sequence */
  FORM_GATHERED,   /* T x hidden, rows whole on every tp rank */
  FORM_QKV,        /* T x (heads + 2 kv_heads) head_dim */
  FORM_HEADS,      /* T x heads head_dim */
  FORM_MEMORY,     /* memory_seq microbatch_size x hidden, rows by sequence */
  FORM_MEMORY_KV,  /* as many rows x 2 heads head_dim */
  FORM_Q_LATENT,   /* T x q_lora_rank, rows by sequence */
  FORM_KV_LATENT,  /* T x kv_lora_rank, rows by sequence */
  FORM_KV_DOWN,    /* T x (kv_lora_rank + qk_rope_dim), rows by sequence */
  FORM_KV_UP,      /* T x heads (2 head_dim - qk_rope_dim) */
  FORM_FC1,        /* T x ffn, or 2 ffn with SwiGLU */
  FORM_FFN,        /* T x ffn */
  FORM_SHARED_FC1, /* T x moe.shared_ffn, or twice that with SwiGLU */
  FORM_SHARED_FFN, /* T x moe.shared_ffn */
  FORM_LOGITS,     /* T x vocab_padded */
  FORM_TOKEN_LOSS, /* 1 x T */
  FORM_SCORES,     /* T x experts, fp32, rows by sequence */
  FORM_AUX_LOSSES, /* a row for each auxiliary loss of a layer, fp32, whole on every rank */
  FORM_SLOTS,      /* T x topk hidden: a token's experts side by side, in order of their number; rows by sequence */
};

static const struct { enum form act, act_grad; } FORMS[SF_MODULE_CLASS_COUNT] = {
    [SF_MODULE_WORD_EMBEDDINGS] = {FORM_RESIDUAL, FORM_ABSENT},
    [SF_MODULE_EMBEDDING] = {FORM_RESIDUAL, FORM_ABSENT},
    [SF_MODULE_INPUT_LAYERNORM] = {FORM_STREAM, FORM_RESIDUAL},
    [SF_MODULE_LINEAR_QKV] = {FORM_QKV, FORM_STREAM},
    [SF_MODULE_LINEAR_Q] = {FORM_HEADS, FORM_STREAM},
    [SF_MODULE_LINEAR_Q_DOWN] = {FORM_Q_LATENT, FORM_STREAM},
    [SF_MODULE_Q_LAYERNORM] = {FORM_Q_LATENT, FORM_Q_LATENT},
    [SF_MODULE_LINEAR_Q_UP] = {FORM_HEADS, FORM_Q_LATENT},
    [SF_MODULE_LINEAR_KV_DOWN] = {FORM_KV_DOWN, FORM_STREAM},
    [SF_MODULE_KV_LAYERNORM] = {FORM_KV_LATENT, FORM_KV_LATENT},
    [SF_MODULE_LINEAR_KV_UP] = {FORM_KV_UP, FORM_KV_LATENT},
    [SF_MODULE_QK_NORM] = {FORM_QKV, FORM_QKV},
    [SF_MODULE_ROTARY] = {FORM_QKV, FORM_QKV},
    [SF_MODULE_CORE_ATTENTION] = {FORM_HEADS, FORM_QKV},
    [SF_MODULE_LINEAR_PROJ] = {FORM_STREAM, FORM_HEADS},
    [SF_MODULE_POST_SELF_ATTN_LAYERNORM] = {FORM_STREAM, FORM_STREAM},
    [SF_MODULE_SELF_ATTN_BDA] = {FORM_RESIDUAL, FORM_RESIDUAL},
    [SF_MODULE_PRE_CROSS_ATTN_LAYERNORM] = {FORM_STREAM, FORM_RESIDUAL},
    [SF_MODULE_CROSS_LINEAR_Q] = {FORM_HEADS, FORM_STREAM},
    [SF_MODULE_CROSS_LINEAR_KV] = {FORM_MEMORY_KV, FORM_MEMORY},
    [SF_MODULE_CROSS_KEY_VALUE] = {FORM_ABSENT, FORM_MEMORY_KV},
    [SF_MODULE_CROSS_CORE_ATTENTION] = {FORM_HEADS, FORM_HEADS},
    [SF_MODULE_CROSS_LINEAR_PROJ] = {FORM_STREAM, FORM_HEADS},
    [SF_MODULE_CROSS_ATTN_BDA] = {FORM_RESIDUAL, FORM_RESIDUAL},
    [SF_MODULE_PRE_MLP_LAYERNORM] = {FORM_STREAM, FORM_RESIDUAL},
    [SF_MODULE_LINEAR_FC1] = {FORM_FC1, FORM_STREAM},
    [SF_MODULE_ACTIVATION] = {FORM_FFN, FORM_FC1},
    [SF_MODULE_LINEAR_FC2] = {FORM_STREAM, FORM_FFN},
    [SF_MODULE_ROUTER] = {FORM_SCORES, FORM_STREAM},
    [SF_MODULE_ROUTING] = {FORM_SCORES, FORM_SCORES},
    [SF_MODULE_AUX_LOSS] = {FORM_AUX_LOSSES, FORM_SCORES},
    [SF_MODULE_EXPERTS_FC1] = {FORM_ABSENT, FORM_STREAM},
    [SF_MODULE_EXPERTS_FC2] = {FORM_SLOTS, FORM_ABSENT},
    [SF_MODULE_COMBINE] = {FORM_STREAM, FORM_SLOTS},
    [SF_MODULE_SHARED_FC1] = {FORM_SHARED_FC1, FORM_STREAM},
    [SF_MODULE_SHARED_ACTIVATION] = {FORM_SHARED_FFN, FORM_SHARED_FC1},
    [SF_MODULE_SHARED_FC2] = {FORM_STREAM, FORM_SHARED_FFN},
    [SF_MODULE_SHARED_ADD] = {FORM_STREAM, FORM_ABSENT},
    [SF_MODULE_POST_MLP_LAYERNORM] = {FORM_STREAM, FORM_STREAM},
    [SF_MODULE_MLP_BDA] = {FORM_RESIDUAL, FORM_RESIDUAL},
    [SF_MODULE_ADAPTER] = {FORM_GATHERED, FORM_STREAM},
    [SF_MODULE_ADAPTER_BDA] = {FORM_RESIDUAL, FORM_RESIDUAL},
    [SF_MODULE_FINAL_LAYERNORM] = {FORM_STREAM, FORM_RESIDUAL},
    [SF_MODULE_OUTPUT_LAYER] = {FORM_LOGITS, FORM_STREAM},
    [SF_MODULE_LOSS] = {FORM_TOKEN_LOSS, FORM_LOGITS},
    [SF_MODULE_MTP_EMBEDDING] = {FORM_RESIDUAL, FORM_ABSENT},
    [SF_MODULE_MTP_ENORM] = {FORM_STREAM, FORM_RESIDUAL},
    [SF_MODULE_MTP_HNORM] = {FORM_STREAM, FORM_RESIDUAL},
    [SF_MODULE_MTP_EH_PROJ] = {FORM_STREAM, FORM_PAIR},
    [SF_MODULE_MTP_FINAL_LAYERNORM] = {FORM_STREAM, FORM_RESIDUAL},
    [SF_MODULE_MTP_OUTPUT_LAYER] = {FORM_LOGITS, FORM_STREAM},
    [SF_MODULE_MTP_LOSS] = {FORM_TOKEN_LOSS, FORM_LOGITS},
    [SF_MODULE_OPTIMIZER] = {FORM_ABSENT, FORM_ABSENT},
};

/* The load-balancing loss of each scope, the z loss of the microbatch. */
static int64_t aux_loss_count(const struct sf_case *c) {
  const int64_t scopes = c->moe.scope == SF_SCOPE_SEQUENCE ? c->train.microbatch_size : 1;
  return (c->moe.aux_micro > 0 ? scopes : 0) + (c->moe.z_micro > 0);
}

static void spec_of_form(struct sf_trace_spec *spec, const struct sf_case *c, enum form form) {
  const struct sf_model *m = &c->model;
  const bool swiglu = m->activation == SF_ACT_SWIGLU;
  const int64_t tokens = m->seq * c->train.microbatch_size;
  spec->shape = (struct sf_shape){tokens, m->hidden};
  spec->row_cut = SF_CUT_TOKENS, spec->col_cut = SF_CUT_NONE;
  spec->promised = sf_case_storage(c);
  switch (form) {
  case FORM_RESIDUAL:
    if (c->precision.residual_fp32) spec->promised = SF_F32;
    spec->row_cut = SF_CUT_SEQUENCE;
    break;
  case FORM_PAIR: spec->shape.cols = 2 * m->hidden, spec->row_cut = SF_CUT_SEQUENCE; break;
  case FORM_STREAM: spec->row_cut = SF_CUT_SEQUENCE; break;
  case FORM_QKV: spec->shape.cols = (m->heads + 2 * m->kv_heads) * m->head_dim, spec->col_cut = SF_CUT_QKV; break;
  case FORM_HEADS: spec->shape.cols = m->heads * m->head_dim, spec->col_cut = SF_CUT_EVEN; break;
  case FORM_MEMORY: spec->shape.rows = m->memory_seq * c->train.microbatch_size, spec->row_cut = SF_CUT_SEQUENCE; break;
  case FORM_MEMORY_KV:
    spec->shape = (struct sf_shape){m->memory_seq * c->train.microbatch_size, 2 * m->heads * m->head_dim};
    spec->row_cut = SF_CUT_NONE, spec->col_cut = SF_CUT_EVEN;
    break;
  case FORM_Q_LATENT: spec->shape.cols = m->q_lora_rank, spec->row_cut = SF_CUT_SEQUENCE; break;
  case FORM_KV_LATENT: spec->shape.cols = m->kv_lora_rank, spec->row_cut = SF_CUT_SEQUENCE; break;
  case FORM_KV_DOWN: spec->shape.cols = m->kv_lora_rank + m->qk_rope_dim, spec->row_cut = SF_CUT_SEQUENCE; break;
  case FORM_KV_UP: spec->shape.cols = m->heads * (2 * m->head_dim - m->qk_rope_dim), spec->col_cut = SF_CUT_EVEN; break;
  case FORM_FC1:
  case FORM_SHARED_FC1:
    spec->shape.cols = (swiglu ? 2 : 1) * (form == FORM_FC1 ? m->ffn : c->moe.shared_ffn);
    spec->col_cut = swiglu ? SF_CUT_GATE_UP : SF_CUT_EVEN;
    break;
  case FORM_FFN:
  case FORM_SHARED_FFN: spec->shape.cols = form == FORM_FFN ? m->ffn : c->moe.shared_ffn, spec->col_cut = SF_CUT_EVEN; break;
  case FORM_LOGITS: spec->shape.cols = m->vocab_padded, spec->col_cut = SF_CUT_EVEN; break;
  case FORM_TOKEN_LOSS:
    spec->shape = (struct sf_shape){1, tokens}, spec->promised = SF_F32;
    spec->row_cut = SF_CUT_NONE, spec->col_cut = SF_CUT_TOKENS;
    break;
  case FORM_SCORES: spec->shape.cols = c->moe.experts, spec->row_cut = SF_CUT_SEQUENCE, spec->promised = SF_F32; break;
  case FORM_AUX_LOSSES:
    spec->shape = (struct sf_shape){aux_loss_count(c), 1}, spec->promised = SF_F32;
    spec->row_cut = SF_CUT_NONE;
    break;
  case FORM_SLOTS: spec->shape.cols = c->moe.topk * m->hidden, spec->row_cut = SF_CUT_SEQUENCE; break;
  case FORM_GATHERED:
  case FORM_ABSENT: break;
  }
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
  const enum form form = kind == SF_KIND_ACT ? FORMS[module->cls].act : FORMS[module->cls].act_grad;
  if (form == FORM_ABSENT) return false;
  if (id.call > 1 || (id.call == 1 && !crosses_stages(catalog, module, kind))) return false;
  if (kind == SF_KIND_ACT_GRAD && id.pass != SF_PASS_BWD) return false;
  const bool again = id.pass == SF_PASS_RECOMPUTE && id.call == 0 && module->layer >= 0 && module->layer < catalog->logical.model.layers;
  if (kind == SF_KIND_ACT && id.pass != SF_PASS_FWD && !again) return false;
  spec_of_form(spec, &catalog->logical, form);
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
