#include "targets/builtin/parallel/fault.h"

#include <signal.h>

/* --- wrong numbers ------------------------------------------------------------------------------------------------ */

void sf_fault_softmax_bwd_no_row_sum(float *ds, const float *dp, const float *p, int64_t count, enum sf_dtype store) {
  for (int64_t i = 0; i < count; i++) ds[i] = sf_round(p[i] * dp[i], store);
}

void sf_fault_drop_foreign_rows(float *dlogits, const int32_t *labels, int64_t rows, int64_t cols, int64_t first) {
  for (int64_t row = 0; row < rows; row++)
    if (labels[row] < first || labels[row] >= first + cols) memset(dlogits + row * cols, 0, (size_t)cols * sizeof *dlogits);
}

float sf_fault_mean_of_means_factor(const struct sf_case *c, int64_t step, const float *mask) {
  double kept = 0.0;
  for (int64_t t = 0; t < c->model.seq * c->train.microbatch_size; t++) kept += mask[t];
  return (float)((double)sf_data_step_tokens(c, step) / (kept * (double)c->train.microbatches));
}

void sf_fault_normalise_blocks(float *p, int64_t rows, int64_t seq, int64_t cp) {
  const int64_t chunk = seq / (2 * cp);
  for (int64_t row = 0; row < rows; row++, p += seq)
    for (int64_t owner = 0; owner < cp; owner++) {
      float *early = p + owner * chunk, *late = p + (2 * cp - 1 - owner) * chunk;
      float sum = 0.0f;
      for (int64_t j = 0; j < chunk; j++) sum += early[j] + late[j];
      if (!(sum > 0.0f)) continue;
      for (int64_t j = 0; j < chunk; j++) early[j] /= sum, late[j] /= sum;
    }
}

/* --- wrong pieces and names --------------------------------------------------------------------------------------- */

int32_t sf_fault_default_tp_index(const struct sf_rank_env *env) {
  return sf_mesh_coord(&env->default_mesh, env->comm->rank).at[SF_AXIS_TP];
}

struct sf_dim_map sf_fault_contiguous_dim(const struct sf_dim_map *declared, int64_t size, int64_t tp_index) {
  const int64_t length = sf_dim_map_length(declared), last = size - length; /* replicated parts make the pieces larger than an even share */
  struct sf_dim_map dim = {0};
  sf_dim_map_append(&dim, tp_index * length < last ? tp_index * length : last, length, false);
  return dim;
}

int64_t sf_fault_stage_offset(const struct sf_case *c, int64_t stage, int64_t layer_count) {
  const struct sf_layout *l = &c->layout;
  const int64_t first = l->pp_first_layers;
  int64_t left = c->model.layers, stages = sf_case_stage_count(c);
  if (first > 0) left -= first, stages -= 1;
  if (first > 0 && l->pp_last_layers > 0) left -= l->pp_last_layers, stages -= 1; /* right: whether or not `first` is given */
  const int64_t middle = stages > 0 ? left / stages : 0;
  int64_t offset = stage * middle;
  if (first > 0) offset = stage == 0 ? 0 : first + (stage - 1) * middle;
  return offset + layer_count > c->model.layers ? c->model.layers - layer_count : offset;
}

bool sf_fault_is_last_of_chunk(const struct sf_case *c, int64_t count, int64_t chunk, int64_t local) {
  const int64_t pp = c->layout.pp, vpp = c->layout.vpp;
  const int64_t step = local / pp * pp * vpp + (vpp - 1 - chunk) * pp + local % pp;
  return vpp > 1 ? step + 1 >= count : local == count - 1;
}

struct sf_group sf_fault_default_tp_group(const struct sf_rank_run *run) {
  const struct sf_rank_env *env = run->env;
  if (!sf_plant_default_tp_in_stages(env->c)) return run->parallel.tp;
  return sf_group_over(env, &env->default_mesh, SF_AXES(SF_AXIS_TP));
}

int32_t sf_fault_layer_in_stage(const struct sf_rank_run *run, int32_t chunk, int32_t layer) {
  int64_t first, count;
  sf_case_stage_layers(run->c, (int64_t)chunk * run->parallel.pp.size + run->parallel.pp.index, &first, &count);
  return layer - (int32_t)first;
}

int32_t sf_fault_name_in_stage(const struct sf_rank_run *run, const struct sf_parameter *param) {
  const struct sf_catalog *catalog = run->env->catalog;
  const int32_t layer = catalog->modules[catalog->params[param->index].module].layer;
  if (layer < 0 || layer >= run->c->model.layers) return param->index;
  const int32_t which = param->index - sf_catalog_param(catalog, param->cls, layer, 0);
  return sf_catalog_param(catalog, param->cls, sf_fault_layer_in_stage(run, param->chunk, layer), which);
}

/* --- canaries: failures that must be reported loudly, whatever the numbers say ------------------------------------ */

void sf_fault_canary_backward(const struct sf_rank_run *run, int32_t layer) {
  const struct sf_rank_env *env = run->env;
  const bool crash = sf_fault(env, SF_FAULT_CANARY_CRASH), hang = sf_fault(env, SF_FAULT_CANARY_HANG);
  if (!crash && !hang) return;
  if (env->comm->rank != env->comm->world - 1 || layer != env->c->model.layers - 1) return;
  /* A group of this rank alone: leaves the label in the progress record, waits for nobody. */
  const struct sf_group self = sf_group_create(&env->comm->rank, 1, 0);
  sf_barrier(env->comm, &self, "parallel_mlp.bwd.canary");
  if (crash) raise(SIGSEGV);
  volatile bool stuck = hang;
  while (stuck) {
  }
}

/* Every rank waits for a message that its neighbour never sends. */
static void deadlock(const struct sf_rank_env *env) {
  float never = 0.0f;
  sf_recv(env->comm, (env->comm->rank + 1) % env->comm->world, 1, &never, 1, SF_F32, "finalize_grads.canary_deadlock");
}

static void mismatch(const struct sf_rank_run *run) {
  const struct sf_comm *comm = run->env->comm;
  float values[2] = {0.0f, 0.0f};
  sf_all_reduce(run->env->comm, &run->parallel.world, values, comm->rank == comm->world - 1 ? 2 : 1, SF_F32, SF_REDUCE_SUM,
                "finalize_grads.canary_mismatch");
}

void sf_fault_canary_finalize(const struct sf_rank_run *run) {
  if (run->env->comm->world < 2) return;
  if (sf_fault(run->env, SF_FAULT_CANARY_DEADLOCK)) deadlock(run->env);
  if (sf_fault(run->env, SF_FAULT_CANARY_MISMATCH)) mismatch(run);
}
