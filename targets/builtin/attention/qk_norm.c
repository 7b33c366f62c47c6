#include "targets/builtin/attention/qk_norm.h"

#include "targets/builtin/parallel/matrix.h"
#include "targets/plugin/plugged_layer.h"

void sf_qk_norm_create(struct sf_qk_norm *layer, struct sf_rank_run *run, int32_t index, int64_t groups, int64_t queries_per_group,
                       const struct sf_group *tp) {
  *layer = (struct sf_qk_norm){.groups = groups,
                               .queries_per_group = queries_per_group,
                               .head_dim = run->c->model.head_dim,
                               .norm = (enum sf_norm)run->c->model.norm,
                               .module = sf_rank_module(run, SF_MODULE_QK_NORM, index)};
  for (int part = 0; part < SF_QK_PARTS; part++)
    layer->weight[part] = sf_parameter_create_whole(run, SF_MODULE_QK_NORM, index, part, tp->size > 1);
  for (int part = 0; part < SF_QK_PARTS; part++)
    layer->bias[part] = sf_parameter_create_whole(run, SF_MODULE_QK_NORM, index, SF_QK_PARTS + part, tp->size > 1);
}

/* A part's heads of a group are contiguous columns of the fused projection: `count` of them from column `first`. */
struct columns {
  int64_t first, count;
};

static struct columns columns_of(const struct sf_qk_norm *layer, int64_t group, int part) {
  const int64_t d = layer->head_dim, queries = layer->queries_per_group, first = group * (queries + 2) * d;
  return part == SF_QK_QUERIES ? (struct columns){first, queries * d} : (struct columns){first + queries * d, d};
}

static int64_t width_of(const struct sf_qk_norm *layer) { return layer->groups * (layer->queries_per_group + 2) * layer->head_dim; }

static int64_t heads_of(const struct sf_rank_run *run, const struct sf_qk_norm *layer, int part) {
  return run->tokens * layer->groups * (part == SF_QK_QUERIES ? layer->queries_per_group : 1);
}

/* rows: the part's heads one after another, [heads x d]. */
static void pack(const struct sf_rank_run *run, const struct sf_qk_norm *layer, int part, float *rows, const float *fused) {
  for (int64_t group = 0; group < layer->groups; group++) {
    const struct columns at = columns_of(layer, group, part);
    sf_copy_columns(rows + group * at.count, layer->groups * at.count, fused + at.first, width_of(layer), run->tokens, at.count);
  }
}

static void unpack(const struct sf_rank_run *run, const struct sf_qk_norm *layer, int part, float *fused, const float *rows) {
  for (int64_t group = 0; group < layer->groups; group++) {
    const struct columns at = columns_of(layer, group, part);
    sf_copy_columns(fused + at.first, width_of(layer), rows + group * at.count, layer->groups * at.count, run->tokens, at.count);
  }
}

float *sf_qk_norm_forward(struct sf_rank_run *run, const struct sf_qk_norm *layer, const float *x, const struct sf_shard_map *map,
                          float **stats) {
  *stats = NULL;
  if (layer->plugged != NULL) return sf_plugged_forward(run, layer->plugged, x);
  struct sf_device *dev = run->env->device;
  const int64_t d = layer->head_dim, queries = heads_of(run, layer, SF_QK_QUERIES);
  float *y = sf_buffers_copy(&run->acts, x, run->tokens * width_of(layer));
  float *rows = sf_buffers_take(&run->acts, queries * d), *normed = sf_buffers_take(&run->acts, queries * d);
  *stats = sf_buffers_take(&run->acts, 2 * (queries + heads_of(run, layer, SF_QK_KEYS)));
  for (int part = 0; part < SF_QK_PARTS; part++) {
    const float *bias = layer->bias[part] != NULL ? layer->bias[part]->model : NULL;
    float *part_stats = *stats + (part == SF_QK_KEYS ? 2 * queries : 0);
    pack(run, layer, part, rows, x);
    dev->ops->norm_fwd(dev, normed, part_stats, rows, layer->weight[part]->model, bias, heads_of(run, layer, part), d, layer->norm,
                       run->dtype);
    unpack(run, layer, part, y, normed);
  }
  sf_buffers_give(&run->acts, rows);
  sf_buffers_give(&run->acts, normed);
  sf_trace_act(run, layer->module, map, y);
  return y;
}

static float *wanted(struct sf_parameter *param, float *at) { return param != NULL && param->trainable ? at : NULL; }

float *sf_qk_norm_backward(struct sf_rank_run *run, const struct sf_qk_norm *layer, float *grad, const float *x,
                           const struct sf_shard_map *map, const float *stats) {
  if (layer->plugged != NULL) {
    float *plugged_grad = sf_plugged_backward(run, layer->plugged, grad, x);
    sf_buffers_give(&run->acts, grad);
    return plugged_grad;
  }
  struct sf_device *dev = run->env->device;
  const int64_t d = layer->head_dim, queries = heads_of(run, layer, SF_QK_QUERIES);
  float *dx = sf_buffers_copy(&run->acts, grad, run->tokens * width_of(layer)),
        *sums = run->params.scratch; /* of q.weight, k.weight, q.bias, k.bias */
  float *rows[3];
  for (int i = 0; i < 3; i++) rows[i] = sf_buffers_take(&run->acts, queries * d);
  memset(sums, 0, (size_t)(2 * SF_QK_PARTS * d) * sizeof *sums);
  for (int part = 0; part < SF_QK_PARTS; part++) {
    float *dw = wanted(layer->weight[part], sums + part * d), *db = wanted(layer->bias[part], sums + (SF_QK_PARTS + part) * d);
    pack(run, layer, part, rows[0], grad);
    pack(run, layer, part, rows[1], x);
    dev->ops->norm_bwd(dev, rows[2], dw, db, rows[0], rows[1], stats + (part == SF_QK_KEYS ? 2 * queries : 0), layer->weight[part]->model,
                       heads_of(run, layer, part), d, layer->norm, run->dtype);
    unpack(run, layer, part, dx, rows[2]);
  }
  for (int i = 0; i < 3; i++) sf_buffers_give(&run->acts, rows[i]);
  sf_buffers_give(&run->acts, grad);
  sf_trace_act_grad(run, layer->module, map, dx);
  for (int i = 0; i < 2 * SF_QK_PARTS; i++) {
    struct sf_parameter *param = i < SF_QK_PARTS ? layer->weight[i] : layer->bias[i - SF_QK_PARTS];
    if (wanted(param, sums) != NULL) sf_parameter_accumulate(run, param, sums + i * d, 0);
  }
  return dx;
}
