/* What the simulated world says about programs that go wrong. */
#include "harness/comm/sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SCHEDULES = 12 };

static const int32_t everybody[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};

static struct sf_comm_report run(void **state, int32_t world, uint64_t schedule, sf_rank_main rank_main) {
  struct sf_comm_report report;
  const struct sf_sim_options options = {.world = world, .schedule = schedule};
  assert_int_equal(sf_sim_run(*state, &options, rank_main, NULL, &report), SF_OK);
  return report;
}

static void expect_report(void **state, int32_t world, sf_rank_main rank_main, enum sf_status status, int32_t rank, const char *label,
                          const char *text) {
  for (uint64_t schedule = 0; schedule < SCHEDULES; schedule++) {
    const struct sf_comm_report report = run(state, world, schedule, rank_main);
    assert_int_equal(report.status, status);
    assert_string_equal(report.text, text);
    assert_string_equal(report.label, label);
    assert_int_equal(report.rank, rank);
  }
}

/* Each row of the enumeration has its own name, since keys are made of them. */
static void test_manner_names_differ(void **state) {
  (void)state;
  assert_string_equal(sf_manner_name(SF_MANNER_NONE), "");
  assert_string_equal(sf_manner_name(SF_MANNERS), "");
  for (int a = 1; a < SF_MANNERS; a++)
    for (int b = 0; b < a; b++) assert_string_not_equal(sf_manner_name((enum sf_manner)a), sf_manner_name((enum sf_manner)b));
}

static void test_manner_of_calls_takes_the_first_difference(void **state) {
  (void)state;
  const struct sf_comm_call call = {.op = SF_COMM_ALL_REDUCE, .count = 4};
  const struct {
    enum sf_manner manner;
    struct sf_comm_call other;
  } rows[] = {
      {SF_MANNER_ABSENT, {.op = SF_COMM_BARRIER}},
      {SF_MANNER_OPERATION, {.op = SF_COMM_ALL_GATHER, .count = 8, .wire = SF_BF16}},
      {SF_MANNER_FORMAT, {.op = SF_COMM_ALL_REDUCE, .count = 8, .wire = SF_BF16, .reduce = SF_REDUCE_MAX}},
      {SF_MANNER_REDUCTION, {.op = SF_COMM_ALL_REDUCE, .count = 8, .reduce = SF_REDUCE_MAX, .root = 1}},
      {SF_MANNER_ROOT, {.op = SF_COMM_ALL_REDUCE, .count = 8, .root = 1}},
      {SF_MANNER_COUNT, {.op = SF_COMM_ALL_REDUCE, .count = 8}},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    assert_int_equal(sf_manner_of_calls(&call, &rows[i].other), rows[i].manner);
    assert_int_equal(sf_manner_of_calls(&rows[i].other, &call), rows[i].manner);
  }
  const struct sf_comm_call send = {.op = SF_COMM_SEND, .count = 4}, recv = {.op = SF_COMM_RECV, .count = 5};
  assert_int_equal(sf_manner_of_calls(&send, &recv), SF_MANNER_COUNT);
}

/* --- deadlocks -------------------------------------------------------------------------------------------------- */

static void reduce_against_recv(struct sf_comm *comm, void *arg) {
  (void)arg;
  const struct sf_group group = sf_group_create(everybody, comm->world, comm->rank);
  float x = 0;
  sf_all_reduce(comm, &group, &x, 1, SF_F32, SF_REDUCE_SUM, "mlp.fwd");
  if (comm->rank == 1) sf_recv(comm, 0, 4, &x, 1, SF_F32, "stage.recv");
  sf_all_reduce(comm, &group, &x, 1, SF_F32, SF_REDUCE_SUM, "mlp.fwd");
}

static void test_deadlock_two_ranks_names_both_ends(void **state) {
  expect_report(
      state, 2, reduce_against_recv, SF_EDEADLOCK, 0, "mlp.fwd",
      "rank 0 waits in all_reduce 'mlp.fwd' #1 of group {0,1} for rank 1, which waits in recv 'stage.recv' #0 from rank 0 (tag 4)");
}

static void one_leaves_early(struct sf_comm *comm, void *arg) {
  (void)arg;
  const struct sf_group group = sf_group_create(everybody, comm->world, comm->rank);
  if (comm->rank != 1) sf_barrier(comm, &group, "end");
}

static void test_deadlock_finished_rank_is_named(void **state) {
  expect_report(state, 3, one_leaves_early, SF_EDEADLOCK, 0, "end",
                "rank 0 waits in barrier 'end' #0 of group {0,1,2} for rank 1, which has finished; "
                "rank 2 waits in barrier 'end' #0 of group {0,1,2} for rank 1, which has finished");
}

static void wait_for_unsent(struct sf_comm *comm, void *arg) {
  (void)arg;
  float x = 0;
  const int32_t next = (comm->rank + 1) % comm->world;
  const sf_request request = sf_irecv(comm, next, 0, &x, 1, SF_F32, "ring");
  sf_wait(comm, request);
}

static void test_deadlock_ring_follows_the_chain(void **state) {
  expect_report(state, 3, wait_for_unsent, SF_EDEADLOCK, 0, "ring",
                "rank 0 waits in recv 'ring' #0 from rank 1 (tag 0), which waits in recv 'ring' #0 from rank 2 (tag 0), "
                "which waits in recv 'ring' #0 from rank 0 (tag 0)");
}

static void groups_in_other_order(struct sf_comm *comm, void *arg) {
  (void)arg;
  const int32_t forward[] = {0, 1}, backward[] = {1, 0};
  const struct sf_group group = comm->rank == 0 ? sf_group_create(forward, 2, 0) : sf_group_create(backward, 2, 0);
  float x = 0;
  sf_all_reduce(comm, &group, &x, 1, SF_F32, SF_REDUCE_SUM, "reduce");
}

static void test_deadlock_groups_of_other_order_shows_both(void **state) {
  expect_report(
      state, 2, groups_in_other_order, SF_EDEADLOCK, 0, "reduce",
      "rank 0 waits in all_reduce 'reduce' #0 of group {0,1} for rank 1, which waits in all_reduce 'reduce' #0 of group {1,0} for rank 0");
}

static void test_deadlock_many_ranks_text_is_bounded(void **state) {
  struct sf_comm_report report;
  const struct sf_sim_options options = {.world = 300};
  assert_int_equal(sf_sim_run(*state, &options, wait_for_unsent, NULL, &report), SF_OK);
  assert_int_equal(report.status, SF_EDEADLOCK);
  assert_true(strlen(report.text) < sizeof report.text - 1);
  assert_non_null(strstr(report.text, "more ranks wait"));
}

static void sends_face_each_other(struct sf_comm *comm, void *arg) {
  (void)arg;
  float out = 1, in = 0;
  sf_send(comm, comm->rank ^ 1, 0, &out, 1, SF_F32, "exchange.send");
  sf_recv(comm, comm->rank ^ 1, 0, &in, 1, SF_F32, "exchange.recv");
}

static void test_sends_facing_each_other_rendezvous_deadlocks_eager_passes(void **state) {
  int32_t deadlocks = 0;
  assert_int_equal(run(state, 2, 0, sends_face_each_other).status, SF_EDEADLOCK);
  for (uint64_t schedule = 1; schedule <= 40; schedule++)
    deadlocks += run(state, 2, schedule, sends_face_each_other).status == SF_EDEADLOCK;
  assert_in_range(deadlocks, 2, 38);
}

/* --- mismatches ------------------------------------------------------------------------------------------------- */

static void counts_differ(struct sf_comm *comm, void *arg) {
  (void)arg;
  const struct sf_group group = sf_group_create(everybody, comm->world, comm->rank);
  float data[8] = {0};
  sf_barrier(comm, &group, "before");
  sf_all_reduce(comm, &group, data, comm->rank == 1 ? 8 : 6, SF_F32, SF_REDUCE_SUM, "grad");
}

static void test_mismatch_counts_names_both(void **state) {
  expect_report(
      state, 2, counts_differ, SF_EMISMATCH, 0, "grad",
      "collective 1 of group {0,1}: rank 0 calls all_reduce 'grad' #0 (6 x fp32, sum), rank 1 calls all_reduce 'grad' #0 (8 x fp32, sum)");
}

static void ops_differ(struct sf_comm *comm, void *arg) {
  (void)arg;
  const struct sf_group group = sf_group_create(everybody, comm->world, comm->rank);
  float data[8] = {0};
  if (comm->rank == 0) sf_broadcast(comm, &group, data, 8, 1, SF_BF16, "embedding");
  if (comm->rank == 1) sf_all_reduce(comm, &group, data, 8, SF_F32, SF_REDUCE_MAX, "amax");
}

static void test_mismatch_ops_names_both(void **state) {
  expect_report(state, 2, ops_differ, SF_EMISMATCH, 0, "embedding",
                "collective 0 of group {0,1}: rank 0 calls broadcast 'embedding' #0 (8 x bf16, root 1), rank 1 calls all_reduce 'amax' #0 "
                "(8 x fp32, max)");
}

static void message_counts_differ(struct sf_comm *comm, void *arg) {
  (void)arg;
  float data[8] = {0};
  if (comm->rank == 0) sf_send(comm, 1, 9, data, 4, SF_F32, "act.send");
  if (comm->rank == 1) sf_recv(comm, 0, 9, data, 5, SF_F32, "act.recv");
}

static void test_mismatch_message_counts_names_both(void **state) {
  expect_report(state, 2, message_counts_differ, SF_EMISMATCH, 0, "act.send",
                "message 0 with tag 9: rank 0 calls send 'act.send' #0 (4 x fp32), rank 1 calls recv 'act.recv' #0 (5 x fp32)");
}

static void labels_differ(struct sf_comm *comm, void *arg) {
  (void)arg;
  const struct sf_group group = sf_group_create(everybody, comm->world, comm->rank);
  sf_barrier(comm, &group, comm->rank == 0 ? "one" : "other");
}

static void test_labels_differing_is_no_mismatch(void **state) { expect_report(state, 2, labels_differ, SF_OK, -1, "", ""); }

static void all_to_all_differs(struct sf_comm *comm, void *arg) {
  (void)arg;
  const struct sf_group group = sf_group_create(everybody, comm->world, comm->rank);
  float out[4] = {0}, in[8] = {0};
  const int64_t ones[] = {1, 1}, wrong[] = {1, 3};
  sf_all_to_all(comm, &group, in, comm->rank == 0 ? wrong : ones, out, ones, SF_F32, "dispatch");
}

static void test_mismatch_all_to_all_names_the_piece(void **state) {
  expect_report(state, 2, all_to_all_differs, SF_EMISMATCH, 1, "dispatch",
                "collective 0 of group {0,1}: rank 1 sends 1 elements to rank 0 in all_to_all 'dispatch' #0, which expects 3 in all_to_all "
                "'dispatch' #0");
}

/* --- ranks ------------------------------------------------------------------------------------------------------ */

static void one_fails(struct sf_comm *comm, void *arg) {
  (void)arg;
  const struct sf_group group = sf_group_create(everybody, comm->world, comm->rank);
  sf_barrier(comm, &group, "begin");
  if (comm->rank == 2) sf_comm_fail(comm, SF_ENOTSUP, "no kernel for %d heads", 7);
  sf_barrier(comm, &group, "end");
}

static void test_fail_one_rank_ends_the_run(void **state) {
  expect_report(state, 4, one_fails, SF_ENOTSUP, 2, "begin", "no kernel for 7 heads");
}

static void one_asks_for_too_much(struct sf_comm *comm, void *arg) {
  (void)arg;
  float value = 1;
  const struct sf_group group = sf_group_create(everybody, comm->world, comm->rank);
  sf_all_reduce(comm, &group, &value, comm->rank == 1 ? SF_COMM_COUNT_MAX + 1 : 1, SF_F32, SF_REDUCE_SUM, "sum");
}

static void test_call_absurd_count_is_the_ranks_failure(void **state) {
  expect_report(state, 3, one_asks_for_too_much, SF_ERANK, 1, "sum", "all_reduce of 68719476737 elements: no tensor is that large");
}

static void leaks(struct sf_comm *comm, void *arg) {
  (void)arg;
  static float data[2];
  sf_request request = 0;
  if (comm->rank == 1) request = sf_isend(comm, 0, 0, data, 2, SF_F32, "first");
  if (comm->rank == 1) request = sf_irecv(comm, 0, 0, data, 2, SF_F32, "second");
  (void)request;
}

static void test_leak_names_oldest_request(void **state) {
  expect_report(state, 2, leaks, SF_ERANK, 1, "first", "rank 1 ended without waiting for send 'first' #0 and 1 more requests");
}

static void foreign_request(struct sf_comm *comm, void *arg) {
  (void)arg;
  sf_wait(comm, 12345);
}

static void test_wait_unknown_request_is_reported(void **state) {
  const struct sf_comm_report report = run(state, 1, 0, foreign_request);
  assert_int_equal(report.status, SF_ERANK);
  assert_non_null(strstr(report.text, "has not open"));
}

static void use_257_labels(struct sf_comm *comm, void *arg) {
  (void)arg;
  static const char labels[SF_COMM_LABELS_MAX + 1];
  const struct sf_group group = sf_group_create(everybody, comm->world, comm->rank);
  for (int i = 0; i <= SF_COMM_LABELS_MAX; i++) sf_barrier(comm, &group, &labels[i]);
}

static void test_labels_too_many_is_a_failure(void **state) { assert_int_equal(run(state, 1, 0, use_257_labels).status, SF_ENOTSUP); }

static void idle(struct sf_comm *comm, void *arg) { (void)comm, (void)arg; }

static void test_run_after_failures_is_clean(void **state) {
  assert_int_equal(run(state, 12, 1, one_fails).status, SF_ENOTSUP);
  expect_report(state, 12, idle, SF_OK, -1, "", "");
}

/* What a watcher would see while a rank computes: before its first call, and after others ran inside one of its calls. */
static void watch_progress(struct sf_comm *comm, void *arg) {
  (void)arg;
  const struct sf_group group = sf_group_create(everybody, comm->world, comm->rank);
  const struct sf_comm_progress *seen = comm->progress;
  if (seen->rank != comm->rank || seen->in_call != 0 || seen->label[0] != '\0')
    sf_comm_fail(comm, SF_ERANK, "begins as rank %d, in call %d, at '%s'", seen->rank, seen->in_call, seen->label);
  sf_barrier(comm, &group, comm->rank == 0 ? "label of 0" : "label of others");
  if (seen->rank != comm->rank || seen->in_call != 0 || strcmp(seen->label, comm->rank == 0 ? "label of 0" : "label of others") != 0)
    sf_comm_fail(comm, SF_ERANK, "goes on as rank %d, in call %d, at '%s'", seen->rank, seen->in_call, seen->label);
}

static void test_progress_shows_the_rank_that_runs(void **state) {
  for (uint64_t schedule = 0; schedule < SCHEDULES; schedule++) {
    struct sf_comm_report report;
    struct sf_comm_progress progress = {.rank = -1};
    const struct sf_sim_options options = {.world = 3, .schedule = schedule, .progress = &progress};
    assert_int_equal(sf_sim_run(*state, &options, watch_progress, NULL, &report), SF_OK);
    assert_string_equal(report.text, "");
  }
}

static int sim_create(void **state) { return sf_sim_create((struct sf_sim **)state) == SF_OK ? 0 : -1; }

static int sim_destroy(void **state) {
  sf_sim_destroy(*state);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_manner_names_differ),
      cmocka_unit_test(test_manner_of_calls_takes_the_first_difference),
      cmocka_unit_test(test_deadlock_two_ranks_names_both_ends),
      cmocka_unit_test(test_deadlock_finished_rank_is_named),
      cmocka_unit_test(test_deadlock_ring_follows_the_chain),
      cmocka_unit_test(test_deadlock_groups_of_other_order_shows_both),
      cmocka_unit_test(test_deadlock_many_ranks_text_is_bounded),
      cmocka_unit_test(test_sends_facing_each_other_rendezvous_deadlocks_eager_passes),
      cmocka_unit_test(test_mismatch_counts_names_both),
      cmocka_unit_test(test_mismatch_ops_names_both),
      cmocka_unit_test(test_mismatch_message_counts_names_both),
      cmocka_unit_test(test_labels_differing_is_no_mismatch),
      cmocka_unit_test(test_mismatch_all_to_all_names_the_piece),
      cmocka_unit_test(test_fail_one_rank_ends_the_run),
      cmocka_unit_test(test_call_absurd_count_is_the_ranks_failure),
      cmocka_unit_test(test_leak_names_oldest_request),
      cmocka_unit_test(test_wait_unknown_request_is_reported),
      cmocka_unit_test(test_labels_too_many_is_a_failure),
      cmocka_unit_test(test_run_after_failures_is_clean),
      cmocka_unit_test(test_progress_shows_the_rank_that_runs),
  };
  return cmocka_run_group_tests(tests, sim_create, sim_destroy);
}
