/* The simulated world alone: what schedules change, what late and early transfers show, how many ranks it carries. */
#include "harness/base/alloc.h"
#include "harness/base/hash.h"
#include "harness/comm/sim.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { WORLD = 5, COUNT = 200, SCHEDULES = 40 };

static struct sf_comm_report run(void **state, int32_t world, uint64_t schedule, sf_rank_main rank_main, void *const *args) {
  struct sf_comm_report report;
  const struct sf_sim_options options = {.world = world, .schedule = schedule};
  assert_int_equal(sf_sim_run(*state, &options, rank_main, args, &report), SF_OK);
  return report;
}

static void run_shared(void **state, int32_t world, uint64_t schedule, sf_rank_main rank_main, void *shared) {
  void *args[WORLD] = {shared, shared, shared, shared, shared};
  assert_true(world <= WORLD);
  const struct sf_comm_report report = run(state, world, schedule, rank_main, args);
  if (report.status != SF_OK) fail_msg("schedule %llu: %s", (unsigned long long)schedule, report.text);
}

static const int32_t everybody[] = {0, 1, 2, 3, 4};

/* --- reductions ------------------------------------------------------------------------------------------------- */

static float noise(int32_t rank, int64_t i) {
  return ldexpf((float)(int32_t)(sf_hash_u64((uint64_t)rank, (uint64_t)i) >> 40), (int)(i % 9) - 20);
}

static void reduce_noise(struct sf_comm *comm, void *arg) {
  const struct sf_group group = sf_group_create(everybody, comm->world, comm->rank);
  float data[COUNT];
  for (int64_t i = 0; i < COUNT; i++) data[i] = noise(comm->rank, i);
  sf_all_reduce(comm, &group, data, COUNT, SF_F32, SF_REDUCE_SUM, "sum");
  if (comm->rank == 0) memcpy(arg, data, sizeof data);
}

static void test_run_same_schedule_same_bytes(void **state) {
  for (uint64_t schedule = 0; schedule < SCHEDULES; schedule++) {
    float first[COUNT], second[COUNT];
    run_shared(state, WORLD, schedule, reduce_noise, first);
    run_shared(state, WORLD, schedule, reduce_noise, second);
    assert_memory_equal(first, second, sizeof first);
  }
}

static void test_run_other_schedules_other_sums(void **state) {
  float first[COUNT], other[COUNT];
  int32_t different = 0;
  run_shared(state, WORLD, 0, reduce_noise, first);
  for (uint64_t schedule = 1; schedule < SCHEDULES; schedule++) {
    run_shared(state, WORLD, schedule, reduce_noise, other);
    different += memcmp(first, other, sizeof first) != 0;
  }
  assert_in_range(different, SCHEDULES / 2, SCHEDULES);
}

static void test_all_reduce_schedule_0_adds_in_group_order(void **state) {
  float got[COUNT];
  run_shared(state, WORLD, 0, reduce_noise, got);
  for (int64_t i = 0; i < COUNT; i++) {
    float sum = noise(0, i);
    for (int32_t r = 1; r < WORLD; r++) sum += noise(r, i);
    assert_true(got[i] == sum);
  }
}

/* Two of the reduction's neighbours in the program must not change its order: only its own group and number do. */
static void reduce_after_other_groups(struct sf_comm *comm, void *arg) {
  const struct sf_group alone = sf_group_create(&everybody[comm->rank], 1, 0);
  float value = 1;
  sf_all_reduce(comm, &alone, &value, 1, SF_F32, SF_REDUCE_SUM, "alone");
  reduce_noise(comm, arg);
}

static void test_all_reduce_call_removed_elsewhere_same_order(void **state) {
  for (uint64_t schedule = 0; schedule < SCHEDULES; schedule++) {
    float with[COUNT], without[COUNT];
    run_shared(state, WORLD, schedule, reduce_after_other_groups, with);
    run_shared(state, WORLD, schedule, reduce_noise, without);
    assert_memory_equal(with, without, sizeof with);
  }
}

/* --- asynchronous transfers ------------------------------------------------------------------------------------- */

/* A wrong program: the source is overwritten between post and wait. */
static void overwrite_sent_source(struct sf_comm *comm, void *arg) {
  float data = 1;
  if (comm->rank == 0) {
    const sf_request request = sf_isend(comm, 1, 0, &data, 1, SF_F32, "source");
    data = 2;
    sf_wait(comm, request);
  } else {
    sf_recv(comm, 0, 0, arg, 1, SF_F32, "destination");
  }
}

static void overwrite_reduced_source(struct sf_comm *comm, void *arg) {
  const struct sf_group group = sf_group_create(everybody, comm->world, comm->rank);
  float data = 0.5f;
  const sf_request request = sf_iall_reduce(comm, &group, &data, 1, SF_F32, SF_REDUCE_SUM, "reduced");
  if (comm->rank == 0) data = 1.5f;
  sf_wait(comm, request);
  if (comm->rank == 1) *(float *)arg = data;
}

static void expect_both(void **state, sf_rank_main rank_main, float early, float late) {
  int32_t early_count = 0, late_count = 0;
  for (uint64_t schedule = 0; schedule < SCHEDULES; schedule++) {
    float got = 0;
    run_shared(state, 2, schedule, rank_main, &got);
    early_count += got == early;
    late_count += got == late;
    if (schedule == 0) assert_true(got == late);
  }
  assert_int_equal(early_count + late_count, SCHEDULES);
  assert_in_range(early_count, 5, SCHEDULES - 5);
}

static void test_isend_source_overwritten_shows_in_some_schedules(void **state) { expect_both(state, overwrite_sent_source, 1, 2); }

static void overwrite_sent_source_late_receiver(struct sf_comm *comm, void *arg) {
  const struct sf_group group = sf_group_create(everybody, comm->world, comm->rank);
  float data = 1;
  if (comm->rank == 0) {
    const sf_request request = sf_isend(comm, 1, 0, &data, 1, SF_F32, "source");
    sf_barrier(comm, &group, "posted");
    data = 2;
    sf_wait(comm, request);
  } else {
    const sf_request request = sf_irecv(comm, 0, 0, arg, 1, SF_F32, "destination");
    sf_barrier(comm, &group, "posted");
    sf_wait(comm, request);
  }
}

static void test_isend_source_overwritten_after_barrier_shows_in_some_schedules(void **state) {
  expect_both(state, overwrite_sent_source_late_receiver, 1, 2);
}

static void test_iall_reduce_source_overwritten_shows_in_some_schedules(void **state) {
  expect_both(state, overwrite_reduced_source, 1, 2);
}

/* A wrong program: the destination is read before the wait. arg[0]: what it held. */
static void read_before_wait(struct sf_comm *comm, void *arg) {
  const struct sf_group group = sf_group_create(everybody, comm->world, comm->rank);
  float data = 7;
  if (comm->rank == 0) {
    const sf_request request = sf_isend(comm, 1, 0, &data, 1, SF_F32, "source");
    sf_barrier(comm, &group, "posted");
    sf_wait(comm, request);
  } else {
    const sf_request request = sf_irecv(comm, 0, 0, &data, 1, SF_F32, "destination");
    sf_barrier(comm, &group, "posted");
    memcpy(arg, &data, sizeof data);
    sf_wait(comm, request);
    if (data != 7) sf_comm_fail(comm, SF_ERANK, "received %g", (double)data);
  }
}

static void test_irecv_destination_read_early_is_poison_in_some_schedules(void **state) {
  int32_t poisoned = 0, arrived = 0;
  for (uint64_t schedule = 0; schedule < SCHEDULES; schedule++) {
    uint32_t bits = 0;
    run_shared(state, 2, schedule, read_before_wait, &bits);
    poisoned += bits == 0x7fa5a5a5u;
    arrived += bits == 0x40e00000u;
    if (schedule == 0) assert_int_equal(poisoned, 1);
  }
  assert_int_equal(poisoned + arrived, SCHEDULES);
  assert_in_range(arrived, 5, SCHEDULES - 5);
}

/* An fp64 destination is poisoned with NaN too. */
static void read_double_before_wait(struct sf_comm *comm, void *arg) {
  double in = 1, out = 2;
  const sf_request recv = sf_irecv(comm, comm->rank, 0, &in, 1, SF_F64, "destination");
  *(double *)arg = in;
  const sf_request send = sf_isend(comm, comm->rank, 0, &out, 1, SF_F64, "source");
  sf_wait(comm, send);
  sf_wait(comm, recv);
}

static void test_irecv_fp64_destination_is_nan_after_post(void **state) {
  double seen = 0;
  run_shared(state, 1, 0, read_double_before_wait, &seen);
  assert_true(isnan(seen));
}

/* --- size and speed --------------------------------------------------------------------------------------------- */

static void many_ranks(struct sf_comm *comm, void *arg) {
  const struct sf_group group = sf_group_create(arg, comm->world, comm->rank);
  float sum = 1, in = 0, out = (float)comm->rank;
  for (int turn = 0; turn < 4; turn++) {
    const sf_request send = sf_isend(comm, (comm->rank + 1) % comm->world, turn, &out, 1, SF_F32, "ring.send");
    sf_recv(comm, (comm->rank + comm->world - 1) % comm->world, turn, &in, 1, SF_F32, "ring.recv");
    sf_wait(comm, send);
    sf_all_reduce(comm, &group, &sum, 1, SF_F32, SF_REDUCE_AVG, "all");
  }
  if (sum != 1 || in != (float)((comm->rank + comm->world - 1) % comm->world))
    sf_comm_fail(comm, SF_ERANK, "%g, %g", (double)sum, (double)in);
}

static void test_run_1024_ranks_complete(void **state) {
  enum { MANY = 1024 };
  int32_t *ranks = malloc(MANY * sizeof *ranks);
  void **args = malloc(MANY * sizeof(void *));
  for (int32_t r = 0; r < MANY; r++) {
    ranks[r] = r;
    args[r] = ranks;
  }
  for (uint64_t schedule = 0; schedule < 3; schedule++) {
    const struct sf_comm_report report = run(state, MANY, schedule, many_ranks, args);
    assert_int_equal(report.status, SF_OK);
    assert_int_equal(report.calls, MANY * 4 * 3);
  }
  free(ranks);
  free((void *)args);
}

/* Uses much of its stack; a world with larger stacks after one with smaller. */
static void use_stack(struct sf_comm *comm, void *arg) {
  volatile char room[400 << 10];
  for (size_t i = 0; i < sizeof room; i += 512) room[i] = (char)comm->rank;
  *(int *)arg += room[512] == (char)comm->rank;
}

static void test_run_larger_stack_after_smaller_is_given(void **state) {
  int good = 0;
  void *args[] = {&good, &good};
  run_shared(state, 2, 0, reduce_noise, (float[COUNT]){0});
  struct sf_comm_report report;
  const struct sf_sim_options options = {.world = 2, .stack_bytes = 1 << 20};
  assert_int_equal(sf_sim_run(*state, &options, use_stack, args, &report), SF_OK);
  assert_int_equal(good, 2);
}

static void test_run_measured_seconds_add_up(void **state) {
  struct sf_comm_report report;
  float out[COUNT];
  void *args[] = {out, out, out};
  const struct sf_sim_options options = {.world = 3, .schedule = 5, .measure = true};
  assert_int_equal(sf_sim_run(*state, &options, reduce_noise, args, &report), SF_OK);
  assert_true(report.seconds_reduce > 0 && report.seconds_schedule > 0);
  assert_true(report.seconds_reduce + report.seconds_schedule <= report.seconds_total);
  assert_int_equal(report.calls, 3);
  assert_true(report.switches >= 3);
}

/* Requests outlive several growths of every table: many groups, tags and requests at once. */
static void fill_tables(struct sf_comm *comm, void *arg) {
  enum { FLIGHTS = 700 };
  (void)arg;
  sf_request requests[2 * FLIGHTS];
  float in[FLIGHTS], out[FLIGHTS], sums[100];
  for (int32_t i = 0; i < FLIGHTS; i++) {
    out[i] = (float)(i + comm->rank);
    requests[2 * i] = sf_isend(comm, comm->rank ^ 1, i, &out[i], 1, SF_F32, "table.send");
    requests[2 * i + 1] = sf_irecv(comm, comm->rank ^ 1, i, &in[i], 1, SF_F32, "table.recv");
  }
  const struct sf_group pair = sf_group_create(everybody, 2, comm->rank);
  sf_request reductions[100];
  for (int i = 0; i < 100; i++) {
    sums[i] = (float)i;
    reductions[i] = sf_iall_reduce(comm, &pair, &sums[i], 1, SF_F32, SF_REDUCE_SUM, "table.reduce");
  }
  for (int32_t i = 0; i < 2 * FLIGHTS; i++) sf_wait(comm, requests[i]);
  for (int i = 99; i >= 0; i--) sf_wait(comm, reductions[i]);
  for (int32_t i = 0; i < FLIGHTS; i++)
    if (in[i] != (float)(i + (comm->rank ^ 1))) sf_comm_fail(comm, SF_ERANK, "message %d holds %g", i, (double)in[i]);
  for (int i = 0; i < 100; i++)
    if (sums[i] != (float)(2 * i)) sf_comm_fail(comm, SF_ERANK, "sum %d is %g", i, (double)sums[i]);
}

static void test_run_many_requests_in_flight_complete(void **state) {
  for (uint64_t schedule = 0; schedule < 10; schedule++) run_shared(state, 2, schedule, fill_tables, NULL);
}

/* Pairs (i, j) of 20 ranks are groups: more than the first table of groups holds. */
static void many_groups(struct sf_comm *comm, void *arg) {
  (void)arg;
  for (int32_t a = 0; a < comm->world; a++)
    for (int32_t b = a + 1; b < comm->world; b++) {
      const int32_t pair[] = {a, b};
      if (comm->rank != a && comm->rank != b) continue;
      const struct sf_group group = sf_group_create(pair, 2, comm->rank == b);
      float sum = (float)comm->rank;
      sf_all_reduce(comm, &group, &sum, 1, SF_F32, SF_REDUCE_SUM, "pair");
      if (sum != (float)(a + b)) sf_comm_fail(comm, SF_ERANK, "sum of %d and %d is %g", a, b, (double)sum);
    }
}

static void test_run_many_groups_complete(void **state) {
  for (uint64_t schedule = 0; schedule < 5; schedule++) assert_int_equal(run(state, 20, schedule, many_groups, NULL).status, SF_OK);
}

/* --- memory ----------------------------------------------------------------------------------------------------- */

/* Fails the k-th allocation for every k: each run either is out of memory or is right. */
static void test_run_out_of_memory_is_a_status(void **state) {
  (void)state;
  for (int64_t k = 1;; k++) {
    struct sf_sim *sim = NULL;
    struct sf_comm_report report = {.status = SF_OK};
    const struct sf_sim_options options = {.world = 2, .schedule = 3};
    sf_alloc_fail_at(k);
    enum sf_status status = sf_sim_create(&sim);
    if (status == SF_OK) status = sf_sim_run(sim, &options, fill_tables, NULL, &report);
    const bool failed = sf_alloc_did_fail();
    sf_alloc_fail_at(0);
    if (failed) assert_true(status == SF_ENOMEM || report.status == SF_ENOMEM);
    if (!failed) assert_true(status == SF_OK && report.status == SF_OK);
    /* The world can be used again. */
    if (sim != NULL) {
      assert_int_equal(sf_sim_run(sim, &options, fill_tables, NULL, &report), SF_OK);
      assert_int_equal(report.status, SF_OK);
    }
    sf_sim_destroy(sim);
    if (!failed) return;
  }
}

static int sim_create(void **state) { return sf_sim_create((struct sf_sim **)state) == SF_OK ? 0 : -1; }

static int sim_destroy(void **state) {
  sf_sim_destroy(*state);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_run_same_schedule_same_bytes),
      cmocka_unit_test(test_run_other_schedules_other_sums),
      cmocka_unit_test(test_all_reduce_schedule_0_adds_in_group_order),
      cmocka_unit_test(test_all_reduce_call_removed_elsewhere_same_order),
      cmocka_unit_test(test_isend_source_overwritten_shows_in_some_schedules),
      cmocka_unit_test(test_isend_source_overwritten_after_barrier_shows_in_some_schedules),
      cmocka_unit_test(test_iall_reduce_source_overwritten_shows_in_some_schedules),
      cmocka_unit_test(test_irecv_destination_read_early_is_poison_in_some_schedules),
      cmocka_unit_test(test_irecv_fp64_destination_is_nan_after_post),
      cmocka_unit_test(test_run_1024_ranks_complete),
      cmocka_unit_test(test_run_larger_stack_after_smaller_is_given),
      cmocka_unit_test(test_run_measured_seconds_add_up),
      cmocka_unit_test(test_run_many_requests_in_flight_complete),
      cmocka_unit_test(test_run_many_groups_complete),
      cmocka_unit_test(test_run_out_of_memory_is_a_status),
  };
  return cmocka_run_group_tests(tests, sim_create, sim_destroy);
}
