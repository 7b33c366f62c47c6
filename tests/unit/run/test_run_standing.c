#include "harness/base/alloc.h"
#include "harness/run/campaign/standing.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct sf_standing running(void) {
  struct sf_standing s = sf_standing_unknown();
  s.state = SF_CAMPAIGN_RUNNING;
  s.seed = 7;
  s.cases = 5360, s.cases_run = 360;
  s.passed = 5340, s.findings = 12, s.inconclusive = 8, s.skipped = 0;
  s.shrinking = 1, s.signatures = 3, s.new_signatures = 2;
  s.newest_case = 5311, s.newest_at = 988;
  s.pairs = 1000, s.pairs_run = 675;
  s.memory_bytes = 300 << 20, s.processes = 4, s.ranks_max = 8, s.pid = 17;
  s.seconds = 3690, s.seconds_run = 90, s.seconds_wanted = 600, s.seconds_left = 510, s.share_done = 0.15, s.cases_per_s = 4;
  s.updated_at = 999;
  strcpy(s.target, "worker:\"x\\y\"");
  strcpy(s.newest, "tolerance/act/mlp.linear_fc2@tp");
  strcpy(s.host, "node1");
  return s;
}

static void assert_line(const char *line, struct sf_standing s) {
  struct sf_text text = {0};
  sf_standing_line(&text, &s);
  assert_string_equal(text.data, line);
  sf_text_destroy(&text);
}

static void test_standing_line_says_only_what_there_is(void **state) {
  (void)state;
  struct sf_standing s = sf_standing_unknown();
  s.cases = s.findings = s.shrinking = s.signatures = 0;
  assert_line("0 cases, no findings", s);
  s.cases = s.findings = s.shrinking = 1, s.cases_per_s = 0.25;
  assert_line("1 case, 0.2/s, 1 finding, 1 being shrunk", s);
  assert_line("5360 cases, 4.0/s, 12 findings, 3 distinct, 1 being shrunk, 15 % of 10m00s, 8m30s left", running());
}

static void test_standing_screen_is_aligned_and_leaves_out_what_is_not_known(void **state) {
  (void)state;
  static const char *const wanted[][2] = {{"campaign", "running: worker:\"x\\y\", seed 7, process 17 on node1"},
                                          {"time", "1m30s, 15 % of 10m00s, 8m30s left; 1h01m with earlier runs"},
                                          {"cases", "5360, 4.0/s, 360 of them in this run"},
                                          {"verdicts", "5340 passed, 12 with findings, 8 inconclusive, 0 skipped"},
                                          {"findings", "3 signatures, 2 not known, 1 being shrunk"},
                                          {"newest", "12s ago: tolerance/act/mlp.linear_fc2@tp, case 5311"},
                                          {"coverage", "67.5 % of 1000 pairs of settings"},
                                          {"memory", "300 MiB, 4 processes, cases of up to 8 ranks"},
                                          {"store", "s.sqlite"}};
  enum { WANTED = sizeof wanted / sizeof *wanted };
  struct sf_screen_line lines[SF_STANDING_LINES];
  struct sf_standing s = running();
  assert_int_equal(sf_standing_screen(lines, &s, "s.sqlite", 1000), WANTED);
  for (int i = 0; i < WANTED; i++) {
    assert_string_equal(lines[i].label, wanted[i][0]);
    assert_string_equal(lines[i].text, wanted[i][1]);
    assert_int_equal(lines[i].tone, strcmp(wanted[i][0], "findings") == 0 ? SF_TONE_BAD : SF_TONE_PLAIN);
  }
  s = sf_standing_unknown();
  s.cases = s.passed = s.findings = s.inconclusive = s.skipped = s.signatures = 0;
  assert_int_equal(sf_standing_screen(lines, &s, "s.sqlite", 1000), 5);
}

static void test_standing_json_is_read_back(void **state) {
  (void)state;
  const struct sf_standing s = running();
  struct sf_standing back;
  json_t *object = sf_json_of_standing(&s);
  char *text = json_dumps(object, JSON_COMPACT | SF_STANDING_DIGITS);
  assert_int_equal(sf_standing_from_json(&back, text), SF_OK);
  json_t *again = sf_json_of_standing(&back);
  assert_true(json_equal(object, again));
  assert_true(json_is_null(json_object_get(object, "cases_wanted")));
  free(text);
  json_decref(object);
  json_decref(again);
}

static void test_standing_from_json_of_others_lacks_what_is_not_there(void **state) {
  (void)state;
  struct sf_standing back;
  static const char *const wrong[] = {"", "{", "[]", "{}", "{\"state\":\"asleep\"}", "{\"state\":1}"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) assert_int_equal(sf_standing_from_json(&back, wrong[i]), SF_EINPUT);
  assert_int_equal(sf_standing_from_json(&back, "{\"state\":\"ended\",\"cases\":3,\"passed\":\"x\",\"new\":1}"), SF_OK);
  assert_int_equal(back.cases, 3);
  assert_int_equal(back.passed, -1);
  assert_true(isnan(back.seconds));
}

static void test_standing_prometheus_escapes_labels_and_leaves_out_what_is_not_known(void **state) {
  (void)state;
  const struct sf_standing s = running();
  struct sf_text text = {0};
  sf_standing_prometheus(&text, &s, "a\nb.sqlite");
  assert_non_null(strstr(text.data, "shardfuzz_cases{store=\"a\\\\nb.sqlite\",target=\"worker:\\\"x\\\\y\\\"\"} 5360\n"));
  assert_non_null(strstr(text.data, ",state=\"running\"} 1\n"));
  assert_non_null(strstr(text.data, ",state=\"killed\"} 0\n"));
  assert_non_null(strstr(text.data, "# TYPE shardfuzz_share_done gauge\n"));
  assert_null(strstr(text.data, "cases_wanted"));
  sf_text_destroy(&text);
}

static void test_span_text_has_two_units(void **state) {
  (void)state;
  static const struct {
    double seconds;
    const char *text;
  } spans[] = {{0, "0s"}, {59.9, "59s"}, {60, "1m00s"}, {3599, "59m59s"}, {3600, "1h00m"}, {360000, "100h00m"}, {-1, "0s"}, {NAN, "0s"}};
  for (size_t i = 0; i < sizeof spans / sizeof *spans; i++) {
    char text[SF_SPAN_TEXT];
    sf_span_text(text, spans[i].seconds);
    assert_string_equal(text, spans[i].text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_standing_line_says_only_what_there_is),
      cmocka_unit_test(test_standing_screen_is_aligned_and_leaves_out_what_is_not_known),
      cmocka_unit_test(test_standing_json_is_read_back),
      cmocka_unit_test(test_standing_from_json_of_others_lacks_what_is_not_there),
      cmocka_unit_test(test_standing_prometheus_escapes_labels_and_leaves_out_what_is_not_known),
      cmocka_unit_test(test_span_text_has_two_units),
  };
  return cmocka_run_group_tests_name("run/standing", tests, NULL, NULL);
}
