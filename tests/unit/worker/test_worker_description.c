#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "harness/base/alloc.h"
#include "harness/worker/description.h"

#include <stdlib.h>
#include <string.h>

/* Single quotes stand for double ones. */
static json_t *json_of(const char *text) {
  char *copy = strdup(text);
  for (char *at = copy; *at; at++) *at = *at == '\'' ? '"' : *at;
  json_error_t error;
  json_t *value = json_loads(copy, JSON_DECODE_ANY, &error);
  if (!value) fail_msg("%s: %s", text, error.text);
  free(copy);
  return value;
}

static const char sample[] =
    "{'name': 'm', 'draws': 3, 'fields': {'ranks': {'choices': [1, 2], 'layout': true}, 'model.hidden': {'min': 8, 'max': 32, 'step': 8},"
    "'model.kind': {'choices': ['gpt', [1, 2], null], 'needs': {'model.hidden': [16, 24, 9]}}, 'layout.sp': {'choices': [false, true], "
    "'layout': true}},"
    "'refuses': [{'when': {'layout.sp': [true], 'ranks': [1]}, 'reason': 'sp needs ranks'}, {'when': {'model.hidden': [32]}, 'reason': "
    "'wide'}]}";

static struct sf_description *make(const char *text) {
  struct sf_description *description = NULL;
  struct sf_error error = {SF_OK, ""};
  json_t *value = json_of(text);
  if (sf_description_create(&description, value, &error) != SF_OK) fail_msg("%s", error.text);
  json_decref(value);
  return description;
}

static void test_complete_left_out_fields_take_their_first_choice(void **state) {
  (void)state;
  struct sf_description *description = make(sample);
  json_t *given = json_of("{'layout': {'sp': true}}"), *complete = NULL;
  assert_int_equal(sf_description_complete(&complete, description, given, NULL), SF_OK);
  char *text = json_dumps(complete, JSON_COMPACT);
  assert_string_equal(text, "{\"ranks\":1,\"model\":{\"hidden\":8,\"kind\":\"gpt\"},\"layout\":{\"sp\":true}}");
  assert_string_equal(sf_description_name(description), "m");
  assert_int_equal(sf_description_draws(description), 3);
  assert_int_equal(sf_description_ranks(description, complete), 1);
  free(text);
  text = sf_description_function_text(description, complete);
  assert_string_equal(text, "{\"model\":{\"hidden\":8,\"kind\":\"gpt\"}}");
  free(text);
  json_decref(given);
  json_decref(complete);
  sf_description_destroy(description);
}

static void test_refusal_all_fields_of_a_rule_must_fit(void **state) {
  (void)state;
  static const char *const rows[][2] = {{"{'ranks': 1, 'layout': {'sp': true}}", "sp needs ranks"},
                                        {"{'ranks': 2, 'layout': {'sp': true}}", NULL},
                                        {"{}", NULL},
                                        {"{'model': {'hidden': 32}, 'ranks': 2}", "wide"}};
  struct sf_description *description = make(sample);
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    json_t *given = json_of(rows[i][0]), *complete = NULL;
    assert_int_equal(sf_description_complete(&complete, description, given, NULL), SF_OK);
    const char *reason = sf_description_refusal(description, complete);
    if (rows[i][1])
      assert_string_equal(reason, rows[i][1]);
    else
      assert_null(reason);
    json_decref(given);
    json_decref(complete);
  }
  sf_description_destroy(description);
}

static void test_rules_are_refusals_needs_and_ranks(void **state) {
  (void)state;
  struct sf_description *description = make(sample);
  const struct sf_rules *rules = sf_description_rules(description);
  const struct sf_rule *refusal = &rules->rule[0], *need = &rules->rule[sf_description_rule_count(description)];
  const int32_t needs = sf_description_limit(description, SF_DESCRIPTION_NEEDS);
  /* The refused row is a wide one; the third field needs the second at one of two numbers (9 is none of its numbers). */
  const int64_t at[2][8] = {{1, 2, 1, 0, 0, 1, 256, 1}, {0, 3, 1, 1, 0, 1, 256, 1}};
  assert_int_equal(need->condition[1].field, 1);
  assert_int_equal(need->condition[1].count, 2);
  assert_true(sf_rule_holds(need, at[0]) && !sf_rule_holds(need, at[1]));
  int64_t loose[8];
  memcpy(loose, at[1], sizeof loose);
  loose[needs] = 0;
  assert_true(sf_rule_holds(need, loose));
  assert_int_equal(refusal->condition_count, 2);
  assert_true(sf_rule_holds(refusal, at[0]) && !sf_rule_holds(refusal, at[1]));
  assert_int_equal(sf_description_ranks_at(description, at[0]), 2);
  sf_description_destroy(description);
}

static void test_complete_wrong_cases_are_refused_with_their_place(void **state) {
  (void)state;
  static const char *const rows[][2] = {{"[]", "a case is a JSON object"},
                                        {"{'model': 1}", "model: no such field of m; did you mean model.hidden?"},
                                        {"{'model': {'hiden': 8}}", "model.hiden: no such field of m; did you mean model.hidden?"},
                                        {"{'model.hidden': 8}", "model.hidden: no such field of m"},
                                        {"{'model': {'hidden': 12}}", "model.hidden: 12 is not one of 8, 16, .. 32"},
                                        {"{'model': {'hidden': 40}}", "model.hidden: 40 is not one of 8, 16, .. 32"},
                                        {"{'model': {'hidden': 8.0}}", "model.hidden: 8.0 is not one of 8, 16, .. 32"},
                                        {"{'model': {'hidden': {'x': 8}}}", "model.hidden: {\"x\":8} is not one of 8, 16, .. 32"},
                                        {"{'model': {'kind': 'bert'}}", "model.kind: \"bert\" is none of [\"gpt\",[1,2],null]"},
                                        {"{'ranks': true}", "ranks: true is none of [1,2]"}};
  struct sf_description *description = make(sample);
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    struct sf_error error = {SF_OK, ""};
    json_t *given = json_of(rows[i][0]), *complete = NULL;
    assert_int_equal(sf_description_complete(&complete, description, given, &error), SF_EINPUT);
    assert_string_equal(error.text, rows[i][1]);
    assert_null(complete);
    json_decref(given);
  }
  sf_description_destroy(description);
}

#define RANKS "'ranks': {'min': 1, 'max': 4, 'layout': true}"

static void test_create_wrong_descriptions_are_refused_with_their_place(void **state) {
  (void)state;
  static const char *const rows[][2] = {
      {"[]", "expected {\"name\""},
      {"{'name': 'm'}", "expected {\"name\""},
      {"{'name': '', 'fields': {" RANKS "}}", "expected {\"name\""},
      {"{'name': 'm', 'fields': []}", "fields: expected an object"},
      {"{'name': 'm', 'fields': {" RANKS "}, 'more': 1}", "more: no such key"},
      {"{'name': 'm', 'fields': {" RANKS "}, 'draws': 0}", "draws: 0"},
      {"{'name': 'm', 'fields': {}}", "fields.ranks: every worker needs it"},
      {"{'name': 'm', 'fields': {'ranks': {'min': 1, 'max': 4}}}", "fields.ranks: every worker needs it"},
      {"{'name': 'm', 'fields': {'ranks': {'min': 0, 'max': 4, 'layout': true}}}", "fields.ranks: every worker needs it"},
      {"{'name': 'm', 'fields': {'ranks': {'choices': [1, '2'], 'layout': true}}}", "fields.ranks: every worker needs it"},
      {"{'name': 'm', 'fields': {'ranks': {'choices': [1, 1000], 'layout': true}}}", "fields.ranks: every worker needs it"},
      {"{'name': 'm', 'fields': {" RANKS ", 'a': 1}}", "fields.a: expected"},
      {"{'name': 'm', 'fields': {" RANKS ", 'a': {}}}", "fields.a: nothing to choose from"},
      {"{'name': 'm', 'fields': {" RANKS ", 'a': {'choices': []}}}", "fields.a: nothing to choose from"},
      {"{'name': 'm', 'fields': {" RANKS ", 'a': {'min': 2, 'max': 1}}}", "fields.a: nothing to choose from"},
      {"{'name': 'm', 'fields': {" RANKS ", 'a': {'min': -9223372036854775807, 'max': 9223372036854775807}}}",
       "fields.a: more than 2^31 numbers to choose from"},
      {"{'name': 'm', 'fields': {" RANKS ", 'a': {'min': 0, 'max': 2147483648}}}", "fields.a: more than 2^31 numbers to choose from"},
      {"{'name': 'm', 'fields': {" RANKS ", 'a': {'min': 1, 'max': 2, 'step': 0}}}", "fields.a: nothing to choose from"},
      {"{'name': 'm', 'fields': {" RANKS ", 'a': {'choices': [{}]}}}", "fields.a: a choice is an object"},
      {"{'name': 'm', 'fields': {" RANKS ", 'a': {'choice': [1]}}}", "fields.a.choice: no such key"},
      {"{'name': 'm', 'fields': {" RANKS ", 'a': {'choices': [1], 'one_in': 256}}}", "fields.a.one_in: 256 is not between 1 and 255"},
      {"{'name': 'm', 'fields': {" RANKS ", 'a': {'choices': [1], 'one_in': -1}}}", "fields.a.one_in: -1 is not between 1 and 255"},
      {"{'name': 'm', 'fields': {" RANKS "}, 'simulates': 1}", "expected {\"name\""},
      {"{'name': 'm', 'fields': {" RANKS "}, 'devices': 'cuda'}", "devices: expected an array of names"},
      {"{'name': 'm', 'fields': {" RANKS "}, 'devices': [1]}", "devices: expected an array of names"},
      {"{'name': 'm', 'fields': {" RANKS ", 'a': {'choices': [1], 'needs': [1]}}}", "fields.a.needs: expected"},
      {"{'name': 'm', 'fields': {" RANKS ", 'a': {'choices': [1], 'needs': {'b': [1]}}}}", "fields.a.needs.b: no such field"},
      {"{'name': 'm', 'fields': {" RANKS ", 'a': {'choices': [1], 'needs': {'b': 1}}, 'b': {'choices': [1]}}}",
       "fields.a.needs.b: expected an array"},
      {"{'name': 'm', 'fields': {" RANKS ", 'a': {'choices': [1], 'needs': {'a': [1]}}}}", "fields.a.needs.a: a field needs others"},
      {"{'name': 'm', 'fields': {" RANKS ", 'a': {'choices': [1], 'needs': {'ranks': [2]}}}}",
       "fields.a.needs.ranks: a field needs others"},
      {"{'name': 'm', 'fields': {" RANKS ", 'a..b': {'choices': [1]}}}", "fields.a..b: not a path"},
      {"{'name': 'm', 'fields': {" RANKS ", '': {'choices': [1]}}}", "fields.: not a path"},
      {"{'name': 'm', 'fields': {" RANKS ", 'a': {'choices': [1]}, 'a.b': {'choices': [1]}}}", "fields.a.b lies within the field a"},
      {"{'name': 'm', 'fields': {" RANKS "}, 'ranks': ['ranks']}", "no field \"ranks\" beside it"},
      {"{'name': 'm', 'fields': {'tp': {'min': 1, 'max': 4}}, 'ranks': ['tp']}", "ranks[0]: expected the path"},
      {"{'name': 'm', 'fields': {'tp': {'min': 1, 'max': 4, 'layout': true}}, 'ranks': ['dp']}", "ranks[0]: expected the path"},
      {"{'name': 'm', 'fields': {'tp': {'min': 1, 'max': 4, 'layout': true}}, 'ranks': [1]}", "ranks[0]: expected the path"},
      {"{'name': 'm', 'fields': {'tp': {'min': 1, 'max': 4, 'layout': true}}, 'ranks': []}", "ranks: expected an array"},
      {"{'name': 'm', 'fields': {" RANKS "}, 'refuses': {}}", "refuses: expected an array"},
      {"{'name': 'm', 'fields': {" RANKS "}, 'refuses': [{'when': {}}]}", "refuses[0]: expected"},
      {"{'name': 'm', 'fields': {" RANKS "}, 'refuses': [{'when': {'b': [1]}, 'reason': 'x'}]}", "refuses[0].when.b: no such field"},
      {"{'name': 'm', 'fields': {" RANKS "}, 'refuses': [{'when': {'ranks': 1}, 'reason': 'x'}]}",
       "refuses[0].when.ranks: expected an array"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    struct sf_description *description = NULL;
    struct sf_error error = {SF_OK, ""};
    json_t *value = json_of(rows[i][0]);
    assert_int_equal(sf_description_create(&description, value, &error), SF_EINPUT);
    if (!strstr(error.text, rows[i][1])) fail_msg("%s: '%s' has no '%s'", rows[i][0], error.text, rows[i][1]);
    assert_null(description);
    json_decref(value);
  }
}

static void test_create_without_memory_leaves_nothing(void **state) {
  (void)state;
  json_t *value = json_of(sample);
  for (int64_t k = 1;; k++) {
    struct sf_description *description = NULL;
    sf_alloc_fail_at(k);
    const enum sf_status status = sf_description_create(&description, value, NULL);
    const bool failed = sf_alloc_did_fail();
    sf_alloc_fail_at(0);
    assert_int_equal(status, failed ? SF_ENOMEM : SF_OK);
    sf_description_destroy(description);
    if (!failed) break;
  }
  json_decref(value);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_complete_left_out_fields_take_their_first_choice),
      cmocka_unit_test(test_refusal_all_fields_of_a_rule_must_fit),
      cmocka_unit_test(test_rules_are_refusals_needs_and_ranks),
      cmocka_unit_test(test_complete_wrong_cases_are_refused_with_their_place),
      cmocka_unit_test(test_create_wrong_descriptions_are_refused_with_their_place),
      cmocka_unit_test(test_create_without_memory_leaves_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
