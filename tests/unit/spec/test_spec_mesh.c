#include "harness/spec/mesh.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORLD_MAX = 64 };

static struct sf_layout layout_of(int64_t tp, int64_t cp, int64_t dp, int64_t pp, const char *order) {
  struct sf_layout layout = {.tp = tp, .cp = cp, .ep = 1, .etp = 1, .dp = dp, .pp = pp, .vpp = 1};
  snprintf(layout.order, sizeof layout.order, "%s", order);
  return layout;
}

static unsigned axes_from_text(const char *text) {
  unsigned axes = 0;
  for (int axis = 0; axis < SF_AXIS_COUNT; axis++)
    if (strstr(text, sf_axis_name((enum sf_axis)axis)) != NULL) axes |= SF_AXES(axis);
  return axes;
}

/* Checks the group of each rank named in groups ("0 1/2 3") and returns how many ranks were named. */
static int check_groups(const struct sf_mesh *mesh, unsigned axes, char *groups) {
  int named = 0;
  for (char *rest_groups = NULL, *group = strtok_r(groups, "/", &rest_groups); group; group = strtok_r(NULL, "/", &rest_groups)) {
    int32_t expected[WORLD_MAX], found[WORLD_MAX], index = -1, count = 0;
    for (char *rest = NULL, *rank = strtok_r(group, " ", &rest); rank; rank = strtok_r(NULL, " ", &rest)) expected[count++] = atoi(rank);
    for (int32_t member = 0; member < count; member++) {
      assert_int_equal(sf_mesh_group(mesh, expected[member], axes, found, &index), count);
      const struct sf_group_place place = sf_mesh_group_place(mesh, expected[member], axes);
      assert_true(place.size == count && place.index == index && place.first == found[0]);
      assert_memory_equal(found, expected, (size_t)count * sizeof *expected);
      assert_int_equal(index, member);
    }
    named += count;
  }
  return named;
}

static void test_mesh_group_agrees_with_megatron_rank_generator(void **state) {
  (void)state;
  FILE *file = fopen("corpus/golden/rank_tables.csv", "r");
  assert_non_null(file);
  char line[1024];
  int rows = 0;
  assert_non_null(fgets(line, sizeof line, file));
  while (fgets(line, sizeof line, file) != NULL) {
    int tp, cp, dp, pp, groups_at = 0;
    char order[SF_ORDER_TEXT], axes[32];
    line[strcspn(line, "\n")] = '\0';
    assert_int_equal(sscanf(line, "%d,%d,%d,%d,%23[^,],%31[^,],%n", &tp, &cp, &dp, &pp, order, axes, &groups_at), 6);
    const struct sf_layout layout = layout_of(tp, cp, dp, pp, order);
    const struct sf_mesh mesh = sf_mesh_from_layout(&layout);
    assert_int_equal(check_groups(&mesh, axes_from_text(axes), line + groups_at), mesh.world);
    rows++;
  }
  fclose(file);
  assert_int_equal(rows, 600);
}

static void check_expert_groups(const struct sf_layout *layout, unsigned axes, char *groups) {
  for (char *rest_groups = NULL, *group = strtok_r(groups, "/", &rest_groups); group; group = strtok_r(NULL, "/", &rest_groups)) {
    int32_t expected[WORLD_MAX], found[WORLD_MAX], index = -1, count = 0;
    for (char *rest = NULL, *rank = strtok_r(group, " ", &rest); rank; rank = strtok_r(NULL, " ", &rest)) expected[count++] = atoi(rank);
    for (int32_t member = 0; member < count; member++) {
      assert_int_equal(sf_mesh_expert_group(layout, expected[member], axes, found, &index), count);
      const struct sf_group_place place = sf_mesh_expert_group_place(layout, expected[member], axes);
      assert_true(place.size == count && place.index == index && place.first == found[0]);
      assert_memory_equal(found, expected, (size_t)count * sizeof *expected);
      assert_int_equal(index, member);
    }
  }
}

static void test_mesh_expert_group_agrees_with_megatron_rank_generator(void **state) {
  (void)state;
  FILE *file = fopen("corpus/golden/expert_tables.csv", "r");
  assert_non_null(file);
  char line[1024];
  int rows = 0;
  assert_non_null(fgets(line, sizeof line, file));
  for (; fgets(line, sizeof line, file) != NULL; rows++) {
    int tp, cp, dp, pp, etp, ep, groups_at = 0;
    char order[SF_ORDER_TEXT], axes[32];
    line[strcspn(line, "\n")] = '\0';
    assert_int_equal(sscanf(line, "%d,%d,%d,%d,%d,%d,%23[^,],%31[^,],%n", &tp, &cp, &dp, &pp, &etp, &ep, order, axes, &groups_at), 8);
    struct sf_layout layout = layout_of(tp, cp, dp, pp, order);
    layout.etp = etp, layout.ep = ep;
    check_expert_groups(&layout, axes_from_text(axes), line + groups_at);
  }
  fclose(file);
  assert_int_equal(rows, 240);
}

/* Whatever the order: a stage's ranks stay a stage, and places are taken once each. */
static void test_mesh_expert_place_in_any_order_is_taken_once(void **state) {
  (void)state;
  struct sf_layout layout = layout_of(2, 1, 4, 2, "dp-pp-ep-tp-cp");
  layout.etp = 2, layout.ep = 2;
  const struct sf_mesh mesh = sf_mesh_from_layout(&layout);
  int taken[2][2][2][2] = {0};
  for (int32_t rank = 0; rank < mesh.world; rank++) {
    const struct sf_expert_place at = sf_mesh_expert_place(&layout, rank);
    taken[sf_mesh_coord(&mesh, rank).at[SF_AXIS_PP]][at.etp][at.ep][at.edp]++;
  }
  for (int i = 0; i < 16; i++) assert_int_equal((&taken[0][0][0][0])[i], 1);
}

static void test_mesh_rank_of_coord_is_the_rank(void **state) {
  (void)state;
  const struct sf_layout layout = layout_of(2, 1, 3, 4, "dp-pp-ep-tp-cp");
  const struct sf_mesh mesh = sf_mesh_from_layout(&layout);
  assert_int_equal(mesh.world, 24);
  for (int32_t rank = 0; rank < mesh.world; rank++) {
    const struct sf_coord coord = sf_mesh_coord(&mesh, rank);
    assert_int_equal(sf_mesh_rank(&mesh, &coord), rank);
    assert_int_equal(coord.at[SF_AXIS_DP], rank % 3);
    assert_int_equal(coord.at[SF_AXIS_PP], rank / 3 % 4);
    assert_int_equal(coord.at[SF_AXIS_TP], rank / 12);
    assert_int_equal(coord.at[SF_AXIS_CP] + coord.at[SF_AXIS_EP], 0);
  }
}

static void test_mesh_group_over_no_axis_is_the_rank_alone(void **state) {
  (void)state;
  const struct sf_layout layout = layout_of(2, 1, 2, 2, "tp-cp-ep-dp-pp");
  const struct sf_mesh mesh = sf_mesh_from_layout(&layout);
  int32_t ranks[8], index = -1;
  assert_int_equal(sf_mesh_group(&mesh, 5, 0, ranks, &index), 1);
  assert_int_equal(ranks[0], 5);
  assert_int_equal(index, 0);
  assert_int_equal(sf_mesh_group(&mesh, 5, SF_AXES_ALL, ranks, &index), 8);
  for (int32_t i = 0; i < 8; i++) assert_int_equal(ranks[i], i);
  assert_int_equal(index, 5);
}

static void test_mesh_default_order_ignores_the_order_of_the_layout(void **state) {
  (void)state;
  const struct sf_layout layout = layout_of(2, 1, 2, 1, "dp-tp-cp-ep-pp");
  const struct sf_mesh own = sf_mesh_from_layout(&layout), usual = sf_mesh_default_order(&layout);
  assert_int_equal(sf_mesh_coord(&own, 1).at[SF_AXIS_DP], 1);
  assert_int_equal(sf_mesh_coord(&usual, 1).at[SF_AXIS_TP], 1);
  assert_int_equal(usual.world, 4);
}

static void test_mesh_parse_order_reads_each_axis_once(void **state) {
  (void)state;
  enum sf_axis order[SF_AXIS_COUNT];
  assert_int_equal(sf_mesh_parse_order(order, "pp-dp-ep-cp-tp", NULL), SF_OK);
  const enum sf_axis expected[] = {SF_AXIS_PP, SF_AXIS_DP, SF_AXIS_EP, SF_AXIS_CP, SF_AXIS_TP};
  assert_memory_equal(order, expected, sizeof expected);
}

static void test_mesh_parse_order_of_anything_else_is_refused(void **state) {
  (void)state;
  static const char *const TEXTS[] = {"",
                                      "tp",
                                      "tp-cp-ep-dp",
                                      "tp-cp-ep-dp-pp-",
                                      "tp-cp-ep-dp-pp-tp",
                                      "tp-cp-ep-dp-tp",
                                      "-tp-cp-ep-dp-pp",
                                      "tp--ep-dp-pp",
                                      "TP-cp-ep-dp-pp",
                                      "tp-cp-ep-dp-ppp",
                                      "tp cp ep dp pp",
                                      "t-cp-ep-dp-pp"};
  for (size_t i = 0; i < sizeof TEXTS / sizeof TEXTS[0]; i++) {
    enum sf_axis order[SF_AXIS_COUNT] = {SF_AXIS_PP};
    struct sf_error error = {0};
    if (sf_mesh_parse_order(order, TEXTS[i], &error) != SF_EINPUT) fail_msg("\"%s\" was taken", TEXTS[i]);
    assert_int_not_equal(strlen(error.text), 0);
    assert_int_equal(order[0], SF_AXIS_PP);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_mesh_group_agrees_with_megatron_rank_generator),
      cmocka_unit_test(test_mesh_expert_group_agrees_with_megatron_rank_generator),
      cmocka_unit_test(test_mesh_expert_place_in_any_order_is_taken_once),
      cmocka_unit_test(test_mesh_rank_of_coord_is_the_rank),
      cmocka_unit_test(test_mesh_group_over_no_axis_is_the_rank_alone),
      cmocka_unit_test(test_mesh_default_order_ignores_the_order_of_the_layout),
      cmocka_unit_test(test_mesh_parse_order_reads_each_axis_once),
      cmocka_unit_test(test_mesh_parse_order_of_anything_else_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
