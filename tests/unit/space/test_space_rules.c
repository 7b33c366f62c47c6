/* What the text of a rule means, and what is said of a row that breaks it. */
#include "harness/space/rules.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { A, B, C, MODE, GROUP_ON, GROUP_SIZE, FIELDS };
static const char *const modes[] = {"plain", "fast", NULL};
static const struct sf_space_field fields[FIELDS] = {{"a", 1, NULL},     {"b", 1, NULL},        {"c", 0, NULL},
                                                     {"mode", 0, modes}, {"group.on", 0, NULL}, {"group.size", 8, NULL}};

static struct sf_rules rules;

/* The row has these three numbers, and mode. */
static bool holds(const char *text, int64_t a, int64_t b, int64_t c, int64_t mode) {
  const int64_t at[FIELDS] = {a, b, c, mode, 0, 8};
  sf_rules_init(&rules, fields, FIELDS);
  sf_rules_add(&rules, text, NULL);
  return sf_rules_broken(&rules, at) == NULL;
}

static void test_rules_add_each_word_means_what_the_header_says(void **state) {
  (void)state;
  assert_true(holds("a divides b", 3, 6, 0, 0) && !holds("a divides b", 4, 6, 0, 0));
  assert_true(holds("c divides c", 1, 1, 0, 0) && !holds("c divides b", 1, 1, 0, 0)); /* 0 divides 0 alone */
  assert_true(holds("2 * a * b divides c", 2, 3, 12, 0) && !holds("2 * a * b divides c", 2, 3, 18, 0));
  assert_true(holds("a + b <= c", 1, 2, 3, 0) && !holds("a + b <= c", 1, 3, 3, 0));
  assert_true(holds("a + b < c", 1, 2, 4, 0) && !holds("a + b < c", 1, 2, 3, 0));
  assert_true(holds("a >= b", 2, 2, 0, 0) && !holds("a >= b", 1, 2, 0, 0));
  assert_true(holds("a > b", 3, 2, 0, 0) && !holds("a > b", 2, 2, 0, 0));
  assert_true(holds("a != 1", 2, 1, 0, 0) && !holds("a != 1", 1, 1, 0, 0));
  assert_true(holds("mode = fast", 1, 1, 0, 1) && !holds("mode = fast", 1, 1, 0, 0));
  assert_true(holds("a - has(c) divides b", 3, 4, 1, 0) && !holds("a - has(c) divides b", 3, 4, 0, 0));
  assert_true(holds("a divides b or b divides a", 6, 2, 0, 0) && !holds("a divides b or b divides a", 6, 4, 0, 0));
  assert_true(holds("a divides b if mode = fast and c > 0", 4, 6, 0, 1) && holds("a divides b if mode = fast and c > 0", 4, 6, 1, 0));
  assert_false(holds("a divides b if mode = fast and c > 0", 4, 6, 1, 1));
  assert_true(holds("c needs a > 1 or b > 1", 1, 1, 0, 0) && holds("c needs a > 1 or b > 1", 1, 2, 5, 0));
  assert_false(holds("c needs a > 1 or b > 1", 1, 1, 5, 0));
  assert_true(holds("c excludes mode", 1, 1, 5, 0) && holds("c excludes mode", 1, 1, 0, 1) && !holds("c excludes mode", 1, 1, 5, 1));
}

static void test_rules_add_of_a_group_binds_each_of_its_fields_but_the_needed_one(void **state) {
  (void)state;
  int64_t at[FIELDS] = {1, 1, 0, 0, 1, 8};
  sf_rules_init(&rules, fields, FIELDS);
  sf_rules_add(&rules, "group.* needs group.on > 0", NULL);
  assert_int_equal(rules.rule_count, 1);
  assert_null(sf_rules_broken(&rules, at));
  at[GROUP_SIZE] = 9;
  assert_null(sf_rules_broken(&rules, at));
  at[GROUP_ON] = 0;
  assert_non_null(sf_rules_broken(&rules, at));
}

static void check_says(const char *text, const char *why, int64_t a, int64_t b, int64_t c, const char *expected) {
  const int64_t at[FIELDS] = {a, b, c, 1, 0, 8};
  struct sf_error error = {SF_OK, ""};
  sf_rules_init(&rules, fields, FIELDS);
  sf_rules_add(&rules, text, why);
  const struct sf_rule *broken = sf_rules_broken(&rules, at);
  assert_non_null(broken);
  assert_int_equal(sf_rule_explain(broken, &rules, at, &error), SF_EINPUT);
  assert_string_equal(error.text, expected);
}

static void test_rule_explain_names_field_value_and_reason(void **state) {
  (void)state;
  check_says("a divides b", NULL, 3, 4, 0, "a: 3 does not divide b 4");
  check_says("2 divides b if mode = fast", "pairs", 1, 3, 0, "b: 3 is no multiple of 2 (needed where mode = fast): pairs");
  check_says("a * b < c", NULL, 3, 4, 12, "a * b: 12 is not below c 12");
  check_says("a <= c", NULL, 3, 4, 2, "a: 3 is more than c 2");
  check_says("mode = plain if c > 0", NULL, 1, 1, 1, "mode: must be plain (needed where c > 0)");
  check_says("c needs a > 1", "that is how it is", 1, 1, 1, "c: needs a > 1: that is how it is");
  check_says("c excludes mode = fast", NULL, 1, 1, 1, "c: not with mode = fast");
  check_says("a - has(c) divides b", "the others share it", 3, 3, 1, "a: the others share it: a 3, c 1, b 3");
}

static void test_rules_follow_goes_from_what_is_needed_to_what_needs_it(void **state) {
  (void)state;
  sf_rules_init(&rules, fields, FIELDS);
  sf_rules_add(&rules, "c needs a > 1", NULL);
  sf_rules_add(&rules, "a divides b if mode = fast", NULL);
  assert_true(sf_rules_follow(&rules, A, C) && !sf_rules_follow(&rules, C, A));
  assert_true(sf_rules_follow(&rules, A, B) && sf_rules_follow(&rules, B, A));
  assert_true(sf_rules_follow(&rules, MODE, B) && !sf_rules_follow(&rules, B, MODE));
  assert_false(sf_rules_follow(&rules, A, A) || sf_rules_follow(&rules, B, C));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rules_add_each_word_means_what_the_header_says),
      cmocka_unit_test(test_rules_add_of_a_group_binds_each_of_its_fields_but_the_needed_one),
      cmocka_unit_test(test_rule_explain_names_field_value_and_reason),
      cmocka_unit_test(test_rules_follow_goes_from_what_is_needed_to_what_needs_it),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
