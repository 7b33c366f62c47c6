/* Texts of others through every report: nothing of theirs is more than text. */
#include "tests/hostile/hostile.h"
#include "tests/unit/run/run_fixture.h"

#include "harness/base/sinks.h"
#include "harness/run/campaign/finding_files.h"
#include "harness/run/campaign/signatures.h"
#include "harness/run/campaign/standing.h"
#include "harness/run/commands/check_report.h"
#include "harness/run/commands/describe.h"
#include "harness/run/commands/report_json.h"
#include "harness/run/gate/gate.h"
#include "harness/run/opfuzz/op_report.h"
#include "harness/run/store/store.h"
#include "harness/run/support/json.h"

#include <jansson.h>

/* Every field of others in an outcome is this text. */
static struct sf_outcome outcome_of(const struct sf_case *c, const char *text) {
  struct sf_outcome outcome = finding_of(c, text);
  outcome.cls = SF_CLASS_TOLERANCE;
  outcome.kind = -1;
  snprintf(outcome.first_id, sizeof outcome.first_id, "%s", text);
  snprintf(outcome.signature, sizeof outcome.signature, "%s", text);
  snprintf(outcome.module, sizeof outcome.module, "%s", text);
  snprintf(outcome.text, sizeof outcome.text, "%s", text);
  snprintf(outcome.diagnosis.text, sizeof outcome.diagnosis.text, "%s", text);
  outcome.further_count = 1;
  struct sf_culprit *other = &outcome.further[0];
  snprintf(other->first_id, sizeof other->first_id, "%s", text);
  snprintf(other->signature, sizeof other->signature, "%s", text);
  snprintf(other->module, sizeof other->module, "%s", text);
  snprintf(other->text, sizeof other->text, "%s", text);
  return outcome;
}

static bool is_one_of(const char *line, const char *const *labels, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (strncmp(line, labels[i], strlen(labels[i])) == 0) return true;
  return false;
}

static void test_finding_report_any_text_forges_no_line(void **state) {
  (void)state;
  static const char *const labels[] = {"verdict      ", "signature    ", "first        ", "module       ", "label        ", "rank         ",
                                       "row          ", "error        ", "what         ", "           | ", "diagnosis    ", "case         ",
                                       "also wrong   ", "findings     ", "found        ", "shrunk       ", "replay       "};
  const struct sf_case c = case_make(CASE_TP2);
  for (int i = 0; i < HOSTILE_COUNT; i++) {
    const struct sf_outcome outcome = outcome_of(&c, hostile_texts[i]);
    struct sf_text options = {0};
    char *report = NULL;
    sf_text_append(&options, " --target ");
    sf_shell_append(&options, hostile_texts[i]);
    static struct sf_job_result shrunk;
    const struct sf_replay_way way = {.options = options.data};
    const struct sf_finding_story story = {.replay_path = "out/min.json", .replay = &way, .in_campaign = true, .shrunk = &shrunk};
    shrunk.end = SF_SHRINK_LOST;
    snprintf(shrunk.outcome.text, sizeof shrunk.outcome.text, "%s", hostile_texts[i]);
    assert_int_equal(sf_finding_report(&report, &c, &outcome, &story), SF_OK);
    assert_lines(report);
    for (const char *line = report; *line; line = strchr(line, '\n') + 1)
      if (!is_one_of(line, labels, sizeof labels / sizeof labels[0])) fail_msg("a line of others in:\n%s", report);
    const char *replay = strstr(report, "replay       ") + strlen("replay       ");
    law_last_word(replay, strcspn(replay, "\n"), hostile_texts[i]);
    sf_text_destroy(&options);
    sf_free(report);
    hostile_try(HOSTILE_NAME);
  }
}

static void test_replay_append_any_path_shell_gives_it_back(void **state) {
  (void)state;
  for (int i = 0; i < HOSTILE_COUNT; i++) {
    struct sf_text line = {0};
    struct sf_text path = {0};
    sf_text_append(&path, "/%s", hostile_texts[i]);
    sf_replay_append(&line, path.data, NULL, 4);
    assert_lines(line.data);
    law_last_word(line.data, line.length, path.data);
    sf_text_destroy(&line);
    sf_text_destroy(&path);
    hostile_try(HOSTILE_NAME);
  }
}

/* The command is cut at its "&&", and not run. */
static void test_replay_append_any_folder_shell_gives_it_back(void **state) {
  (void)state;
  for (int i = 0; i < HOSTILE_COUNT; i++) {
    const struct sf_replay_way way = {.folder = (char *)(uintptr_t)hostile_texts[i]};
    struct sf_text line = {0};
    sf_replay_append(&line, "/min.json", &way, 0);
    assert_lines(line.data);
    const char *end = line.data;
    for (const char *at = line.data; (at = strstr(at, " && ")) != NULL; at++) end = at;
    assert_true(end > line.data);
    law_last_word(line.data, (size_t)(end - line.data), hostile_texts[i]);
    sf_text_destroy(&line);
    hostile_try(HOSTILE_NAME);
  }
}

static void test_signatures_text_any_signature_has_one_line(void **state) {
  (void)state;
  for (int i = 0; i < HOSTILE_COUNT; i++) {
    struct sf_signature signature = {.count = 3};
    struct sf_text text = {0};
    snprintf(signature.signature, sizeof signature.signature, "%s", hostile_texts[i]);
    snprintf(signature.directory, sizeof signature.directory, "%s", hostile_texts[i]);
    snprintf(signature.diagnosis.text, sizeof signature.diagnosis.text, "x%s", hostile_texts[i]);
    const struct sf_signatures signatures = {.count = 1, .cause_count = 1, .new_cause_count = 1, .at = &signature};
    sf_signatures_text(&text, &signatures);
    assert_lines(text.data);
    assert_int_equal(line_count(text.data), 2);
    sf_text_destroy(&text);
    hostile_try(HOSTILE_NAME);
  }
}

/* --- the gate ---------------------------------------------------------------------------------------------------- */

struct gate_of {
  struct sf_gate_item items[2];
  struct sf_gate_result result;
};

static void gate_make(struct gate_of *gate, const char *text) {
  memset(gate, 0, sizeof *gate);
  for (int i = 0; i < 2; i++) {
    struct sf_gate_item *item = &gate->items[i];
    item->state = i ? SF_GATE_NEW : SF_GATE_UNEXPECTED;
    snprintf(item->name, sizeof item->name, "%s", text);
    snprintf(item->text, sizeof item->text, "%s", text);
    snprintf(item->min_path, sizeof item->min_path, "x%s", text);
    snprintf(item->diagnosis.text, sizeof item->diagnosis.text, "%s", text);
  }
  gate->result = (struct sf_gate_result){.corpus_count = 1, .corpus_failed = 1, .item_count = 2, .items = gate->items};
  snprintf(gate->result.nothing, sizeof gate->result.nothing, "%s", text);
  snprintf(gate->result.campaign.summary.inconclusive_reason, sizeof gate->result.campaign.summary.inconclusive_reason, "%s", text);
}

/* The report in every format that it has: each keeps the law of its readers. */
static void check_formats(const struct sf_report *report) {
  struct sf_text out[6] = {0};
  assert_int_equal(sf_report_append_summary(&out[0], report), SF_OK);
  law_markdown_page(out[0].data);
  assert_int_equal(sf_report_append_junit(&out[1], report), SF_OK);
  assert_int_equal(law_xml(out[1].data, "testcase testsuites testsuite failure error properties property"), 3);
  assert_int_equal(sf_report_append_sarif(&out[2], report), SF_OK);
  json_t *sarif = law_json_text(out[2].data);
  const json_t *results = json_object_get(json_array_get(json_object_get(sarif, "runs"), 0), "results");
  const bool has_nothing = report->nothing.data != NULL; /* then the campaign is an item that people see too */
  assert_int_equal(json_array_size(results), 2 + has_nothing);
  json_decref(sarif);
  assert_int_equal(sf_report_append_annotations(&out[3], report), SF_OK);
  law_annotations(out[3].data, 2 + has_nothing);
  assert_int_equal(sf_report_append_codequality(&out[4], report), SF_OK);
  json_t *issues = law_json_text(out[4].data);
  assert_int_equal(json_array_size(issues), 2 + has_nothing);
  json_decref(issues);
  assert_int_equal(sf_report_append_html(&out[5], report), SF_OK);
  law_xml(out[5].data,
          "section html head meta title style body main header h1 h2 h3 p span table tr th td a details summary pre dl dt dd footer");
  for (size_t i = 0; i < sizeof out / sizeof out[0]; i++) sf_text_destroy(&out[i]);
}

static void test_gate_report_any_text_is_text_in_every_format(void **state) {
  static struct gate_of gate;
  (void)state;
  for (int i = 0; i < HOSTILE_COUNT; i++) {
    struct sf_report report = {0};
    struct sf_gate_identity identity = {.seed = 1, .seed_from = "--seed"};
    snprintf(identity.commit, sizeof identity.commit, "%s", "0123abcd");
    gate_make(&gate, hostile_texts[i]);
    sf_gate_report(&report, &gate.result, &identity);
    check_formats(&report);
    sf_report_destroy(&report);
    hostile_try(HOSTILE_NAME);
  }
}

/* --- the store, and what is told of a campaign ----------------------------------------------------------------------- */

struct same {
  const char *text;
  int32_t count;
};

static enum sf_status assert_same(void *context, const struct sf_store_finding *finding) {
  struct same *same = context;
  assert_string_equal(finding->signature, same->text);
  assert_string_equal(finding->what, same->text);
  assert_string_equal(finding->report, same->text);
  assert_string_equal(finding->case_json, same->text);
  same->count++;
  return SF_OK;
}

/* A store keeps what it is given, byte for byte, and stays sound; who shows it makes it safe. */
static void test_store_any_text_comes_back_as_it_was(void **state) {
  static const char *const features[] = {"moe"};
  char path[256];
  (void)state;
  snprintf(path, sizeof path, "%s/store.sqlite", (char *)*state);
  for (int i = 0; i < HOSTILE_COUNT; i++) {
    const char *text = hostile_texts[i];
    if (!*text) continue; /* nothing, to a store */
    const struct sf_store_options options = {
        .path = path, .mode = SF_STORE_CREATE, .campaign = "seed=7\n", .feature_names = features, .feature_count = 1};
    struct sf_store *store = NULL;
    struct same same = {.text = text};
    int64_t first = 0, count = 0;
    struct sf_error error = {SF_OK, ""};
    if (sf_store_open(&store, &options, &error) != SF_OK) fail_msg("%s", error.text);
    assert_int_equal(sf_store_lease(store, &first, &count, 1, 1, NULL), SF_OK);
    const struct sf_store_verdict verdict = {.verdict = SF_VERDICT_FINDING,
                                             .cls = SF_CLASS_CRASH,
                                             .shrink_key = text,
                                             .signature = text,
                                             .label = text,
                                             .module = text,
                                             .rank = -1,
                                             .ranks = 1,
                                             .layers = 1,
                                             .unjudged = text,
                                             .reason = text};
    const struct sf_store_finding finding = {.signature = text,
                                             .shrink_key = text,
                                             .what = text,
                                             .case_json = text,
                                             .min_json = text,
                                             .report = text,
                                             .shown = text,
                                             .steps = text,
                                             .contrast = text};
    assert_int_equal(sf_store_add_verdict(store, &verdict, NULL), SF_OK);
    assert_int_equal(sf_store_add_finding(store, &finding, NULL), SF_OK);
    assert_int_equal(sf_store_commit(store, NULL), SF_OK);
    sf_store_close(store);
    struct sf_store_options again = options;
    again.mode = SF_STORE_READ;
    if (sf_store_open(&store, &again, &error) != SF_OK) fail_msg("%s", error.text);
    assert_int_equal(sf_store_each_finding(store, assert_same, &same, NULL), SF_OK);
    assert_int_equal(same.count, 1);
    sf_store_close(store);
    sf_store_remove_files(path);
    hostile_try(HOSTILE_NAME);
  }
}

static void test_standing_any_text_keeps_to_its_line_and_label(void **state) {
  (void)state;
  for (int i = 0; i < HOSTILE_COUNT; i++) {
    const char *text = hostile_texts[i];
    struct sf_standing standing = sf_standing_unknown();
    struct sf_screen_line lines[SF_STANDING_LINES];
    struct sf_text metrics = {0}, line = {0};
    standing.cases = 3, standing.seed = 1, standing.findings = 1, standing.newest_case = 2, standing.newest_at = 1;
    snprintf(standing.target, sizeof standing.target, "%s", text);
    snprintf(standing.newest, sizeof standing.newest, "%s", text);
    snprintf(standing.host, sizeof standing.host, "%s", text);
    sf_standing_prometheus(&metrics, &standing, text);
    law_prometheus(metrics.data);
    law_json(sf_json_of_standing(&standing));
    const int32_t count = sf_standing_screen(lines, &standing, text, 1000);
    for (int32_t k = 0; k < count; k++) sf_line_append(&line, "%s %s\n", lines[k].label, lines[k].text);
    assert_lines(line.data);
    assert_int_equal(line_count(line.data), count);
    sf_text_destroy(&metrics);
    sf_text_destroy(&line);
    hostile_try(HOSTILE_NAME);
  }
}

/* --- JSON -------------------------------------------------------------------------------------------------------- */

static void test_json_any_text_is_one_line_that_parses(void **state) {
  static struct gate_of gate;
  (void)state;
  const struct sf_case c = case_make(CASE_TP2);
  for (int i = 0; i < HOSTILE_COUNT; i++) {
    const struct sf_outcome outcome = outcome_of(&c, hostile_texts[i]);
    struct sf_signature signature = {.count = 3};
    snprintf(signature.signature, sizeof signature.signature, "%s", hostile_texts[i]);
    snprintf(signature.min_path, sizeof signature.min_path, "%s", hostile_texts[i]);
    const struct sf_signatures signatures = {.count = 1, .cause_count = 1, .new_cause_count = 1, .at = &signature};
    static struct sf_job_result shrunk;
    shrunk = (struct sf_job_result){.min = c, .min_outcome = outcome};
    gate_make(&gate, hostile_texts[i]);
    gate.result.campaign.summary.cases = 1;
    law_json(sf_json_of_outcome(&outcome, &c));
    law_json(sf_json_of_gate(&gate.result));
    law_json(sf_json_of_campaign(&gate.result.campaign, &signatures));
    law_json(sf_json_of_shrink(&shrunk, &c, hostile_texts[i]));
    hostile_try(HOSTILE_NAME);
  }
}

/* --- check ------------------------------------------------------------------------------------------------------- */

static void check_all(const char *name, const char *text) {
  struct sf_trace_tensor tensor = {.text = name, .name = {.kind = SF_KIND_ACT, .subject = name, .subject_length = (int32_t)strlen(name)}};
  struct sf_check_result results[] = {{.tensor = &tensor, .flagged = true, .judged = true, .rank = -1, .row = -1},
                                      {.tensor = &tensor, .why_not = "vacuous"}};
  const struct sf_trace_set candidate = {.path = (char *)(uintptr_t)text, .ranks = 2};
  struct sf_check_report report = {.verdict = SF_VERDICT_FINDING,
                                   .result_count = 2,
                                   .results = results,
                                   .judged = 1,
                                   .not_judged = 1,
                                   .findings = 1,
                                   .culprit_count = 1};
  char *seen = NULL;
  size_t size = 0;
  snprintf(results[0].text, sizeof results[0].text, "%s", text);
  snprintf(report.culprits[0].diagnosis.text, sizeof report.culprits[0].diagnosis.text, "x%s", text);
  FILE *to = open_memstream(&seen, &size);
  struct sf_text all = {0};
  sf_check_append(&all, &report, &candidate);
  sf_print_lines(to, all.data);
  sf_text_destroy(&all);
  sf_check_table(to, &report);
  fclose(to);
  assert_lines(seen);
  assert_int_equal(line_count(seen), 8 + 3);
  free(seen);
  law_json(sf_json_of_check(&report, &candidate));
  hostile_try(HOSTILE_NAME);
}

static void test_check_reports_any_name_and_text_keep_to_their_lines(void **state) {
  (void)state;
  for (int i = 0; i < HOSTILE_COUNT; i++) check_all(hostile_texts[i], hostile_texts[HOSTILE_COUNT - 1 - i]);
}

/* --- operations, describe, errors --------------------------------------------------------------------------------- */

static void test_op_report_any_text_keeps_to_its_line(void **state) {
  static struct sf_op_target target;
  struct sf_op_case c;
  struct sf_case whole;
  (void)state;
  assert_int_equal(sf_op_target_make(&target, "op:gelu_fwd", 1000, NULL), SF_OK);
  sf_op_case_draw(&c, &target, 1, 0);
  sf_op_case_put(&whole, &target, &c);
  for (int i = 0; i < HOSTILE_COUNT; i++) {
    static struct sf_outcome outcome;
    struct sf_text path = {0};
    sf_text_append(&path, "/%s", hostile_texts[i]);
    const struct sf_finding_story story = {.replay_path = path.data};
    char *report = NULL;
    outcome = (struct sf_outcome){.verdict = SF_VERDICT_FINDING, .cls = SF_CLASS_CRASH, .signature = "crash/gelu_fwd", .finding_count = 1};
    outcome.operation = (struct sf_op_outcome){.verdict = SF_VERDICT_FINDING, .cls = SF_CLASS_CRASH, .operand = -1, .code = 11};
    snprintf(outcome.operation.said, sizeof outcome.operation.said, "x%s", hostile_texts[i]);
    sf_op_what(outcome.text, sizeof outcome.text, sf_op_of(&target, &c), &outcome.operation);
    assert_int_equal(sf_finding_report(&report, &whole, &outcome, &story), SF_OK);
    assert_lines(report);
    assert_int_equal(line_count(report), 7);
    const char *replay = strstr(report, "replay       ") + strlen("replay       ");
    law_last_word(replay, strcspn(replay, "\n"), path.data);
    sf_text_destroy(&path);
    sf_free(report);
    hostile_try(HOSTILE_NAME);
  }
}

static void test_describe_and_errors_any_text_keep_to_their_lines(void **state) {
  (void)state;
  for (int i = 0; i < HOSTILE_COUNT; i++) {
    struct sf_case c;
    struct sf_text text = {0};
    struct sf_error error = {SF_OK, ""};
    sf_case_init(&c);
    snprintf(c.target, sizeof c.target, "x%s", hostile_texts[i]);
    if (sf_case_set_framework(&c, "{\"ranks\":2}", NULL) == SF_OK && sf_describe_case(&text, &c, NULL) == SF_OK) {
      assert_lines(text.data);
      assert_int_equal(line_count(text.data), 3);
    }
    (void)sf_error_set(&error, SF_EINPUT, "x%s: %.20s", hostile_texts[i], hostile_texts[i]);
    assert_int_equal(line_count(error.text), 0);
    sf_line_append(&text, "\n%s\n", error.text);
    assert_lines(text.data);
    assert_non_null(strstr(text.data, "\nx"));
    sf_text_destroy(&text);
    hostile_try(HOSTILE_NAME);
  }
}

int hostile_run_reports(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_finding_report_any_text_forges_no_line),
      cmocka_unit_test(test_replay_append_any_path_shell_gives_it_back),
      cmocka_unit_test(test_replay_append_any_folder_shell_gives_it_back),
      cmocka_unit_test(test_signatures_text_any_signature_has_one_line),
      cmocka_unit_test(test_gate_report_any_text_is_text_in_every_format),
      FOLDER_TEST(test_store_any_text_comes_back_as_it_was),
      cmocka_unit_test(test_standing_any_text_keeps_to_its_line_and_label),
      cmocka_unit_test(test_json_any_text_is_one_line_that_parses),
      cmocka_unit_test(test_check_reports_any_name_and_text_keep_to_their_lines),
      cmocka_unit_test(test_op_report_any_text_keeps_to_its_line),
      cmocka_unit_test(test_describe_and_errors_any_text_keep_to_their_lines),
  };
  return cmocka_run_group_tests_name("hostile/reports", tests, NULL, NULL);
}
