/* The mutation wrapper on the simulated world: names, and what each kind makes of a call. */
#include "harness/comm/mutate.h"
#include "harness/comm/sim.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* --- names --------------------------------------------------------------------------------------------------------- */

static void test_mutation_parse_good_names_read(void **state) {
  (void)state;
  struct sf_mutation m;
  assert_int_equal(sf_mutation_parse(&m, "mutant:layer.fwd.all_reduce:wrong-group", NULL), SF_OK);
  assert_string_equal(m.label, "layer.fwd.all_reduce");
  assert_int_equal(m.kind, SF_MUTATION_WRONG_GROUP);
  assert_int_equal(m.occurrence, -1);
  assert_null(m.receive_label);
  assert_int_equal(sf_mutation_parse(&m, "mutant:x:stale:12", NULL), SF_OK);
  assert_int_equal(m.kind, SF_MUTATION_STALE);
  assert_int_equal(m.occurrence, 12);
  assert_true(sf_mutation_is_named("mutant:"));
  assert_false(sf_mutation_is_named("tp-embed-mask"));
}

static void test_mutation_parse_bad_names_refused(void **state) {
  (void)state;
  static const char *const bad[] = {"",
                                    "x",
                                    "mutant:",
                                    "mutant:x",
                                    "mutant::drop",
                                    "mutant:x:",
                                    "mutant:x:dro",
                                    "mutant:x:drops",
                                    "mutant:x:drop:",
                                    "mutant:x:drop:-1",
                                    "mutant:x:drop:1a",
                                    "mutant:x:drop:1:2",
                                    "mutant:x:drop:99999999999999999999"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    struct sf_mutation m;
    struct sf_error error = {SF_OK, ""};
    if (sf_mutation_parse(&m, bad[i], &error) != SF_EINPUT) fail_msg("\"%s\" was read", bad[i]);
    assert_true(*error.text);
  }
  char longest[2 * SF_NAME_TEXT];
  memset(longest, 'x', sizeof longest);
  memcpy(longest, "mutant:", 7);
  memcpy(longest + sizeof longest - 6, ":drop", 6);
  struct sf_mutation m;
  assert_int_equal(sf_mutation_parse(&m, longest, NULL), SF_EINPUT);
}

/* --- worlds -------------------------------------------------------------------------------------------------------- */

enum { WORLD = 4, ROOM = 16 };

struct rank_case {
  const char *mutant, *receive_label;
  void (*body)(struct sf_comm *comm, struct rank_case *rank);
  const struct sf_mesh *mesh;
  struct sf_arena *arena;
  struct sf_mutation mutation;
  struct sf_mutator mutator;
  struct sf_group tp, all;
  int32_t tp_ranks[WORLD], all_ranks[WORLD];
  float out[ROOM];
};

static void rank_main(struct sf_comm *comm, void *arg) {
  struct rank_case *rank = arg;
  int32_t index;
  rank->mutator = (struct sf_mutator){.mutation = &rank->mutation, .mesh = rank->mesh, .arena = rank->arena};
  if (rank->mutant) sf_mutator_install(&rank->mutator, comm);
  const int32_t size = sf_mesh_group(rank->mesh, comm->rank, SF_AXES(SF_AXIS_TP), rank->tp_ranks, &index);
  rank->tp = sf_group_create(rank->tp_ranks, size, index);
  for (int32_t i = 0; i < comm->world; i++) rank->all_ranks[i] = i;
  rank->all = sf_group_create(rank->all_ranks, comm->world, comm->rank);
  rank->body(comm, rank);
}

/* tp=2 x dp=2: rank = tp + 2 dp. */
struct world {
  struct sf_mesh mesh;
  struct rank_case ranks[WORLD];
  struct sf_comm_report report;
};

static struct world *world_run(void (*body)(struct sf_comm *, struct rank_case *), const char *mutant, const char *receive_label,
                               uint64_t schedule) {
  static struct world w;
  struct sf_sim *sim;
  void *args[WORLD];
  memset(&w, 0, sizeof w);
  struct sf_layout layout = {.tp = 2, .cp = 1, .ep = 1, .etp = 1, .dp = 2, .pp = 1, .vpp = 1, .order = "tp-cp-ep-dp-pp"};
  w.mesh = sf_mesh_from_layout(&layout);
  for (int32_t i = 0; i < WORLD; i++) {
    struct rank_case *rank = &w.ranks[i];
    *rank = (struct rank_case){.mutant = mutant, .body = body, .mesh = &w.mesh, .arena = sf_arena_create(4096, true)};
    assert_non_null(rank->arena);
    if (mutant) assert_int_equal(sf_mutation_parse(&rank->mutation, mutant, NULL), SF_OK);
    rank->mutation.receive_label = receive_label;
    args[i] = rank;
  }
  assert_int_equal(sf_sim_create(&sim), SF_OK);
  const struct sf_sim_options options = {.world = WORLD, .schedule = schedule};
  assert_int_equal(sf_sim_run(sim, &options, rank_main, args, &w.report), SF_OK);
  sf_sim_destroy(sim);
  for (int32_t i = 0; i < WORLD; i++) sf_arena_destroy(w.ranks[i].arena);
  return &w;
}

/* out of every rank, on some schedules, and how many calls fired there. */
static void check_at(void (*body)(struct sf_comm *, struct rank_case *), const char *mutant, const char *receive_label, int64_t fired,
                     const float expected[WORLD][ROOM], int32_t count) {
  for (uint64_t schedule = 0; schedule < 8; schedule++) {
    const struct world *w = world_run(body, mutant, receive_label, schedule);
    if (w->report.status != SF_OK) fail_msg("%s: %s", mutant, w->report.text);
    for (int32_t r = 0; r < WORLD; r++) {
      assert_int_equal(w->ranks[r].mutator.fired, fired);
      for (int32_t i = 0; i < count; i++)
        if (!(w->ranks[r].out[i] == expected[r][i]))
          fail_msg("%s: rank %d element %d: %g, not %g", mutant, r, i, (double)w->ranks[r].out[i], (double)expected[r][i]);
    }
  }
}

/* --- bodies -------------------------------------------------------------------------------------------------------- */

/* Two all-reduces over tp (rank + 1, then 10 (rank + 1)), the second asynchronous. */
static void two_all_reduces(struct sf_comm *comm, struct rank_case *rank) {
  rank->out[0] = (float)(comm->rank + 1);
  sf_all_reduce(comm, &rank->tp, rank->out, 1, SF_F32, SF_REDUCE_SUM, "sum");
  rank->out[1] = 10.0f * (float)(comm->rank + 1);
  const sf_request request = sf_iall_reduce(comm, &rank->tp, rank->out + 1, 1, SF_F32, SF_REDUCE_SUM, "sum");
  sf_wait(comm, request);
}

static void test_mutate_all_reduce_each_kind_changes_result(void **state) {
  (void)state;
  static const struct {
    const char *mutant;
    int64_t fired;
    float expected[WORLD][ROOM];
  } rows[] = {
      {NULL, 0, {{3, 30}, {3, 30}, {7, 70}, {7, 70}}},
      {"mutant:other:drop", 0, {{3, 30}, {3, 30}, {7, 70}, {7, 70}}},
      {"mutant:sum:observe", 2, {{3, 30}, {3, 30}, {7, 70}, {7, 70}}},
      {"mutant:sum:drop", 2, {{1, 10}, {2, 20}, {3, 30}, {4, 40}}},
      {"mutant:sum:drop:1", 1, {{3, 10}, {3, 20}, {7, 30}, {7, 40}}},
      {"mutant:sum:duplicate", 2, {{6, 60}, {6, 60}, {14, 140}, {14, 140}}},
      {"mutant:sum:duplicate:0", 1, {{6, 30}, {6, 30}, {14, 70}, {14, 70}}},
      {"mutant:sum:op-max", 2, {{2, 20}, {2, 20}, {4, 40}, {4, 40}}},
      {"mutant:sum:op-avg", 2, {{1.5f, 15}, {1.5f, 15}, {3.5f, 35}, {3.5f, 35}}},
      {"mutant:sum:wrong-group", 2, {{4, 40}, {6, 60}, {4, 40}, {6, 60}}},
      {"mutant:sum:missing-scale", 2, {{6, 60}, {6, 60}, {14, 140}, {14, 140}}},
      {"mutant:sum:extra-scale:1", 1, {{3, 15}, {3, 15}, {7, 35}, {7, 35}}},
      {"mutant:sum:stale", 2, {{0, 3}, {0, 3}, {0, 7}, {0, 7}}},
      {"mutant:sum:stale:1", 1, {{3, 3}, {3, 3}, {7, 7}, {7, 7}}},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    check_at(two_all_reduces, rows[i].mutant, NULL, rows[i].fired, rows[i].expected, 2);
}

static void gather_and_scatter(struct sf_comm *comm, struct rank_case *rank) {
  const float own[2] = {(float)(10 * comm->rank), (float)(10 * comm->rank + 1)};
  sf_all_gather(comm, &rank->all, rank->out, own, 2, SF_F32, "gather");
  float pieces[WORLD];
  for (int32_t i = 0; i < WORLD; i++) pieces[i] = (float)(100 * i + comm->rank);
  sf_reduce_scatter(comm, &rank->all, rank->out + 8, pieces, 1, SF_F32, SF_REDUCE_SUM, "scatter");
}

/* 0 1 10 11 20 21 30 31, and 400 r + 6. */
static void test_mutate_shift_rotates_pieces_by_one(void **state) {
  (void)state;
  float gathered[WORLD][ROOM], scattered[WORLD][ROOM];
  for (int32_t r = 0; r < WORLD; r++)
    for (int32_t i = 0; i < 8; i++) {
      scattered[r][i] = (float)(10 * (i / 2) + i % 2);
      gathered[r][i] = (float)(10 * ((i / 2 + 1) % WORLD) + i % 2);
      gathered[r][8] = (float)(400 * r + 6);
      scattered[r][8] = (float)(400 * ((r + 1) % WORLD) + 6);
    }
  check_at(gather_and_scatter, "mutant:gather:shift", NULL, 1, gathered, 9);
  check_at(gather_and_scatter, "mutant:scatter:shift", NULL, 1, scattered, 9);
}

/* Each rank sends 1 element to lower ranks and 2 to itself and higher ones. */
static void exchange(struct sf_comm *comm, struct rank_case *rank) {
  float send[2 * WORLD];
  int64_t send_counts[WORLD], recv_counts[WORLD], at = 0;
  for (int32_t i = 0; i < WORLD; i++) {
    send_counts[i] = i < comm->rank ? 1 : 2;
    recv_counts[i] = comm->rank < i ? 1 : 2;
    for (int64_t k = 0; k < send_counts[i]; k++) send[at++] = (float)(100 * comm->rank + 10 * i + (int32_t)k);
  }
  sf_all_to_all(comm, &rank->all, rank->out, recv_counts, send, send_counts, SF_F32, "exchange");
}

static void test_mutate_shift_exchange_rotates_by_first_piece(void **state) {
  (void)state;
  static const float expected[WORLD][ROOM] = {
      {100, 200, 300, 0, 1}, {110, 111, 210, 310, 10, 11}, {120, 121, 220, 221, 320, 20, 21}, {130, 131, 230, 231, 330, 331, 30, 31}};
  check_at(exchange, "mutant:exchange:shift", NULL, 1, expected, 8);
  static const float zeros[WORLD][ROOM] = {{0}};
  check_at(exchange, "mutant:exchange:stale", NULL, 1, zeros, 8);
}

/* Two messages round the ring, receive posted first; both ends keep their own labels. */
static void ring(struct sf_comm *comm, struct rank_case *rank) {
  const int32_t next = (comm->rank + 1) % WORLD, last = (comm->rank + WORLD - 1) % WORLD;
  float sent[2] = {(float)comm->rank, (float)(comm->rank + 10)};
  rank->out[0] = rank->out[1] = -1.0f;
  for (int i = 0; i < 2; i++) {
    const sf_request recv = sf_irecv(comm, last, 7, &rank->out[i], 1, SF_F32, "ring.recv");
    const sf_request send = sf_isend(comm, next, 7, &sent[i], 1, SF_F32, "ring.send");
    sf_wait(comm, send);
    sf_wait(comm, recv);
  }
}

static void test_mutate_messages_both_ends_change_alike(void **state) {
  (void)state;
  static const float clean[WORLD][ROOM] = {{3, 13}, {0, 10}, {1, 11}, {2, 12}};
  static const float none[WORLD][ROOM] = {{-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}};
  static const float second[WORLD][ROOM] = {{3, -1}, {0, -1}, {1, -1}, {2, -1}};
  static const float stale[WORLD][ROOM] = {{0, 3}, {0, 0}, {0, 1}, {0, 2}};
  check_at(ring, "mutant:ring.send:observe", "ring.recv", 4, clean, 2);
  check_at(ring, "mutant:ring.send:drop", "ring.recv", 4, none, 2);
  check_at(ring, "mutant:ring.send:drop:1", "ring.recv", 2, second, 2);
  check_at(ring, "mutant:ring.send:duplicate", "ring.recv", 4, clean, 2);
  check_at(ring, "mutant:ring.send:stale", "ring.recv", 4, stale, 2);
}

/* --- equivalence ---------------------------------------------------------------------------------------------------- */

static void test_mutate_poison_overwrites_outputs_only(void **state) {
  (void)state;
  const struct world *w = world_run(two_all_reduces, "mutant:sum:poison:1", NULL, 0);
  assert_int_equal(w->report.status, SF_OK);
  for (int32_t r = 0; r < WORLD; r++) {
    assert_false(isnan(w->ranks[r].out[0]));
    assert_true(isnan(w->ranks[r].out[1]));
    assert_int_equal(w->ranks[r].mutator.fired, 1);
  }
}

static uint64_t hash_of(void (*body)(struct sf_comm *, struct rank_case *), const char *mutant) {
  return world_run(body, mutant, NULL, 0)->ranks[1].mutator.output_hash;
}

static void test_mutate_output_hash_tells_changed_outputs(void **state) {
  (void)state;
  const uint64_t clean = hash_of(two_all_reduces, "mutant:sum:observe");
  assert_true(clean != 0);
  assert_true(clean == hash_of(two_all_reduces, "mutant:sum:poison")); /* of the outputs before they are overwritten */
  assert_true(clean != hash_of(two_all_reduces, "mutant:sum:drop"));
  assert_true(clean != hash_of(two_all_reduces, "mutant:sum:stale"));
  assert_true(hash_of(gather_and_scatter, "mutant:gather:observe") == hash_of(gather_and_scatter, "mutant:gather:duplicate"));
  assert_true(hash_of(gather_and_scatter, "mutant:gather:observe") != hash_of(gather_and_scatter, "mutant:gather:shift"));
}

static void group_of_one(struct sf_comm *comm, struct rank_case *rank) {
  const int32_t self = comm->rank;
  const struct sf_group alone = sf_group_create(&self, 1, 0);
  rank->out[0] = 5.0f;
  sf_all_reduce(comm, &alone, rank->out, 1, SF_F32, SF_REDUCE_SUM, "sum");
}

static void all_ranks(struct sf_comm *comm, struct rank_case *rank) {
  rank->out[0] = 1.0f;
  sf_all_reduce(comm, &rank->all, rank->out, 1, SF_F32, SF_REDUCE_SUM, "sum");
}

static void test_mutate_where_nothing_can_change_does_not_fire(void **state) {
  (void)state;
  static const float five[WORLD][ROOM] = {{5}, {5}, {5}, {5}}, four[WORLD][ROOM] = {{4}, {4}, {4}, {4}};
  check_at(group_of_one, "mutant:sum:stale", NULL, 0, five, 1);
  check_at(all_ranks, "mutant:sum:wrong-group", NULL, 0, four, 1); /* no axis has four members */
}

static void test_mutation_applies_leaves_out_what_has_another_name(void **state) {
  (void)state;
  assert_false(sf_mutation_applies(SF_MUTATION_OP_SUM, SF_COMM_ALL_REDUCE, SF_REDUCE_SUM));
  assert_false(sf_mutation_applies(SF_MUTATION_EXTRA_SCALE, SF_COMM_ALL_REDUCE, SF_REDUCE_SUM)); /* op-avg */
  assert_false(sf_mutation_applies(SF_MUTATION_OP_SUM, SF_COMM_ALL_REDUCE, SF_REDUCE_AVG));      /* missing-scale */
  assert_true(sf_mutation_applies(SF_MUTATION_OP_SUM, SF_COMM_ALL_REDUCE, SF_REDUCE_MAX));
  assert_false(sf_mutation_applies(SF_MUTATION_OP_MAX, SF_COMM_ALL_GATHER, SF_REDUCE_SUM));
  assert_false(sf_mutation_applies(SF_MUTATION_WRONG_GROUP, SF_COMM_SEND, SF_REDUCE_SUM));
  for (int kind = 0; kind < SF_MUTATION_KINDS; kind++)
    assert_false(sf_mutation_applies((enum sf_mutation_kind)kind, SF_COMM_RECV, SF_REDUCE_SUM));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_mutation_parse_good_names_read),
      cmocka_unit_test(test_mutation_parse_bad_names_refused),
      cmocka_unit_test(test_mutate_all_reduce_each_kind_changes_result),
      cmocka_unit_test(test_mutate_shift_rotates_pieces_by_one),
      cmocka_unit_test(test_mutate_shift_exchange_rotates_by_first_piece),
      cmocka_unit_test(test_mutate_messages_both_ends_change_alike),
      cmocka_unit_test(test_mutate_poison_overwrites_outputs_only),
      cmocka_unit_test(test_mutate_output_hash_tells_changed_outputs),
      cmocka_unit_test(test_mutate_where_nothing_can_change_does_not_fire),
      cmocka_unit_test(test_mutation_applies_leaves_out_what_has_another_name),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
