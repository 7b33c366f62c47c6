#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "harness/base/alloc.h"
#include "harness/worker/description.h"
#include "tests/worker_sample.h"

#include <stdlib.h>
#include <string.h>

static struct sf_description *make(const char *text) {
  struct sf_description *description = NULL;
  struct sf_error error = {SF_OK, ""};
  json_t *value = worker_json(text);
  if (sf_description_create(&description, value, &error) != SF_OK) fail_msg("%s", error.text);
  json_decref(value);
  return description;
}

static void test_complete_left_out_fields_take_their_first_choice(void **state) {
  (void)state;
  struct sf_description *description = make(worker_sample);
  json_t *given = worker_json("{'layout': {'sp': true}}"), *complete = NULL;
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
  struct sf_description *description = make(worker_sample);
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    json_t *given = worker_json(rows[i][0]), *complete = NULL;
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
  struct sf_description *description = make(worker_sample);
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

static void test_create_without_memory_leaves_nothing(void **state) {
  (void)state;
  json_t *value = worker_json(worker_sample);
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
      cmocka_unit_test(test_create_without_memory_leaves_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
