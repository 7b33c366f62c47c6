/* Who is to blame when a world of ranks ends. */
#include "harness/run/process/world_end.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 3 };
struct world {
  struct sf_process_page pages[RANKS];
  const struct sf_process_page *list[RANKS];
};

static struct world world_of(int32_t first, int32_t second, int32_t third) {
  struct world world;
  const int32_t states[RANKS] = {first, second, third};
  memset(&world, 0, sizeof world);
  for (int32_t i = 0; i < RANKS; i++) {
    world.pages[i].progress.rank = i;
    world.pages[i].progress.in_call = states[i];
    snprintf(world.pages[i].progress.label, sizeof world.pages[i].progress.label, "layer.call_%d", i);
  }
  return world;
}

static struct sf_world_end end_of(struct world *world, int32_t count, bool hang) {
  struct sf_world_end end;
  for (int32_t i = 0; i < RANKS; i++) world->list[i] = &world->pages[i];
  sf_world_end_find(&end, world->list, count, hang);
  return end;
}

static void expect(const struct sf_world_end *end, enum sf_finding_class cls, int32_t rank, const char *words) {
  char text[240], label[32];
  snprintf(label, sizeof label, "layer.call_%d", rank);
  sf_world_end_text(text, sizeof text, end);
  assert_int_equal(end->cls, cls);
  assert_int_equal(end->rank, rank);
  assert_string_equal(end->label, label);
  assert_non_null(strstr(text, words));
  assert_non_null(strstr(text, label));
}

static void test_find_one_outside_calls_hang_of_that_rank(void **state) {
  (void)state;
  struct world world = world_of(SF_COMM_INSIDE, SF_COMM_OUTSIDE, SF_COMM_INSIDE);
  const struct sf_world_end end = end_of(&world, RANKS, true);
  expect(&end, SF_CLASS_HANG, 1, "rank 1 did not go on");
  assert_int_equal(end.manner, SF_MANNER_NONE);
}

static void test_find_all_inside_calls_deadlock_of_lowest_that_waits(void **state) {
  (void)state;
  struct world world = world_of(SF_COMM_ENDED, SF_COMM_INSIDE, SF_COMM_INSIDE);
  const struct sf_world_end end = end_of(&world, RANKS, true);
  expect(&end, SF_CLASS_DEADLOCK, 1, "rank 1 waits");
}

static void test_find_all_through_hang_of_first_rank(void **state) {
  (void)state;
  struct world world = world_of(SF_COMM_ENDED, SF_COMM_ENDED, SF_COMM_ENDED);
  const struct sf_world_end end = end_of(&world, RANKS, true);
  expect(&end, SF_CLASS_HANG, 0, "rank 0 did not go on");
}

/* A reference or a judgement that takes too long says nothing about the code under test. */
static void test_find_own_part_of_all_ranks_is_no_finding(void **state) {
  (void)state;
  char text[240];
  for (int32_t others = 0; others < 2; others++) {
    struct world world = world_of(SF_COMM_ENDED, SF_COMM_ENDED, SF_COMM_ENDED);
    for (int32_t i = 0; i < RANKS; i++) world.pages[i].is_own = i == 0 || others;
    const struct sf_world_end end = end_of(&world, RANKS, true);
    sf_world_end_text(text, sizeof text, &end);
    assert_int_equal(end.is_own, others);
    assert_int_equal(strstr(text, "the judgement took longer") != NULL, others);
    assert_false(end_of(&world, RANKS, false).is_own);
  }
}

static void test_find_signal_crash_even_at_deadline(void **state) {
  (void)state;
  for (int hang = 0; hang < 2; hang++) {
    struct world world = world_of(SF_COMM_OUTSIDE, SF_COMM_INSIDE, SF_COMM_OUTSIDE);
    world.pages[2].signal = SIGSEGV;
    world.pages[2].manner = SF_MANNER_WRITE;
    const struct sf_world_end end = end_of(&world, RANKS, hang != 0);
    expect(&end, SF_CLASS_CRASH, 2, "signal 11 (Segmentation fault)");
    assert_int_equal(end.manner, SF_MANNER_WRITE);
  }
}

static void test_find_gone_without_signal_crash_by_itself(void **state) {
  (void)state;
  struct world world = world_of(SF_COMM_INSIDE, SF_COMM_INSIDE, SF_COMM_OUTSIDE);
  const struct sf_world_end end = end_of(&world, RANKS, false);
  expect(&end, SF_CLASS_CRASH, 2, "ended by itself");
  assert_int_equal(end.manner, SF_MANNER_DIED);
}

static void test_find_one_page_hang_of_the_rank_it_names(void **state) {
  (void)state;
  struct world world = world_of(SF_COMM_INSIDE, 0, 0);
  world.pages[0].progress.rank = 2; /* simulated ranks share a page */
  snprintf(world.pages[0].progress.label, sizeof world.pages[0].progress.label, "layer.call_2");
  const struct sf_world_end end = end_of(&world, 1, true);
  expect(&end, SF_CLASS_HANG, 2, "rank 2 did not go on");
}

static bool waits_for(struct world *world, int32_t i) {
  for (int32_t k = 0; k < RANKS; k++) world->list[k] = &world->pages[k];
  return sf_world_waits_for(world->list, RANKS, i);
}

static void test_others_wait_for_ranks_outside_calls_or_for_all(void **state) {
  (void)state;
  struct world one_works = world_of(SF_COMM_INSIDE, SF_COMM_OUTSIDE, SF_COMM_ENDED), all_wait = world_of(SF_COMM_INSIDE, SF_COMM_INSIDE, 0);
  all_wait.pages[2].progress.in_call = SF_COMM_ENDED;
  for (int32_t i = 0; i < RANKS; i++) {
    assert_int_equal(waits_for(&one_works, i), i == 1);
    assert_true(waits_for(&all_wait, i));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_find_one_outside_calls_hang_of_that_rank),
      cmocka_unit_test(test_find_all_inside_calls_deadlock_of_lowest_that_waits),
      cmocka_unit_test(test_find_all_through_hang_of_first_rank),
      cmocka_unit_test(test_find_own_part_of_all_ranks_is_no_finding),
      cmocka_unit_test(test_find_signal_crash_even_at_deadline),
      cmocka_unit_test(test_find_gone_without_signal_crash_by_itself),
      cmocka_unit_test(test_find_one_page_hang_of_the_rank_it_names),
      cmocka_unit_test(test_others_wait_for_ranks_outside_calls_or_for_all),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
