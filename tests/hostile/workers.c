/* What workers say: descriptions, cases for them, answers. */
#include "tests/hostile/hostile.h"
#include "tests/hostile/one_rank.h"
#include "tests/rounds.h"
#include "tests/unit/run/run_fixture.h"

#include "harness/worker/description.h"

#include "harness/base/sinks.h"
#include "tests/worker_sample.h"

#define RANKS "'ranks': {'min': 1, 'max': 4, 'layout': true}"
/* --- descriptions, and cases for them ------------------------------------------------------------------------------ */

/* reason: NULL, or what the refusal has in it. */
static void try_description(const char *text, const char *reason) {
  struct sf_description *description = NULL;
  struct sf_error error = {SF_OK, ""};
  json_t *value = worker_json(text), *complete = NULL, *none = json_object();
  const enum sf_status status = value != NULL ? sf_description_create(&description, value, &error) : SF_OK;
  if (reason != NULL && (value == NULL || status == SF_OK)) fail_msg("not refused: %s", text);
  if (status != SF_OK) {
    law_refusal(status, &error, NULL);
    if (reason != NULL && strstr(error.text, reason) == NULL) fail_msg("%s: '%s' has no '%s'", text, error.text, reason);
    assert_null(description);
    hostile_try(HOSTILE_WORKER);
  } else if (value != NULL) {
    assert_int_equal(sf_description_complete(&complete, description, none, &error), SF_OK);
    assert_in_range(sf_description_ranks(description, complete), 1, SF_DESCRIPTION_RANKS_MAX);
  }
  sf_description_destroy(description);
  json_decref(complete);
  json_decref(none);
  json_decref(value);
}

static void test_descriptions_that_are_none_are_refused_with_their_place(void **state) {
  static const char *const rows[][2] = {
      {"[]", "expected {\"name\""},
      {"{'name': 'm'}", "expected {\"name\""},
      {"{'name': '', 'fields': {" RANKS "}}", "expected {\"name\""},
      {"{'name': 'm', 'fields': []}", "fields: expected an object"},
      {"{'name': 'm', 'fields': {" RANKS "}, 'more': 1}", "more: no such key"},
      {"{'name': 'm', 'fields': {" RANKS "}, 'draws': 0}", "draws: 0"},
      {"{'name': 'm', 'fields': {" RANKS "}, 'draws': 4294967299}", "draws: 4294967299"},
      {"{'name': 'm', 'fields': {" RANKS ", 'a': {'choices': [1], 'one_in': 4294967298}}}", "one_in: 4294967298 is not between"},
      {"{'name': 'm', 'fields': {" RANKS ", 'a': {'choices': [1], 'one_in': 0}}}", "one_in: 0 is not between"},
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
      {"{'name': 'm', 'fields': {" RANKS "}, 'refuses': [{'when': {}, 'reason': ''}]}", "refuses[0]: expected"},
      {"{'name': 'm', 'fields': {" RANKS "}, 'refuses': [{'when': {'b': [1]}, 'reason': 'x'}]}", "refuses[0].when.b: no such field"},
      {"{'name': 'm', 'fields': {" RANKS "}, 'refuses': [{'when': {'ranks': 1}, 'reason': 'x'}]}",
       "refuses[0].when.ranks: expected an array"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) try_description(rows[i][0], rows[i][1]);
}

static void test_description_members_with_values_that_they_may_not_have_are_refused(void **state) {
  static const char *const forms[] = {"%s",
                                      "{'name': %s, 'fields': {" RANKS "}}",
                                      "{'name': 'm', 'fields': %s}",
                                      "{'name': 'm', 'fields': {'ranks': %s}}",
                                      "{'name': 'm', 'fields': {" RANKS "}, %s: 1}",
                                      "{'name': 'm', 'fields': {" RANKS "}, 'draws': %s}",
                                      "{'name': 'm', 'fields': {" RANKS "}, 'simulates': %s}",
                                      "{'name': 'm', 'fields': {" RANKS "}, 'scripts': %s}",
                                      "{'name': 'm', 'fields': {" RANKS "}, 'anchored': %s}",
                                      "{'name': 'm', 'fields': {" RANKS "}, 'operations': %s}",
                                      "{'name': 'm', 'fields': {" RANKS "}, 'note': %s}",
                                      "{'name': 'm', 'fields': {" RANKS "}, 'devices': %s}",
                                      "{'name': 'm', 'fields': {" RANKS "}, 'devices': [%s]}",
                                      "{'name': 'm', 'fields': {" RANKS "}, 'ranks': %s}",
                                      "{'name': 'm', 'fields': {" RANKS "}, 'refuses': %s}",
                                      "{'name': 'm', 'fields': {" RANKS "}, 'refuses': [%s]}",
                                      "{'name': 'm', 'fields': {" RANKS "}, 'refuses': [{'when': %s, 'reason': 'x'}]}",
                                      "{'name': 'm', 'fields': {" RANKS "}, 'refuses': [{'when': {%s: [1]}, 'reason': 'x'}]}",
                                      "{'name': 'm', 'fields': {" RANKS "}, 'refuses': [{'when': {'ranks': %s}, 'reason': 'x'}]}",
                                      "{'name': 'm', 'fields': {" RANKS "}, 'refuses': [{'when': {}, 'reason': %s}]}",
                                      "{'name': 'm', 'fields': {" RANKS ", %s: {'choices': [1]}}}",
                                      "{'name': 'm', 'fields': {" RANKS ", 'a': %s}}",
                                      "{'name': 'm', 'fields': {" RANKS ", 'a': {'choices': %s}}}",
                                      "{'name': 'm', 'fields': {" RANKS ", 'a': {'choices': [%s]}}}",
                                      "{'name': 'm', 'fields': {" RANKS ", 'a': {'min': %s, 'max': 3}}}",
                                      "{'name': 'm', 'fields': {" RANKS ", 'a': {'min': 1, 'max': %s}}}",
                                      "{'name': 'm', 'fields': {" RANKS ", 'a': {'min': 1, 'max': 3, 'step': %s}}}",
                                      "{'name': 'm', 'fields': {" RANKS ", 'a': {'choices': [1], 'layout': %s}}}",
                                      "{'name': 'm', 'fields': {" RANKS ", 'a': {'choices': [1], 'one_in': %s}}}",
                                      "{'name': 'm', 'fields': {" RANKS ", 'a': {'choices': [1], 'needs': %s}}}",
                                      "{'name': 'm', 'fields': {" RANKS ", 'a': {'choices': [1], 'needs': {%s: [1]}}}}",
                                      "{'name': 'm', 'fields': {" RANKS ", 'a': {'choices': [1], %s: 1}}}"};
  (void)state;
  for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
    for (int i = (int)f % SF_STRIDE; i < HOSTILE_JSON_COUNT; i += SF_STRIDE) {
      struct sf_text text = {0};
      hostile_fill_json(&text, forms[f], i);
      try_description(text.data, NULL);
      sf_text_destroy(&text);
    }
  }
}

static void try_case(const struct sf_description *description, const char *text, const char *reason) {
  struct sf_error error = {SF_OK, ""};
  json_t *given = worker_json(text), *complete = NULL;
  if (given == NULL) return;
  const enum sf_status status = sf_description_complete(&complete, description, given, &error);
  if (status == SF_OK && reason != NULL) fail_msg("not refused: %s", text);
  if (status != SF_OK) {
    law_refusal(status, &error, NULL);
    if (reason != NULL) assert_string_equal(error.text, reason);
    assert_null(complete);
    hostile_try(HOSTILE_WORKER);
  }
  json_decref(complete);
  json_decref(given);
}

static void test_cases_that_a_worker_does_not_have_are_refused_with_their_place(void **state) {
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
  static const char *const forms[] = {"%s",
                                      "{%s: 1}",
                                      "{'ranks': %s}",
                                      "{'model': %s}",
                                      "{'model': {%s: 1}}",
                                      "{'model': {'hidden': %s}}",
                                      "{'model': {'kind': %s}}",
                                      "{'layout': {'sp': %s}}"};
  struct sf_description *description = NULL;
  json_t *value = worker_json(worker_sample);
  (void)state;
  assert_int_equal(sf_description_create(&description, value, NULL), SF_OK);
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) try_case(description, rows[i][0], rows[i][1]);
  for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
    for (int i = (int)f % SF_STRIDE; i < HOSTILE_JSON_COUNT; i += SF_STRIDE) {
      struct sf_text text = {0};
      hostile_fill_json(&text, forms[f], i);
      try_case(description, text.data, NULL);
      sf_text_destroy(&text);
    }
  }
  sf_description_destroy(description);
  json_decref(value);
}

/* --- answers ------------------------------------------------------------------------------------------------------ */

/* Whether a rank that has said this may have more to say. */
static bool is_open_ended(const char *bytes, size_t size_bytes) {
  return size_bytes == 0 || bytes[size_bytes - 1] != '\n' || memmem(bytes, size_bytes, "heartbeat", strlen("heartbeat")) != NULL;
}

/* Gives the rank's answer, of any bytes, to the first request. wanted: how the request must end. */
static void try_answer(const char *bytes, size_t size_bytes, unsigned wanted) {
  struct one_rank rank;
  struct sf_worker_report report;
  struct sf_text shown = {0};
  one_rank_open(&rank);
  one_rank_ask(&rank, &report, bytes, size_bytes, is_open_ended(bytes, size_bytes));
  if ((wanted >> report.end & 1) == 0) fail_msg("%s (%s) after %.*s", sf_worker_end_name(report.end), report.text, (int)size_bytes, bytes);
  assert_int_equal(line_count(report.text), 0);
  assert_int_equal(rank.set.over, !sf_worker_goes_on(report.end));
  assert_int_equal(report.value != NULL, report.end == SF_WORKER_ANSWERED);
  sf_line_append(&shown, "shardfuzz: %s\n", report.text);
  assert_lines(shown.data);
  assert_int_equal(line_count(shown.data), 1);
  if ((report.text[strspn(report.text, " ")] == '\0') != (report.end == SF_WORKER_ANSWERED))
    fail_msg("%s without a reason after %s", sf_worker_end_name(report.end), bytes);
  if (report.end != SF_WORKER_ANSWERED) hostile_try(HOSTILE_WORKER);
  sf_text_destroy(&shown);
  sf_worker_report_clear(&report);
  one_rank_close(&rank);
}

#define BIT(end) (1u << (end))
enum {
  ENDED = BIT(SF_WORKER_GARBLED) | BIT(SF_WORKER_DIED),
  SAID = BIT(SF_WORKER_REFUSED) | BIT(SF_WORKER_FULL) | BIT(SF_WORKER_RAISED) | BIT(SF_WORKER_UNUSABLE)
};

static void test_answers_that_are_none_end_the_set_with_one_line(void **state) {
  static const char *const lines[] = {"",
                                      "\n",
                                      "{}\n",
                                      "[]\n",
                                      "{\"id\": 1}\n",
                                      "{\"id\": 2, \"ok\": {}}\n",
                                      "{\"id\": 0, \"ok\": {}}\n",
                                      "{\"id\": \"1\", \"ok\": {}}\n",
                                      "{\"id\": 1, \"ok\": {}",
                                      "{\"id\": 1, \"ok\": {}}",
                                      "{\"id\": 1, \"id\": 1, \"ok\": {}}\n",
                                      "{\"id\": 1, \"refused\": 1}\n",
                                      "{\"id\": 1, \"error\": null}\n",
                                      "{\"id\": 1, \"heartbeat\": true}\n",
                                      "{\"id\": 1, \"heartbeat\": true}\nx\n",
                                      "{\"hello\": 1, \"rank\": 0, \"ranks\": 1}\n"};
  static const char nul[] = "{\"id\": 1,\0 \"ok\": {}}\n";
  (void)state;
  for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) try_answer(lines[i], strlen(lines[i]), ENDED);
  try_answer(nul, sizeof nul - 1, ENDED);
}

static void test_answer_cut_or_changed_anywhere_ends_the_set_or_is_another_answer(void **state) {
  static const char sound[] = "{\"id\": 1, \"ok\": {\"ranks\": [1, 2.5, null], \"text\": \"x\\n\"}}\n";
  static const char bytes[] = {'\0', '"', '{', '\n', '\x1b', '\xff'};
  char changed[sizeof sound];
  (void)state;
  for (size_t length = 0; length + 1 < sizeof sound; length++) try_answer(sound, length, ENDED);
  for (size_t at = 0; at + 1 < sizeof sound; at += SF_STRIDE) {
    for (size_t i = 0; i < sizeof bytes; i++) {
      memcpy(changed, sound, sizeof sound);
      changed[at] = bytes[i];
      try_answer(changed, sizeof sound - 1, ENDED | BIT(SF_WORKER_ANSWERED));
    }
  }
}

static void test_answers_with_any_text_and_value_are_told_in_one_line(void **state) {
  static const char *const forms[] = {"%s\n",
                                      "{\"id\": %s, \"ok\": {}}\n",
                                      "{\"id\": 1, %s: \"x\"}\n",
                                      "{\"id\": 1, \"refused\": %s}\n",
                                      "{\"id\": 1, \"full\": %s}\n",
                                      "{\"id\": 1, \"unusable\": %s}\n",
                                      "{\"id\": 1, \"error\": %s}\n"};
  (void)state;
  for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
    for (int i = (int)f % SF_STRIDE; i < HOSTILE_JSON_COUNT; i += SF_STRIDE) {
      struct sf_text text = {0};
      hostile_fill_json(&text, forms[f], i);
      try_answer(text.data, text.length, ENDED | SAID);
      sf_text_destroy(&text);
    }
  }
}

int hostile_run_workers(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_descriptions_that_are_none_are_refused_with_their_place),
      cmocka_unit_test(test_description_members_with_values_that_they_may_not_have_are_refused),
      cmocka_unit_test(test_cases_that_a_worker_does_not_have_are_refused_with_their_place),
      cmocka_unit_test(test_answers_that_are_none_end_the_set_with_one_line),
      cmocka_unit_test(test_answer_cut_or_changed_anywhere_ends_the_set_or_is_another_answer),
      cmocka_unit_test(test_answers_with_any_text_and_value_are_told_in_one_line),
  };
  return cmocka_run_group_tests_name("hostile/workers", tests, NULL, NULL);
}
