/* Faults that take a wrong piece: embed-scatter-wrong-tp-group, fused-proj-contiguous-split, pp-uneven-offset, rope-cp-wrong-dim,
 * recompute-wrong-tp-group, xattn-qkv-wrong-tp-group. */
#include "targets/builtin/parallel/fault.h"

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

bool sf_fault_rope_cut_fits(const struct sf_case *c) { return c->train.microbatch_size % (2 * c->layout.cp) == 0; }

struct sf_group sf_fault_default_tp_group(const struct sf_rank_run *run) {
  const struct sf_rank_env *env = run->env;
  if (!sf_plant_default_tp_in_stages(env->c)) return run->parallel.tp;
  int32_t *ranks = sf_rank_alloc(env, (size_t)env->mesh.world * sizeof *ranks);
  int32_t index = 0;
  const int32_t size = sf_mesh_group(&env->default_mesh, env->comm->rank, SF_AXES(SF_AXIS_TP), ranks, &index);
  return sf_group_create(ranks, size, index);
}
