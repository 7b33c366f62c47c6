/* Programs that are wrong: every rank's report has to say so. Only stack memory here: a rank may not come back from a call. */
#include "tests/contract/comm_cases.h"

static void count_mismatch(struct sf_comm *comm, struct case_rank *rank) {
  struct case_members members;
  const struct sf_group group = case_group_create(&members, comm, GROUP_WORLD);
  float data[16] = {0}, all[16 * 4];
  const int64_t count = comm->rank == comm->world - 1 ? 16 : 15;
  if (rank->variant == 0) sf_all_reduce(comm, &group, data, count, SF_F32, SF_REDUCE_SUM, "contract.mismatch.count");
  if (rank->variant == 1) sf_broadcast(comm, &group, data, count, 0, SF_F32, "contract.mismatch.count");
  if (rank->variant == 2 && comm->world <= 4) sf_all_gather(comm, &group, all, data, count, SF_F32, "contract.mismatch.count");
  if (rank->variant == 2 && comm->world > 4)
    sf_reduce_scatter(comm, &group, all, data, count - 15, SF_F32, SF_REDUCE_SUM, "contract.mismatch.count");
  if (rank->variant == 3) {
    const sf_request request = sf_iall_reduce(comm, &group, data, count, SF_F32, SF_REDUCE_SUM, "contract.mismatch.count");
    sf_wait(comm, request);
  }
  case_check(rank, false, "the mismatch was not seen");
}

static void argument_mismatch(struct sf_comm *comm, struct case_rank *rank) {
  struct case_members members;
  const struct sf_group group = case_group_create(&members, comm, GROUP_WORLD);
  const bool odd_one = comm->rank == 1;
  float data[16] = {0};
  if (rank->variant == 0) sf_all_reduce(comm, &group, data, 16, odd_one ? SF_BF16 : SF_F32, SF_REDUCE_SUM, "contract.mismatch.wire");
  if (rank->variant == 1)
    sf_all_reduce(comm, &group, data, 16, SF_F32, odd_one ? SF_REDUCE_AVG : SF_REDUCE_SUM, "contract.mismatch.reduce");
  if (rank->variant == 2) sf_broadcast(comm, &group, data, 16, odd_one, SF_F32, "contract.mismatch.root");
  if (rank->variant == 3 && odd_one) sf_barrier(comm, &group, "contract.mismatch.op");
  if (rank->variant == 3 && !odd_one) sf_all_reduce(comm, &group, data, 16, SF_F32, SF_REDUCE_SUM, "contract.mismatch.op");
  case_check(rank, false, "the mismatch was not seen");
}

static void all_to_all_mismatch(struct sf_comm *comm, struct case_rank *rank) {
  struct case_members members;
  const struct sf_group group = case_group_create(&members, comm, GROUP_WORLD);
  int64_t counts[CASE_WORLD_MAX], expected[CASE_WORLD_MAX];
  float out[CASE_WORLD_MAX] = {0}, in[2 * CASE_WORLD_MAX];
  for (int32_t m = 0; m < comm->world; m++) counts[m] = expected[m] = 1;
  if (comm->rank == 0) expected[1] = 2;
  sf_all_to_all(comm, &group, in, expected, out, counts, SF_F32, "contract.mismatch.all_to_all");
  case_check(rank, false, "the mismatch was not seen");
}

static void every_rank_fails(struct sf_comm *comm, struct case_rank *rank) {
  (void)rank;
  sf_comm_fail(comm, SF_ENOTSUP, "rank %d cannot do %s", comm->rank, "this");
}

/* Sums of ones. What a run that failed left under way must not touch them. */
static void check_sums(struct sf_comm *comm, const struct sf_group *group, float *data, int32_t count) {
  for (int32_t i = 0; i < count; i++) data[i] = 1;
  sf_all_reduce(comm, group, data, count, SF_F32, SF_REDUCE_SUM, "contract.leak.sums");
  for (int32_t i = 0; i < count; i++)
    if (data[i] != (float)comm->world) sf_comm_fail(comm, SF_ENOTSUP, "a sum is %g after a run that failed", (double)data[i]);
}

/* The second time while its data are on their way: what is read of them later is not on a stack that is gone. The barrier's group has the
 * same first member, who answers to the reduction before that: every rank has launched it before it goes, and it is long. */
static void request_is_leaked(struct sf_comm *comm, struct case_rank *rank) {
  enum { MANY = 32768, FEW = MANY / CASE_WORLD_MAX };
  static float all[MANY];
  float data[3] = {0};
  if (rank->variant == 0) {
    const sf_request request = sf_irecv(comm, comm->rank, 0, data, 3, SF_F32, "contract.leak");
    (void)request;
    return;
  }
  struct case_members members, turned_members = {{0}};
  const struct sf_group group = case_group_create(&members, comm, GROUP_WORLD);
  for (int32_t m = 1; m < comm->world; m++) turned_members.ranks[m] = comm->world - m;
  const struct sf_group turned = sf_group_create(turned_members.ranks, comm->world, (comm->world - comm->rank) % comm->world);
  float *many = rank->shared != NULL ? all + comm->rank * FEW : all;
  const int32_t count = rank->shared != NULL ? FEW : MANY;
  check_sums(comm, &group, many, count);
  const sf_request request = sf_iall_reduce(comm, &group, many, count, SF_F32, SF_REDUCE_SUM, "contract.leak");
  sf_barrier(comm, &turned, "contract.leak.meanwhile");
  (void)request;
}

static void request_is_waited_for_twice(struct sf_comm *comm, struct case_rank *rank) {
  float in = 0, out = 1;
  const sf_request recv = sf_irecv(comm, comm->rank, 0, &in, 1, SF_F32, "contract.twice");
  const sf_request send = sf_isend(comm, comm->rank, 0, &out, 1, SF_F32, "contract.twice");
  sf_wait(comm, recv);
  sf_wait(comm, send);
  sf_wait(comm, recv);
  case_check(rank, false, "the second wait was not seen");
}

const struct comm_case comm_failure_cases[] = {
    {.name = "count_mismatch",
     .body = count_mismatch,
     .variants = 4,
     .variants_in_job = 3,
     .world_min = 2,
     .ends = SF_EMISMATCH,
     .manners = {SF_MANNER_COUNT, SF_MANNER_COUNT, SF_MANNER_COUNT, SF_MANNER_COUNT}},
    {.name = "argument_mismatch",
     .body = argument_mismatch,
     .variants = 4,
     .world_min = 2,
     .ends = SF_EMISMATCH,
     .manners = {SF_MANNER_FORMAT, SF_MANNER_REDUCTION, SF_MANNER_ROOT, SF_MANNER_ABSENT}},
    {.name = "all_to_all_mismatch",
     .body = all_to_all_mismatch,
     .variants = 1,
     .world_min = 2,
     .ends = SF_EMISMATCH,
     .manners = {SF_MANNER_COUNT}},
    {.name = "every_rank_fails",
     .body = every_rank_fails,
     .variants = 1,
     .world_min = 1,
     .ends = SF_ENOTSUP,
     .manners = {SF_MANNER_REFUSED}},
    {.name = "request_is_leaked",
     .body = request_is_leaked,
     .variants = 2,
     .variants_in_job = 1,
     .world_min = 1,
     .ends = SF_ERANK,
     .manners = {SF_MANNER_REQUEST, SF_MANNER_REQUEST}},
    {.name = "request_is_waited_for_twice",
     .body = request_is_waited_for_twice,
     .variants = 1,
     .world_min = 1,
     .ends = SF_ERANK,
     .manners = {SF_MANNER_REQUEST}},
    {.name = NULL},
};
