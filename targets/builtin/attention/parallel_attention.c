#include "targets/builtin/attention/parallel_attention.h"

#include "targets/builtin/attention/core_attention.h"
#include "targets/builtin/attention/rotary.h"
#include "targets/builtin/parallel/matrix.h"
#include "targets/plugin/plugged_layer.h"

/* Rows of the fused weight that rank tp->index holds; *kv: how many of them, at the end, are a replicated key and value head. */
static struct sf_dim_map qkv_dim(const struct sf_model *m, const struct sf_group *tp, const struct sf_group *kv_rep, int64_t *kv) {
  const int64_t d = m->head_dim, queries = m->heads / m->kv_heads, group_width = (queries + 2) * d;
  struct sf_dim_map dim = {0};
  *kv = 0;
  if (kv_rep->size == 1) {
    const int64_t groups = m->kv_heads / tp->size;
    sf_dim_map_append(&dim, tp->index * groups * group_width, groups * group_width, false);
    return dim;
  }
  const int64_t group_first = tp->index / kv_rep->size * group_width, held = queries / kv_rep->size * d;
  *kv = 2 * d;
  sf_dim_map_append(&dim, group_first + kv_rep->index * held, held, false);
  sf_dim_map_append(&dim, group_first + queries * d, *kv, false);
  return dim;
}

/* The last run of the map: replicated key and value, partial in every gradient. */
static struct sf_dim_map with_partial_kv(const struct sf_dim_map *dim, int64_t kv) {
  struct sf_dim_map out = {0};
  if (kv == 0) return *dim;
  const int64_t queries = sf_dim_map_length(dim) - kv;
  const struct sf_run *last = &dim->runs[dim->count - 1];
  sf_dim_map_append(&out, dim->runs[0].start, queries, false);
  sf_dim_map_append(&out, last->start + last->len - kv, kv, true);
  return out;
}

static void mark_kv(struct sf_parameter *param, const struct sf_dim_map *grad_dim, int64_t kv, bool is_weight, int64_t hidden) {
  param->fused = true;
  if (kv == 0) return;
  const int64_t row = is_weight ? hidden : 1;
  param->kv_count = kv * row;
  param->kv_first = param->count - param->kv_count;
  if (is_weight)
    param->wgrad_map.rows = *grad_dim;
  else
    param->wgrad_map.cols = *grad_dim;
}

static void create_sinks(struct sf_parallel_attention *attention, struct sf_rank_run *run, int32_t layer, const struct sf_group *tp) {
  const struct sf_parameter_cut cut = {sf_dim_map_whole(1), sf_dim_map_part(run->c->model.heads, tp->size, tp->index)};
  attention->window = run->c->model.window;
  attention->sinks = sf_parameter_create(run, SF_MODULE_CORE_ATTENTION, layer, 0, &cut);
}

static void add_head_attributes(struct sf_plugged *plugged, const struct sf_parallel_attention *attention) {
  sf_plugged_add_attribute(plugged, "head_dim", attention->head_dim);
  sf_plugged_add_attribute(plugged, "query_heads", attention->groups * attention->queries_per_group);
  sf_plugged_add_attribute(plugged, "kv_heads", attention->groups);
}

static void plug_qk_norm(struct sf_parallel_attention *attention, struct sf_rank_run *run, int32_t layer) {
  struct sf_qk_norm *norm = &attention->qk_norm;
  struct sf_plugged *plugged = norm->plugged = sf_plugged_create(run, SF_MODULE_QK_NORM, layer, false);
  if (plugged == NULL) return;
  plugged->in_map = plugged->out_map = &attention->linear_qkv.out_map;
  plugged->in_grad_map = plugged->out_grad_map = &attention->qkv_grad_map;
  add_head_attributes(plugged, attention);
  sf_plugged_add_parameter(plugged, "q.weight", norm->weight[SF_QK_QUERIES], 0);
  sf_plugged_add_parameter(plugged, "k.weight", norm->weight[SF_QK_KEYS], 0);
  sf_plugged_add_parameter(plugged, "q.bias", norm->bias[SF_QK_QUERIES], 0);
  sf_plugged_add_parameter(plugged, "k.bias", norm->bias[SF_QK_KEYS], 0);
}

static void plug(struct sf_parallel_attention *attention, struct sf_rank_run *run, int32_t layer) {
  if (attention->has_qk_norm) plug_qk_norm(attention, run, layer);
  struct sf_plugged *plugged = attention->plugged = sf_plugged_create(run, SF_MODULE_CORE_ATTENTION, layer, false);
  if (plugged == NULL) return;
  plugged->in_map = attention->latent != NULL ? &attention->latent->map : &attention->linear_qkv.out_map;
  plugged->in_grad_map = &attention->qkv_grad_map;
  plugged->out_map = &attention->linear_proj.in_map;
  plugged->has_documents = true;
  add_head_attributes(plugged, attention);
  sf_plugged_add_attribute(plugged, "window", attention->window);
  sf_plugged_add_parameter(plugged, "softmax_offset", attention->sinks, 0);
}

void sf_parallel_attention_create(struct sf_parallel_attention *attention, struct sf_rank_run *run, int32_t layer, const float *cos_sin,
                                  const struct sf_group *tp, const struct sf_group *kv_rep) {
  const struct sf_model *m = &run->c->model;
  int64_t kv;
  const struct sf_dim_map dim = qkv_dim(m, tp, kv_rep, &kv), grad_dim = with_partial_kv(&dim, kv);
  attention->groups = kv_rep->size > 1 ? 1 : m->kv_heads / tp->size;
  attention->queries_per_group = m->heads / m->kv_heads / kv_rep->size;
  attention->head_dim = m->head_dim;
  attention->cos_sin = cos_sin;
  attention->width = attention->groups * (attention->queries_per_group + 2) * m->head_dim;
  attention->module_rotary = cos_sin != NULL ? sf_rank_module(run, SF_MODULE_ROTARY, layer) : -1;
  attention->module_core = sf_rank_module(run, SF_MODULE_CORE_ATTENTION, layer);
  attention->latent = NULL;
  if (m->kv_lora_rank > 0) {
    attention->latent = sf_rank_alloc(run->env, sizeof *attention->latent);
    sf_latent_attention_create(attention->latent, run, layer, cos_sin, tp);
  } else {
    sf_linear_create(&attention->linear_qkv, run, SF_LINEAR_COLUMN, SF_MODULE_LINEAR_QKV, layer, tp, &dim);
    mark_kv(attention->linear_qkv.weight, &grad_dim, kv, true, run->hidden);
    if (attention->linear_qkv.bias != NULL) mark_kv(attention->linear_qkv.bias, &grad_dim, kv, false, run->hidden);
  }
  attention->has_qk_norm = m->qk_norm;
  if (m->qk_norm) sf_qk_norm_create(&attention->qk_norm, run, layer, attention->groups, attention->queries_per_group, tp);
  create_sinks(attention, run, layer, tp);
  attention->trade_counts = NULL;
  if (run->c->layout.cp_comm == SF_CP_A2A)
    attention->trade_counts = sf_rank_alloc(run->env, (size_t)run->parallel.cp.size * sizeof *attention->trade_counts);
  attention->qkv_grad_map = (struct sf_shard_map){.rows = run->map_gathered.rows, .cols = grad_dim};
  sf_linear_create(&attention->linear_proj, run, SF_LINEAR_ROW, SF_MODULE_LINEAR_PROJ, layer, tp, NULL);
  plug(attention, run, layer);
}

/* Rotates queries and keys, copies values; takes x. */
static float *rotate(struct sf_rank_run *run, const struct sf_parallel_attention *attention, float *x, bool inverse) {
  const int64_t d = attention->head_dim, width = attention->width, rotated = attention->queries_per_group + 1;
  float *y = sf_buffers_take(&run->acts, run->tokens * width);
  for (int64_t group = 0; group < attention->groups; group++) {
    const int64_t first = group * (rotated + 1) * d;
    for (int64_t head = 0; head < rotated; head++)
      sf_rotary_apply(run, y + first + head * d, width, x + first + head * d, width, attention->cos_sin, d, inverse);
    const int64_t value = first + rotated * d;
    sf_copy_columns(y + value, width, x + value, width, run->tokens, d);
  }
  sf_buffers_give(&run->acts, x);
  return y;
}

/* acts->qkv: queries and keys, rotated, and values, of one projection. */
static void fused_forward(struct sf_rank_run *run, const struct sf_parallel_attention *attention, struct sf_attention_acts *acts,
                          float *input) {
  acts->qkv = sf_linear_forward(run, &attention->linear_qkv, input, &acts->qkv_input);
  if (attention->has_qk_norm) {
    acts->qkv_raw = acts->qkv;
    acts->qkv = sf_qk_norm_forward(run, &attention->qk_norm, acts->qkv_raw, &attention->linear_qkv.out_map, &acts->qk_stats);
  }
  if (attention->cos_sin != NULL) {
    acts->qkv = rotate(run, attention, acts->qkv, false);
    sf_trace_act(run, attention->module_rotary, &attention->linear_qkv.out_map, acts->qkv);
  }
}

float *sf_parallel_attention_forward(struct sf_rank_run *run, const struct sf_parallel_attention *attention, struct sf_attention_acts *acts,
                                     float *input) {
  if (attention->latent != NULL)
    acts->qkv = sf_latent_attention_forward(run, attention->latent, &acts->latent, input);
  else
    fused_forward(run, attention, acts, input);
  if (attention->plugged != NULL)
    acts->context = sf_plugged_forward(run, attention->plugged, acts->qkv);
  else
    sf_core_attention_forward(run, attention, acts);
  if (attention->plugged == NULL) sf_trace_act(run, attention->module_core, &attention->linear_proj.in_map, acts->context);
  return sf_linear_forward(run, &attention->linear_proj, acts->context, NULL);
}

/* dqkv: gradient of acts->qkv, taken. */
static float *fused_backward(struct sf_rank_run *run, const struct sf_parallel_attention *attention, struct sf_attention_acts *acts,
                             float *dqkv) {
  if (attention->cos_sin != NULL) {
    dqkv = rotate(run, attention, dqkv, true);
    sf_trace_act_grad(run, attention->module_rotary, &attention->qkv_grad_map, dqkv);
  }
  if (attention->has_qk_norm) {
    dqkv = sf_qk_norm_backward(run, &attention->qk_norm, dqkv, acts->qkv_raw, &attention->qkv_grad_map, acts->qk_stats);
  }
  float *input_grad = sf_linear_backward(run, &attention->linear_qkv, dqkv, acts->qkv_input);
  sf_buffers_give(&run->acts, dqkv);
  return input_grad;
}

/* Runs the backward of the core, traces its result, and adds the sinks' gradient. */
static float *core_backward(struct sf_rank_run *run, const struct sf_parallel_attention *attention, const struct sf_attention_acts *acts,
                            float *g) {
  if (attention->plugged != NULL) {
    float *plugged_grad = sf_plugged_backward(run, attention->plugged, g, acts->qkv);
    sf_buffers_give(&run->acts, g);
    return plugged_grad;
  }
  float *dqkv = sf_core_attention_backward(run, attention, acts, g);
  sf_trace_act_grad(run, attention->module_core, &attention->qkv_grad_map, dqkv);
  if (attention->sinks != NULL && attention->sinks->trainable) sf_parameter_accumulate(run, attention->sinks, run->params.scratch, 0);
  return dqkv;
}

float *sf_parallel_attention_backward(struct sf_rank_run *run, const struct sf_parallel_attention *attention,
                                      struct sf_attention_acts *acts, const float *grad) {
  float *g = sf_linear_backward(run, &attention->linear_proj, grad, acts->context);
  float *dqkv = core_backward(run, attention, acts, g);
  float *input_grad = attention->latent != NULL ? sf_latent_attention_backward(run, attention->latent, &acts->latent, dqkv)
                                                : fused_backward(run, attention, acts, dqkv);
  return input_grad;
}
