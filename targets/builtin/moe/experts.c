#include "targets/builtin/moe/experts.h"

#include "targets/builtin/parallel/matrix.h"
#include "targets/plugin/plugged_layer.h"

/* This etp rank's part of each of its experts, in `parts` pieces of the width. */
static struct sf_dim_map experts_dim(const struct sf_rank_run *run, int64_t local, int64_t parts) {
  const struct sf_parallel_state *p = &run->parallel;
  const int64_t whole = run->c->moe.ffn, part = whole / p->etp.size;
  struct sf_dim_map dim = {0};
  for (int64_t e = p->ep.index * local; e < (p->ep.index + 1) * local; e++)
    for (int64_t piece = 0; piece < parts; piece++) sf_dim_map_append(&dim, (e * parts + piece) * whole + p->etp.index * part, part, false);
  return dim;
}

static void plug(struct sf_experts *experts, struct sf_rank_run *run, int32_t layer) {
  struct sf_plugged *plugged = experts->plugged = sf_plugged_create(run, SF_MODULE_EXPERTS_FC1, layer, false);
  if (plugged == NULL) return;
  experts->plugged_map = sf_rank_alloc(run->env, sizeof *experts->plugged_map);
  experts->plugged_rows = sf_rank_alloc(run->env, (size_t)experts->local * sizeof *experts->plugged_rows);
  *experts->plugged_map = (struct sf_shard_map){.cols = sf_dim_map_whole(run->hidden)};
  plugged->first_module = plugged->last_module = -1;
  plugged->in_map = plugged->out_map = experts->plugged_map;
  plugged->expert_rows = experts->plugged_rows;
  plugged->expert_count = (int32_t)experts->local;
  plugged->capacity = experts->rows_max * run->hidden;
  sf_plugged_add_parameter(plugged, "linear_fc1.weight", experts->fc1, 0);
  sf_plugged_add_parameter(plugged, "linear_fc2.weight", experts->fc2, 0);
}

/* Before a call of the plugin. */
static void tell_rows(const struct sf_experts *experts, const struct sf_dispatch *dispatch) {
  for (int64_t e = 0; e < experts->local; e++) experts->plugged_rows[e] = dispatch->first[e + 1] - dispatch->first[e];
  experts->plugged_map->rows = sf_dim_map_whole(dispatch->first[experts->local]);
}

void sf_experts_create(struct sf_experts *experts, struct sf_rank_run *run, int32_t layer, const struct sf_token_dispatcher *dispatcher) {
  const int64_t parts = sf_case_fc1_parts(run->c), local = dispatcher->experts_local;
  const struct sf_dim_map whole = sf_dim_map_whole(run->hidden);
  const struct sf_parameter_cut fc1_cut = {experts_dim(run, local, parts), whole}, fc2_cut = {whole, experts_dim(run, local, 1)};
  *experts = (struct sf_experts){.local = local, .width = run->c->moe.ffn / run->parallel.etp.size};
  experts->fc1_width = parts * experts->width;
  experts->rows_max = dispatcher->etp.size * dispatcher->rows_max;
  experts->fc1 = sf_parameter_create(run, SF_MODULE_EXPERTS_FC1, layer, 0, &fc1_cut);
  experts->fc2 = sf_parameter_create(run, SF_MODULE_EXPERTS_FC2, layer, 0, &fc2_cut);
  experts->fc1->expert = experts->fc2->expert = true;
  plug(experts, run, layer);
}

/* Rows as they arrived -> rows by expert, and back. */
static void gather_rows(float *sorted, const float *rows, const struct sf_dispatch *dispatch, int64_t count, int64_t h) {
  for (int64_t i = 0; i < count; i++) memcpy(sorted + i * h, rows + dispatch->rows[i] * h, (size_t)h * sizeof *rows);
}

static void scatter_rows(float *rows, const float *sorted, const struct sf_dispatch *dispatch, int64_t count, int64_t h) {
  for (int64_t i = 0; i < count; i++) memcpy(rows + dispatch->rows[i] * h, sorted + i * h, (size_t)h * sizeof *rows);
}

/* The rows of expert e in x, [own x cols]. */
static struct sf_matrix rows_of(const struct sf_dispatch *dispatch, int64_t e, const float *x, int64_t cols) {
  const int64_t first = dispatch->first[e];
  return sf_matrix(x + first * cols, cols, dispatch->first[e + 1] - first, cols);
}

/* The weights of expert e: [fc1_width x h] and [h x width]. */
static struct sf_matrix fc1_of(const struct sf_experts *experts, int64_t e, int64_t h) {
  return sf_matrix(experts->fc1->model + e * experts->fc1_width * h, h, experts->fc1_width, h);
}
static struct sf_matrix fc2_of(const struct sf_experts *experts, int64_t e, int64_t h) {
  return sf_matrix(experts->fc2->model + e * experts->width, experts->local * experts->width, h, experts->width);
}

static struct sf_matrix transpose(struct sf_matrix a) { return sf_transposed(a.at, a.ld, a.rows, a.cols); }

/* out [rows x cols] = x [rows x in] W^T (backward: x W) for each expert's rows. weight_of gives W. */
static void multiply_rows(struct sf_rank_run *run, const struct sf_experts *experts, const struct sf_dispatch *dispatch, float *out,
                          const float *x, struct sf_matrix (*weight_of)(const struct sf_experts *, int64_t, int64_t), bool backward) {
  for (int64_t e = 0; e < experts->local; e++) {
    const struct sf_matrix whole = weight_of(experts, e, run->hidden), weight = backward ? whole : transpose(whole);
    const struct sf_matrix rows = rows_of(dispatch, e, x, weight.rows);
    if (rows.rows > 0) sf_multiply(run->env->device, out + dispatch->first[e] * weight.cols, weight.cols, rows, weight, 1.0f, run->dtype);
  }
}

/* acts->input -> output, both by expert; the caller's. */
static float *sorted_forward(struct sf_rank_run *run, const struct sf_experts *experts, struct sf_experts_acts *acts,
                             const struct sf_dispatch *dispatch) {
  struct sf_device *dev = run->env->device;
  const int64_t count = dispatch->first[experts->local], width = experts->width;
  acts->fc1_out = sf_buffers_take(&run->acts, experts->rows_max * experts->fc1_width);
  acts->fc2_input = sf_buffers_take(&run->acts, experts->rows_max * width);
  float *sorted = sf_buffers_take(&run->acts, experts->rows_max * run->hidden);
  multiply_rows(run, experts, dispatch, acts->fc1_out, acts->input, fc1_of, false);
  if (count > 0) dev->ops->activation_fwd[run->c->model.activation](dev, acts->fc2_input, acts->fc1_out, count, width, run->dtype);
  multiply_rows(run, experts, dispatch, sorted, acts->fc2_input, fc2_of, false);
  return sorted;
}

float *sf_experts_forward(struct sf_rank_run *run, const struct sf_experts *experts, struct sf_experts_acts *acts,
                          const struct sf_dispatch *dispatch, int64_t row_count, float *rows) {
  const int64_t h = run->hidden, count = dispatch->first[experts->local];
  acts->input = sf_buffers_take(&run->acts, experts->rows_max * h);
  gather_rows(acts->input, rows, dispatch, count, h);
  if (experts->plugged != NULL) tell_rows(experts, dispatch);
  float *sorted =
      experts->plugged != NULL ? sf_plugged_forward(run, experts->plugged, acts->input) : sorted_forward(run, experts, acts, dispatch);
  memset(rows, 0, (size_t)(row_count * h) * sizeof *rows); /* padding joins a reduction */
  scatter_rows(rows, sorted, dispatch, count, h);
  sf_buffers_give(&run->acts, sorted);
  return rows;
}

/* --- backward ----------------------------------------------------------------------------------------------------- */

/* Adds the gradient of one of the weights: grad^T input of each expert's rows. grad: of what the linear put out. Of linear_fc2, whose
 * experts stand side by side, a row goes through all of them. */
static void weight_grad(struct sf_rank_run *run, const struct sf_experts *experts, const struct sf_dispatch *dispatch,
                        struct sf_parameter *param, const float *grad, int64_t out, const float *input, int64_t in) {
  const bool side_by_side = param == experts->fc2;
  float *dw = run->params.scratch;
  if (!param->trainable) return;
  memset(dw, 0, (size_t)param->count * sizeof *dw);
  for (int64_t e = 0; e < experts->local; e++) {
    const struct sf_matrix rows = rows_of(dispatch, e, input, in), grads = rows_of(dispatch, e, grad, out);
    if (rows.rows > 0)
      sf_multiply(run->env->device, dw + e * (side_by_side ? in : out * in), side_by_side ? experts->local * in : in, transpose(grads),
                  rows, 1.0f, SF_F32);
  }
  sf_parameter_accumulate(run, param, dw, 0);
}

/* sorted: gradient of the output, taken. Returns that of the input, the caller's; both by expert. */
static float *sorted_backward(struct sf_rank_run *run, const struct sf_experts *experts, const struct sf_experts_acts *acts,
                              const struct sf_dispatch *dispatch, float *sorted) {
  struct sf_device *dev = run->env->device;
  const int64_t h = run->hidden, wide = experts->fc1_width, width = experts->width, count = dispatch->first[experts->local];
  float *fc2_input_grad = sf_buffers_take(&run->acts, experts->rows_max * width);
  float *fc1_grad = sf_buffers_take(&run->acts, experts->rows_max * wide);
  multiply_rows(run, experts, dispatch, fc2_input_grad, sorted, fc2_of, true);
  if (count > 0) dev->ops->activation_bwd[run->c->model.activation](dev, fc1_grad, fc2_input_grad, acts->fc1_out, count, width, run->dtype);
  sf_buffers_give(&run->acts, fc2_input_grad);
  weight_grad(run, experts, dispatch, experts->fc1, fc1_grad, wide, acts->input, h);
  weight_grad(run, experts, dispatch, experts->fc2, sorted, h, acts->fc2_input, width);
  multiply_rows(run, experts, dispatch, sorted, fc1_grad, fc1_of, true);
  sf_buffers_give(&run->acts, fc1_grad);
  return sorted;
}

float *sf_experts_backward(struct sf_rank_run *run, const struct sf_experts *experts, struct sf_experts_acts *acts,
                           const struct sf_dispatch *dispatch, int64_t row_count, float *grad) {
  const int64_t h = run->hidden, count = dispatch->first[experts->local];
  float *sorted = sf_buffers_take(&run->acts, experts->rows_max * h);
  gather_rows(sorted, grad, dispatch, count, h);
  if (experts->plugged != NULL) {
    tell_rows(experts, dispatch);
    float *output_grad = sorted;
    sorted = sf_plugged_backward(run, experts->plugged, output_grad, acts->input);
    sf_buffers_give(&run->acts, output_grad);
  } else {
    sorted = sorted_backward(run, experts, acts, dispatch, sorted);
  }
  memset(grad, 0, (size_t)(row_count * h) * sizeof *grad);
  scatter_rows(grad, sorted, dispatch, count, h);
  sf_buffers_give(&run->acts, sorted);
  return grad;
}
