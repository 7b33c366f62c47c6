#include "targets/builtin/parallel/parallel_state.h"

#include "harness/comm/group_lists.h"
#include "targets/builtin/parallel/buffers.h"
#include "targets/builtin/parallel/fault.h"

struct sf_group sf_group_over(const struct sf_rank_env *env, const struct sf_mesh *mesh, unsigned axes) {
  struct sf_group group = {0};
  const enum sf_status status = sf_group_lists_find(&group, env->groups, mesh, env->comm->rank, axes);
  if (status != SF_OK) sf_comm_fail(env->comm, status, "lists of groups: memory refused");
  return group;
}

static struct sf_group group_over(const struct sf_rank_env *env, unsigned axes) { return sf_group_over(env, &env->mesh, axes); }

/* Axes as in sf_mesh_expert_group. */
static struct sf_group experts_over(const struct sf_rank_env *env, unsigned axes) {
  struct sf_group group = {0};
  const enum sf_status status = sf_group_lists_find_expert(&group, env->groups, &env->c->layout, env->comm->rank, axes);
  if (status != SF_OK) sf_comm_fail(env->comm, status, "lists of groups: memory refused");
  return group;
}

/* tp = kv_heads x rep: `rep` neighbours in tp hold the same key/value head. */
static struct sf_group kv_rep_of(const struct sf_case *c, const struct sf_group *tp) {
  const int32_t rep = tp->size > c->model.kv_heads ? (int32_t)(tp->size / c->model.kv_heads) : 1;
  return sf_group_create(tp->ranks + tp->index / rep * rep, rep, tp->index % rep);
}

static struct sf_group embedding_of(const struct sf_rank_env *env, const struct sf_group *pp) {
  const bool first = pp->index == 0, last = pp->index == pp->size - 1;
  if (pp->size == 1 || !(first || last)) return (struct sf_group){0};
  int32_t *ranks = sf_rank_alloc(env, 2 * sizeof *ranks);
  ranks[0] = pp->ranks[0];
  ranks[1] = pp->ranks[pp->size - 1];
  return sf_group_create(ranks, 2, last ? 1 : 0);
}

struct sf_parallel_state sf_parallel_state_create(const struct sf_rank_env *env) {
  struct sf_parallel_state s = {
      .tp = group_over(env, SF_AXES(SF_AXIS_TP)),
      .cp = group_over(env, SF_AXES(SF_AXIS_CP)),
      .dp = group_over(env, SF_AXES(SF_AXIS_DP)),
      .pp = group_over(env, SF_AXES(SF_AXIS_PP)),
      .dp_cp = group_over(env, SF_AXES(SF_AXIS_DP) | SF_AXES(SF_AXIS_CP)),
      .dp_cp_pp = group_over(env, SF_AXES(SF_AXIS_DP) | SF_AXES(SF_AXIS_CP) | SF_AXES(SF_AXIS_PP)),
      .tp_pp = group_over(env, SF_AXES(SF_AXIS_TP) | SF_AXES(SF_AXIS_PP)),
      .world = group_over(env, SF_AXES_ALL),
      .sp = env->c->layout.sp && env->c->layout.tp > 1,
  };
  if (env->c->precision.compute == SF_COMPUTE_FP8) {
    s.tp_cp = group_over(env, SF_AXES(SF_AXIS_TP) | SF_AXES(SF_AXIS_CP));
    s.tp_cp_dp = group_over(env, SF_AXES(SF_AXIS_TP) | SF_AXES(SF_AXIS_CP) | SF_AXES(SF_AXIS_DP));
    /* fp8-amax-wrong-group: takes the ranks that hold other tokens, not those that hold other features. */
    if (sf_fault(env, SF_FAULT_FP8_AMAX_WRONG_GROUP)) s.tp_cp = s.cp, s.tp_cp_dp = s.dp_cp;
  }
  if ((env->layers != NULL || env->model != NULL) && s.tp_cp.size == 0)
    s.tp_cp = group_over(env, SF_AXES(SF_AXIS_TP) | SF_AXES(SF_AXIS_CP));
  if (env->c->moe.aux_micro > 0 || env->c->moe.z_micro > 0) s.microbatch = group_over(env, SF_AXES(SF_AXIS_TP) | SF_AXES(SF_AXIS_CP));
  if (env->c->moe.experts > 0) {
    s.etp = experts_over(env, SF_AXES(SF_AXIS_TP));
    s.ep = experts_over(env, SF_AXES(SF_AXIS_EP));
    s.edp = experts_over(env, SF_AXES(SF_AXIS_DP));
    s.expert_model = experts_over(env, SF_AXES(SF_AXIS_TP) | SF_AXES(SF_AXIS_EP) | SF_AXES(SF_AXIS_PP));
  }
  s.kv_rep = kv_rep_of(env->c, &s.tp);
  s.embedding = embedding_of(env, &s.pp);
  /* group-order-crosstalk: groups are made in rank-local order, so the n-th one has other members, here the data-parallel pair of the same
   * size. */
  if (sf_fault(env, SF_FAULT_GROUP_ORDER_CROSSTALK) && s.embedding.size == 2 && s.pp.size == 2 && s.dp.size == 2) s.embedding = s.dp;
  s.first_stage = s.pp.index == 0;
  s.last_stage = s.pp.index == s.pp.size - 1;
  return s;
}
