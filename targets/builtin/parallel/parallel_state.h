/* The process groups of one rank, all made here from the mesh and handed to layers as values (Megatron-LM: parallel_state.py,
 * ProcessGroupCollection). */
#ifndef SF_TARGETS_PARALLEL_STATE_H
#define SF_TARGETS_PARALLEL_STATE_H

#include "targets/target.h"

struct sf_parallel_state {
  struct sf_group tp, cp, dp, pp;
  struct sf_group dp_cp;     /* dp x cp: every rank that has seen other tokens with the same weights; gradients */
  struct sf_group dp_cp_pp;  /* sums of loss and tokens, which only the last stage has */
  struct sf_group tp_pp;     /* tp x pp, "model parallel": one copy of the whole model; gradient norm */
  struct sf_group kv_rep;    /* part of tp whose ranks replicate one key/value head; size 1 unless tp > kv_heads */
  struct sf_group embedding; /* first and last stage of this rank's pipeline; size 0 on stages between and when pp is 1 */
  struct sf_group tp_cp;     /* fp8 and plugins only: ranks with pieces of one microbatch's tensors */
  struct sf_group tp_cp_dp;  /* fp8 only: of all microbatches' */
  struct sf_group microbatch; /* auxiliary losses only: tp x cp, ranks with other tokens of one microbatch */
  struct sf_group etp, ep;     /* the expert mesh: parts of an expert, experts */
  struct sf_group edp;         /* ranks that hold the same parts of the same experts: their gradients are summed over it */
  struct sf_group expert_model; /* etp x ep x pp: one copy of all experts; gradient norm */
  struct sf_group world;
  bool sp, first_stage, last_stage;
};

/* The ranks of a mesh that differ from this one in these axes alone. The list is env->groups'. */
struct sf_group sf_group_over(const struct sf_rank_env *env, const struct sf_mesh *mesh, unsigned axes);

/* Leaves the rank with SF_ENOMEM when memory is out. The groups' lists are env->groups', or live in the
 * trial's arena. */
struct sf_parallel_state sf_parallel_state_create(const struct sf_rank_env *env);

#endif
