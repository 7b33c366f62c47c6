#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "generators/cover.h"
#include "generators/shrink.h"
#include "harness/run/framework/framework_case.h"
#include "harness/run/framework/framework_table.h"
#include "harness/run/trial/outcome.h"

#include <stdlib.h>
#include <string.h>

static const char fields[] =
    "{\"name\": \"m\", \"fields\": {\"ranks\": {\"choices\": [1, 2, 4], \"layout\": true}, \"sp\": {\"choices\": [false, true], "
    "\"layout\": true},"
    "\"a\": {\"min\": 1, \"max\": 40}, \"b\": {\"choices\": [0, 1]}, \"c\": {\"choices\": [0, 1]}, \"d\": {\"choices\": [\"x\", \"y\"]}, "
    "\"seed\": {\"min\": 0, \"max\": 9}},"
    "\"refuses\": [{\"when\": {\"b\": [1], \"c\": [0]}, \"reason\": \"b needs c\"}, {\"when\": {\"c\": [1], \"b\": [0]}, \"reason\": \"c "
    "needs b\"}]}";

static struct sf_description *describe(void) {
  struct sf_description *description = NULL;
  json_t *value = json_loads(fields, 0, NULL);
  assert_int_equal(sf_description_create(&description, value, NULL), SF_OK);
  json_decref(value);
  return description;
}

static struct sf_case case_of(const char *framework) {
  struct sf_case c;
  struct sf_error error = {SF_OK, ""};
  sf_case_init(&c);
  c.seed = 5;
  strcpy(c.target, "m");
  if (sf_case_set_framework(&c, framework, &error) != SF_OK) fail_msg("%s", error.text);
  assert_int_equal(sf_case_validate(&c, NULL), SF_OK);
  return c;
}

/* Fails where `need` is contained. */
struct bug {
  struct sf_case need;
  int64_t asked;
};

static bool fails(void *ctx, const struct sf_case *c) {
  struct bug *bug = ctx;
  bug->asked++;
  return sf_framework_case_contains(c, &bug->need);
}

static void test_shrink_comes_to_what_the_bug_needs(void **state) {
  (void)state;
  static const char *const rows[][2] = {{"{\"ranks\":4,\"sp\":true,\"a\":37,\"b\":1,\"c\":1,\"d\":\"y\"}", "{\"ranks\":2,\"a\":13}"},
                                        {"{\"ranks\":2,\"sp\":true,\"a\":37,\"b\":1,\"c\":1,\"d\":\"y\"}", "{\"ranks\":2}"},
                                        {"{\"ranks\":4,\"sp\":true,\"a\":37,\"b\":1,\"c\":1,\"d\":\"y\"}", "{\"ranks\":4,\"b\":1,\"c\":1}"},
                                        {"{\"ranks\":2,\"a\":2}", "{}"}};
  struct sf_description *description = describe();
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    struct bug bug = {case_of(rows[i][1]), 0};
    struct sf_shrink_report report;
    struct sf_case min;
    const struct sf_case big = case_of(rows[i][0]);
    const struct sf_choice_space space = {.description = description, .ranks_max = 4};
    const struct sf_table table = sf_framework_table(&space);
    assert_int_equal(sf_shrink_run(&min, &big, &table, fails, &bug, 300, &report), SF_OK);
    assert_string_equal(min.fields, rows[i][1]);
    assert_int_equal(min.seed, 0);
    assert_true(report.minimal && report.evaluations == bug.asked && report.evaluations < 60);
  }
  sf_description_destroy(description);
}

static void test_shrink_keeps_to_its_budget(void **state) {
  (void)state;
  struct sf_description *description = describe();
  struct bug bug = {case_of("{\"ranks\":2,\"a\":13}"), 0};
  struct sf_shrink_report report;
  struct sf_case min;
  const struct sf_case big = case_of("{\"ranks\":4,\"sp\":true,\"a\":37,\"d\":\"y\"}");
  const struct sf_choice_space space = {.description = description, .ranks_max = 4};
  const struct sf_table table = sf_framework_table(&space);
  assert_int_equal(sf_shrink_run(&min, &big, &table, fails, &bug, 3, &report), SF_OK);
  assert_int_equal(bug.asked, 3);
  assert_false(report.minimal);
  assert_true(sf_framework_case_contains(&min, &bug.need)); /* whatever was reached still fails */
  sf_description_destroy(description);
}

static void test_contains_numbers_at_least_and_choices_equal(void **state) {
  (void)state;
  static const struct {
    const char *c, *trigger;
    bool contains;
  } rows[] = {{"{\"ranks\":4}", "{\"ranks\":2}", true},
              {"{\"ranks\":2}", "{\"ranks\":4}", false},
              {"{\"d\":\"y\"}", "{\"d\":\"y\"}", true},
              {"{}", "{\"d\":\"y\"}", false},
              {"{\"m\":{\"a\":2,\"b\":true}}", "{\"m\":{\"b\":true}}", true},
              {"{\"m\":{\"b\":false}}", "{\"m\":{\"b\":true}}", false}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    const struct sf_case c = case_of(rows[i].c), trigger = case_of(rows[i].trigger);
    assert_int_equal(sf_framework_case_contains(&c, &trigger), rows[i].contains);
  }
}

static void test_mode_of_a_case_is_one_of_its_axes(void **state) {
  (void)state;
  static const char *const rows[][2] = {{"{\"layout\":{\"tp\":2}}", "tp"},
                                        {"{\"mode\":\"isolated\",\"layout\":{\"tp\":2}}", "tp+isolated"},
                                        {"{\"mode\":\"e2e\"}", "none"},
                                        {"{\"mode\":3,\"ranks\":2}", "dp"}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    const struct sf_case c = case_of(rows[i][0]);
    char axes[SF_AXES_TEXT];
    sf_signature_axes(axes, &c, NULL);
    assert_string_equal(axes, rows[i][1]);
  }
}

static void test_same_failure_whatever_the_mode(void **state) {
  (void)state;
  assert_true(sf_outcome_same_failure("tolerance/act/mlp" SF_KEY_ISOLATED, "tolerance/act/mlp"));
  assert_true(sf_outcome_same_failure("tolerance/act/mlp", "tolerance/act/mlp"));
  assert_false(sf_outcome_same_failure("tolerance/act/mlp" SF_KEY_ISOLATED, "tolerance/act/mlp.router" SF_KEY_ISOLATED));
  assert_false(sf_outcome_same_failure("tolerance/act/mlp+sp", "tolerance/act/mlp"));
}

static void test_draw_is_a_function_of_seed_and_index(void **state) {
  (void)state;
  struct sf_description *description = describe();
  const struct sf_choice_space space = {.description = description, .ranks_max = 4};
  const struct sf_table table = sf_framework_table(&space);
  struct sf_case a, b;
  int64_t different = 0;
  for (int64_t i = 0; i < 40; i++) {
    assert_int_equal(sf_cover_draw(&a, NULL, &table, 3, 4, i, 0, NULL), SF_OK);
    assert_int_equal(sf_cover_draw(&b, NULL, &table, 3, 4, i, 0, NULL), SF_OK);
    assert_memory_equal(&a, &b, sizeof a);
    assert_true(sf_case_ranks(&a) > 1);
    assert_int_equal(sf_cover_draw(&b, NULL, &table, 4, 4, i, 0, NULL), SF_OK);
    different += strcmp(a.fields, b.fields) != 0;
  }
  assert_true(different > 20);
  sf_description_destroy(description);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_shrink_comes_to_what_the_bug_needs),
      cmocka_unit_test(test_shrink_keeps_to_its_budget),
      cmocka_unit_test(test_contains_numbers_at_least_and_choices_equal),
      cmocka_unit_test(test_mode_of_a_case_is_one_of_its_axes),
      cmocka_unit_test(test_same_failure_whatever_the_mode),
      cmocka_unit_test(test_draw_is_a_function_of_seed_and_index),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
