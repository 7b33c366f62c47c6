/* Canaries: failures that must be reported loudly, whatever the numbers say. */
#include "targets/builtin/parallel/fault.h"

#include <signal.h>

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
