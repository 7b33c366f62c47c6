/* Collects tensors that may have replaced a tensor: values of other steps, microbatches and layers, summands, and values that a single rank
 * computes. */
#include "oracles/diagnose/diagnose_related.h"

#include "harness/tensor/consistent.h"
#include "oracles/noise/norms.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void *sf_related_alloc(struct sf_related_list *list, size_t size_bytes) {
  void *memory = sf_arena_alloc(list->arena, size_bytes);
  if (memory == NULL) list->status = SF_ENOMEM;
  return memory;
}

struct sf_diagnosis_related *sf_related_add(struct sf_related_list *list, enum sf_relation relation, struct sf_shape shape, const float *x,
                                            const char *name) {
  if (list->count == SF_RELATED_MAX || x == NULL) return NULL;
  struct sf_diagnosis_related *r = &list->at[list->count++];
  *r = (struct sf_diagnosis_related){.relation = relation, .cls = SF_DIAGNOSIS_STALE, .shape = shape, .x = x, .rank = -1};
  snprintf(r->name, sizeof r->name, "%s", name);
  return r;
}

void sf_related_add_stale(struct sf_related_list *list, struct sf_shape shape, const float *x, const char *name) {
  sf_related_add(list, SF_RELATED_STALE, shape, x, name);
}

/* --- tensors of the case --------------------------------------------------------------------------------------- */

/* The value that modules read after this trace point: the tensor that isolated mode writes there, the candidate's own, or the
 * reference's. */
static const float *value_of(struct sf_related_list *list, const struct sf_expected *e) {
  const bool isolated = list->collector->c.mode == SF_MODE_ISOLATED;
  const struct sf_slot *slot = sf_slot_at(list->collector, e->ordinal, SF_SLOT_FIRST);
  if (list->collector->is_anchored && sf_slot_is_whole(slot)) return slot->merged;
  if (!isolated || (e->id.kind != SF_KIND_ACT && e->id.kind != SF_KIND_ACT_GRAD && e->id.kind != SF_KIND_WGRAD)) return e->x;
  const int64_t count = e->spec.shape.rows * e->spec.shape.cols;
  float *x = sf_related_alloc(list, (size_t)count * sizeof *x);
  if (x == NULL) return NULL;
  const struct sf_fill fill = sf_fill_for_trace(list->collector->catalog, e->id);
  sf_fill_range(x, &fill, 0, count);
  return x;
}

/* The reference's tensor of a module or parameter in the same step and microbatch; NULL when there is none. */
static const struct sf_expected *find(const struct sf_collector *collector, enum sf_kind kind, struct sf_trace_id like, int32_t subject) {
  for (int32_t i = 0; i < collector->count && subject >= 0; i++) {
    const struct sf_expected *e = sf_slot_at(collector, i, SF_SLOT_FIRST)->expected;
    if (e->id.kind == kind && e->id.subject == subject && e->id.step == like.step && e->id.microbatch == like.microbatch && e->id.call == 0)
      return e;
  }
  return NULL;
}

const struct sf_expected *sf_related_of_step(const struct sf_collector *collector, enum sf_kind kind, int32_t subject, int32_t step) {
  const struct sf_trace_id id = {.step = (uint16_t)step, .pass = SF_PASS_STEP, .kind = (uint8_t)kind, .subject = subject};
  return sf_expectations_find(collector->expectations, id);
}

const float *sf_related_value(struct sf_related_list *list, enum sf_kind kind, struct sf_trace_id like, enum sf_module_class cls,
                              int32_t layer) {
  const struct sf_expected *e = find(list->collector, kind, like, sf_catalog_module(list->collector->catalog, cls, layer));
  return e != NULL ? value_of(list, e) : NULL;
}

const float *sf_related_weight(struct sf_related_list *list, int32_t param, int32_t step) {
  const struct sf_collector *collector = list->collector;
  if (param < 0) return NULL;
  if (collector->c.mode == SF_MODE_E2E) {
    const struct sf_trace_id like = {.step = (uint16_t)step};
    const struct sf_expected *e = find(collector, SF_KIND_PARAM, like, param);
    return e != NULL ? value_of(list, e) : NULL;
  }
  const struct sf_shape shape = collector->catalog->params[param].shape;
  float *x = sf_related_alloc(list, (size_t)(shape.rows * shape.cols) * sizeof *x);
  if (x == NULL) return NULL;
  const struct sf_fill fill = sf_fill_for_param(collector->catalog, param, step);
  sf_fill_range(x, &fill, 0, shape.rows * shape.cols);
  sf_round_array(x, shape.rows * shape.cols, sf_case_storage(&collector->c));
  return x;
}

/* --- stale ----------------------------------------------------------------------------------------------------- */

static const struct sf_module *module_of(const struct sf_collector *collector, const struct sf_expected *e) {
  return &collector->catalog->modules[e->spec.module];
}

/* Whether two tensors have the same place in the model: the same parameter or module, or its counterpart in another layer. */
static bool same_place(const struct sf_collector *collector, const struct sf_expected *a, const struct sf_expected *b, bool other_layers) {
  if (a->id.kind != b->id.kind || a->spec.shape.rows != b->spec.shape.rows || a->spec.shape.cols != b->spec.shape.cols) return false;
  if (a->id.subject == b->id.subject) return true;
  if (!other_layers || a->id.kind == SF_KIND_SCALAR || module_of(collector, a)->cls != module_of(collector, b)->cls) return false;
  if (a->id.kind == SF_KIND_ACT || a->id.kind == SF_KIND_ACT_GRAD) return true;
  const struct sf_param *p = &collector->catalog->params[a->id.subject], *q = &collector->catalog->params[b->id.subject];
  return strcmp(strrchr(p->name, '.'), strrchr(q->name, '.')) == 0; /* weight with weight, bias with bias */
}

static void collect_stale(struct sf_related_list *list, const struct sf_slot *slot) {
  const struct sf_collector *collector = list->collector;
  const struct sf_expected *own = slot->expected;
  for (int32_t i = 0; i < collector->count; i++) {
    const struct sf_expected *e = sf_slot_at(collector, i, SF_SLOT_FIRST)->expected;
    if (e == own || !same_place(collector, own, e, true)) continue;
    const bool same_layer = e->id.subject == own->id.subject;
    if (!same_layer && (e->id.step != own->id.step || e->id.microbatch != own->id.microbatch)) continue;
    char name[96] = "the tied weight's other use";
    const char *cause = NULL;
    if (!same_layer) {
      snprintf(name, sizeof name, "layer %d in place of layer %d", module_of(collector, e)->layer, module_of(collector, own)->layer);
      cause = "another layer";
    } else if (e->id.step != own->id.step) {
      snprintf(name, sizeof name, "step %d", e->id.step);
      cause = "another step";
    } else if (e->id.microbatch != own->id.microbatch) {
      snprintf(name, sizeof name, "microbatch %d", e->id.microbatch);
      cause = "another microbatch";
    }
    struct sf_diagnosis_related *r =
        sf_related_add(list, SF_RELATED_STALE, e->spec.shape, slot->phase == SF_SLOT_RECEIVED ? value_of(list, e) : e->x, name);
    if (r != NULL) r->cause = cause;
    if (r != NULL && !same_layer) r->cls = SF_DIAGNOSIS_SHIFTED;
  }
}

/* The residual stream that layer `layer` gets. */
static const float *stream_into(struct sf_related_list *list, struct sf_trace_id like, int32_t layer) {
  if (layer > 0) return sf_related_value(list, SF_KIND_ACT, like, SF_MODULE_MLP_BDA, layer - 1);
  const float *x = sf_related_value(list, SF_KIND_ACT, like, SF_MODULE_EMBEDDING, -1);
  return x != NULL ? x : sf_related_value(list, SF_KIND_ACT, like, SF_MODULE_WORD_EMBEDDINGS, -1);
}

static const float *norm_of(struct sf_related_list *list, const float *x, const struct sf_expected *own, int32_t layer) {
  const struct sf_catalog *catalog = list->collector->catalog;
  const struct sf_shape shape = own->spec.shape;
  const float *weight = sf_related_weight(list, sf_catalog_param(catalog, SF_MODULE_INPUT_LAYERNORM, layer, 0), own->id.step);
  const float *bias = sf_related_weight(list, sf_catalog_param(catalog, SF_MODULE_INPUT_LAYERNORM, layer, 1), own->id.step);
  float *out = sf_related_alloc(list, (size_t)(shape.rows * shape.cols) * sizeof *out);
  if (x == NULL || weight == NULL || out == NULL) return NULL;
  static const double EPSILON = 1e-5; /* part of the logical function */
  for (int64_t r = 0; r < shape.rows; r++) {
    double mean = 0, squares = 0;
    for (int64_t k = 0; k < shape.cols && list->collector->c.model.norm == SF_NORM_LAYER; k++)
      mean += (double)x[r * shape.cols + k] / (double)shape.cols;
    for (int64_t k = 0; k < shape.cols; k++) squares += ((double)x[r * shape.cols + k] - mean) * ((double)x[r * shape.cols + k] - mean);
    const double rstd = 1 / sqrt(squares / (double)shape.cols + EPSILON);
    for (int64_t k = 0; k < shape.cols; k++)
      out[r * shape.cols + k] =
          sf_round((float)(((double)x[r * shape.cols + k] - mean) * rstd * (double)weight[k] + (bias != NULL ? (double)bias[k] : 0.0)),
                   own->spec.promised);
  }
  return out;
}

/* Collects the outputs of a layer's first module for inputs of earlier layers. */
static void collect_stale_inputs(struct sf_related_list *list, const struct sf_slot *slot) {
  const struct sf_expected *own = slot->expected;
  const struct sf_module *module = module_of(list->collector, own);
  if (own->id.kind != SF_KIND_ACT || module->cls != SF_MODULE_INPUT_LAYERNORM) return;
  for (int32_t layer = 0; layer < module->layer && list->status == SF_OK; layer++) {
    char name[96];
    snprintf(name, sizeof name, "layer %d's input, normalised in its place", layer);
    struct sf_diagnosis_related *r =
        sf_related_add(list, SF_RELATED_STALE, own->spec.shape, norm_of(list, stream_into(list, own->id, layer), own, module->layer), name);
    if (r != NULL) r->cause = "another layer's input";
  }
}

/* --- summands -------------------------------------------------------------------------------------------------- */

/* What a gradient of the weight's is of, where the weight has several uses. */
static void name_use(char *out, size_t out_size, const struct sf_collector *collector, const struct sf_expected *own, int32_t call) {
  const bool is_embedding = module_of(collector, own)->cls == SF_MODULE_WORD_EMBEDDINGS;
  const bool is_head = call % SF_CALLS_PER_DEPTH == SF_CALL_TIED_HEAD % SF_CALLS_PER_DEPTH || (call == 0 && !is_embedding);
  const char *const what = is_head ? "output layer" : "embedding";
  const int32_t depth = (call - SF_CALL_MTP_EMBEDDING) / SF_CALLS_PER_DEPTH;
  if (call < SF_CALL_MTP_EMBEDDING)
    snprintf(out, out_size, "%s", what);
  else
    snprintf(out, out_size, "%s of the prediction %d ahead", what, depth + 1);
}

static void collect_summands(struct sf_related_list *list, const struct sf_slot *slot) {
  const struct sf_collector *collector = list->collector;
  const struct sf_expected *own = slot->expected;
  if (own->id.kind != SF_KIND_MAIN_GRAD) return;
  const bool per_token = collector->c.train.loss_norm == SF_LOSS_PER_TOKEN;
  for (int32_t i = 0; i < collector->count; i++) {
    const struct sf_expected *e = sf_slot_at(collector, i, SF_SLOT_FIRST)->expected;
    if (e->id.kind != SF_KIND_WGRAD || e->id.subject != own->id.subject || e->id.step != own->id.step) continue;
    char use[96];
    name_use(use, sizeof use, collector, own, e->id.call);
    struct sf_diagnosis_related *r = sf_related_add(list, SF_RELATED_SUMMAND, e->spec.shape, value_of(list, e), use);
    if (r == NULL) return;
    r->weight = per_token ? 1 / (double)sf_data_step_tokens(&collector->c, own->id.step) : 1;
    r->microbatch = e->id.microbatch;
    r->dp = (int32_t)(e->id.microbatch % list->of->c.layout.dp);
    r->turn = (int32_t)(e->id.microbatch / list->of->c.layout.dp);
    r->call = e->id.call;
  }
}

const float *sf_related_slice(struct sf_related_list *list, const struct sf_slice_product *p, const struct sf_expected *own,
                              int64_t tp_index) {
  const struct sf_shape shape = own->spec.shape;
  const struct sf_dim_map slice = sf_canonical_dim(&list->of->c, p->cut, p->contraction, tp_index, 0);
  float *out = sf_related_alloc(list, (size_t)(shape.rows * shape.cols) * sizeof *out);
  if (out == NULL) return NULL;
  for (int64_t r = 0; r < shape.rows; r++)
    for (int64_t k = 0; k < shape.cols; k++) {
      double sum = 0;
      for (int32_t i = 0; i < slice.count; i++)
        for (int64_t c = slice.runs[i].start; c < slice.runs[i].start + slice.runs[i].len; c++)
          sum += (double)p->left[r * p->contraction + c] *
                 (double)(p->transposed ? p->weight[k * p->contraction + c] : p->weight[c * shape.cols + k]);
      out[r * shape.cols + k] = sf_round((float)sum, own->spec.promised);
    }
  return out;
}

/* The columns of a gradient in the QKV layout that come from the up projection of queries (or of keys and values). NULL: the gradient is
 * not one of these. */
static const float *latent_grad(struct sf_related_list *list, const struct sf_expected *own, const struct sf_module *m, int64_t *width) {
  const struct sf_model *model = &list->collector->c.model;
  const int64_t d = model->head_dim, e = model->qk_rope_dim, tokens = model->seq * list->collector->c.train.microbatch_size;
  const bool of_keys = m->cls == SF_MODULE_LINEAR_KV_UP;
  if (own->id.kind != SF_KIND_ACT_GRAD || (!of_keys && m->cls != SF_MODULE_LINEAR_Q && m->cls != SF_MODULE_LINEAR_Q_UP)) return NULL;
  const int64_t each = of_keys ? 2 * d - e : d;
  const float *fused = sf_related_value(list, SF_KIND_ACT_GRAD, own->id, SF_MODULE_ROTARY, m->layer);
  float *out = sf_related_alloc(list, (size_t)(tokens * model->heads * each) * sizeof *out);
  if (fused == NULL || out == NULL) return NULL;
  *width = model->heads * each;
  for (int64_t head = 0; head < tokens * model->heads; head++) {
    const float *from = fused + head * 3 * d;
    float *to = out + head * each;
    memcpy(to, of_keys ? from + d : from, (size_t)(of_keys ? d - e : d) * sizeof *to);
    if (of_keys) memcpy(to + d - e, from + 2 * d, (size_t)d * sizeof *to);
  }
  return out;
}

bool sf_related_product(struct sf_slice_product *p, struct sf_related_list *list, const struct sf_expected *own) {
  const struct sf_catalog *catalog = list->collector->catalog;
  const struct sf_module *m = module_of(list->collector, own);
  const bool act = own->id.kind == SF_KIND_ACT, rotary = catalog->logical.model.positions == SF_POS_ROTARY;
  const enum sf_module_class behind_qkv = catalog->logical.model.qk_norm ? SF_MODULE_QK_NORM
                                          : rotary                       ? SF_MODULE_ROTARY
                                                                         : SF_MODULE_CORE_ATTENTION;
  p->left = latent_grad(list, own, m, &p->contraction);
  if (p->left != NULL) {
    p->cut = SF_CUT_EVEN;
    p->transposed = false;
    p->weight = sf_related_weight(list, sf_catalog_param(catalog, m->cls, m->layer, 0), own->id.step);
    return p->weight != NULL;
  }
  if (!sf_module_is(m->cls, act ? SF_TRAIT_ROW : SF_TRAIT_COLUMN) || (!act && own->id.kind != SF_KIND_ACT_GRAD)) return false;
  const struct sf_module_row *row = &sf_modules[m->cls];
  const enum sf_module_class from = act ? row->input : m->cls == SF_MODULE_LINEAR_QKV ? behind_qkv : row->reader;
  const struct sf_expected *read =
      find(list->collector, act ? SF_KIND_ACT : SF_KIND_ACT_GRAD, own->id, sf_catalog_module(catalog, from, m->layer));
  if (read == NULL) return false;
  const bool is_head = row->act.cols == SF_SIZE_VOCAB;
  p->left = value_of(list, read);
  p->contraction = read->spec.shape.cols;
  p->cut = read->spec.col_cut;
  p->transposed = act;
  const enum sf_module_class head = catalog->logical.model.tied ? SF_MODULE_WORD_EMBEDDINGS : SF_MODULE_OUTPUT_LAYER;
  p->weight = sf_related_weight(list, sf_catalog_param(catalog, is_head ? head : m->cls, is_head ? -1 : m->layer, 0), own->id.step);
  return p->left != NULL && p->weight != NULL;
}

/* --- terms ----------------------------------------------------------------------------------------------------- */

static void collect_bias(struct sf_related_list *list, const struct sf_expected *own, const struct sf_module *module) {
  const struct sf_catalog *catalog = list->collector->catalog;
  const bool is_linear = sf_module_is(module->cls, SF_TRAIT_LINEAR);
  const int32_t bias = is_linear ? sf_catalog_param(catalog, module->cls, module->layer, 1) : -1;
  if (bias < 0) return;
  sf_related_add(list, SF_RELATED_TERM, catalog->params[bias].shape, sf_related_weight(list, bias, own->id.step), "the bias");
}

/* The shared expert's output and the sum that it is added to. */
static void collect_experts(struct sf_related_list *list, const struct sf_expected *own, const struct sf_module *module) {
  if (module->cls != SF_MODULE_SHARED_ADD) return;
  const float *routed = sf_related_value(list, SF_KIND_ACT, own->id, SF_MODULE_COMBINE, module->layer);
  const float *shared = sf_related_value(list, SF_KIND_ACT, own->id, SF_MODULE_SHARED_FC2, module->layer);
  if (routed != NULL) sf_related_add(list, SF_RELATED_TERM, own->spec.shape, routed, "the experts' sum");
  if (shared != NULL) sf_related_add(list, SF_RELATED_TERM, own->spec.shape, shared, "the shared expert");
}

/* The other term of a residual add, beside its branch, which ends with the module before it. */
static void collect_residual(struct sf_related_list *list, const struct sf_expected *own, const struct sf_module *module) {
  const bool crossed = module->cls == SF_MODULE_MLP_BDA && list->collector->c.model.memory_seq > 0;
  if (!sf_module_is(module->cls, SF_TRAIT_RESIDUAL_ADD) || module->layer < 0) return;
  const float *stream =
      module->cls == SF_MODULE_SELF_ATTN_BDA
          ? stream_into(list, own->id, module->layer)
          : sf_related_value(list, SF_KIND_ACT, own->id, crossed ? SF_MODULE_CROSS_ATTN_BDA : SF_MODULE_SELF_ATTN_BDA, module->layer);
  const float *branch = sf_related_value(list, SF_KIND_ACT, own->id, module[-1].cls, module->layer);
  if (stream != NULL) sf_related_add(list, SF_RELATED_TERM, own->spec.shape, stream, "the residual stream");
  if (branch != NULL) sf_related_add(list, SF_RELATED_TERM, own->spec.shape, branch, "the branch");
}

void sf_related_collect(struct sf_related_list *list, const struct sf_slot *slot) {
  list->of = slot->of;
  const struct sf_expected *own = slot->expected;
  const struct sf_module *module = module_of(list->collector, own);
  collect_summands(list, slot);
  if (own->id.kind == SF_KIND_ACT && slot->phase == SF_SLOT_FIRST) {
    collect_bias(list, own, module);
    collect_residual(list, own, module);
    collect_experts(list, own, module);
  }
  if (own->id.kind == SF_KIND_SCALAR)
    sf_related_collect_scalar(list, own);
  else
    collect_stale(list, slot);
  collect_stale_inputs(list, slot);
  sf_related_collect_reload(list, slot);
  sf_related_collect_adam(list, slot);
  if (slot->phase == SF_SLOT_FIRST) sf_variants_collect(list, slot);
  if (slot->phase != SF_SLOT_RECEIVED) sf_supposed_collect(list, slot);
}
