/* Texts of others through every report: nothing of theirs is more than text. */
#include "tests/unit/hostile.h"
#include "tests/unit/run/run_fixture.h"

#include "harness/base/sinks.h"
#include "harness/run/campaign/finding_files.h"
#include "harness/run/campaign/signatures.h"
#include "harness/run/commands/check_report.h"
#include "harness/run/commands/describe.h"
#include "harness/run/commands/report_json.h"
#include "harness/run/gate/gate.h"
#include "harness/run/opfuzz/op_report.h"
#include "harness/run/support/json.h"

#include <jansson.h>
#include <libxml/xmlreader.h>

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

/* What the shell makes of a line that was printed: its last word. */
static void assert_last_word(const char *line, size_t length, const char *expected) {
  struct sf_text command = {0};
  char seen[1024] = "";
  sf_text_append(&command, "set -- %.*s; shift $(($# - 1)); printf %%s \"$1\"", (int)length, line);
  FILE *shell = popen(command.data, "r");
  assert_non_null(shell);
  assert_true(fread(seen, 1, sizeof seen - 1, shell) < sizeof seen);
  assert_int_equal(pclose(shell), 0);
  assert_string_equal(seen, expected);
  sf_text_destroy(&command);
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
    assert_last_word(replay, strcspn(replay, "\n"), hostile_texts[i]);
    sf_text_destroy(&options);
    sf_free(report);
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
    assert_last_word(line.data, line.length, path.data);
    sf_text_destroy(&line);
    sf_text_destroy(&path);
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
    assert_last_word(line.data, (size_t)(end - line.data), hostile_texts[i]);
    sf_text_destroy(&line);
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

/* Blanks what code spans and fenced blocks hold, as CommonMark finds them. */
static void blank_code(char *summary) {
  for (char *at = summary; *at != '\0';) {
    const size_t fence = strspn(at, "`");
    char *end = at + fence;
    if (fence == 0) {
      at++;
      continue;
    }
    while (*end != '\0' && strspn(end, "`") != fence) end += strspn(end, "`") + (*end != '`');
    if (*end == '\0') fail_msg("code without an end: %.80s", at);
    for (char *inside = at; inside < end + fence; inside++) {
      if (fence < 3 && *inside == '\n') fail_msg("a span of several lines: %.80s", at);
      if (*inside == '|' && inside[-1] != '\\' && fence < 3) fail_msg("a bar that ends a cell: %.80s", at);
    }
    for (; at < end + fence; at++)
      if (*at != '\n') *at = ' ';
  }
}

/* What is left when code is taken away is ours. */
static void assert_only_ours(char *summary) {
  static const char *const tags[] = {"<details>", "</details>", "<summary>", "</summary>"};
  blank_code(summary);
  for (const char *at = summary; (at = strchr(at, '<')) != NULL; at++)
    if (!is_one_of(at, tags, sizeof tags / sizeof tags[0])) fail_msg("HTML of others at %.40s", at);
  if (strpbrk(summary, "`[]()!@~$\\\"'&")) fail_msg("text of others in %s", summary);
  for (const char *line = summary; *line; line = strchr(line, '\n') + 1) {
    int bars = 0;
    for (const char *at = line; *at != '\n'; at++) bars += *at == '|';
    if (bars != 0 && bars != 4) fail_msg("a cell of others in %.80s", line);
  }
}

static void write_report(const struct sf_gate_result *result, const struct sf_report_paths *paths) {
  struct sf_report report = {0};
  sf_gate_report(&report, result, &(struct sf_gate_identity){.seed = 1, .seed_from = "--seed"});
  assert_int_equal(sf_report_write(&report, paths, NULL), SF_OK);
  sf_report_destroy(&report);
}

static void test_gate_summary_any_text_stays_in_its_cell(void **state) {
  static struct gate_of gate;
  char path[256];
  snprintf(path, sizeof path, "%s/summary.md", (char *)*state);
  for (int i = 0; i < HOSTILE_COUNT; i++) {
    struct sf_bytes bytes = {0};
    gate_make(&gate, hostile_texts[i]);
    write_report(&gate.result, &(struct sf_report_paths){.summary = path});
    assert_int_equal(sf_bytes_read_file(&bytes, path, 1 << 20, NULL), SF_OK);
    assert_lines((char *)bytes.data);
    assert_only_ours((char *)bytes.data);
    sf_bytes_destroy(&bytes);
  }
}

static void test_gate_junit_any_text_is_well_formed(void **state) {
  static struct gate_of gate;
  char path[256];
  snprintf(path, sizeof path, "%s/junit.xml", (char *)*state);
  for (int i = 0; i < HOSTILE_COUNT; i++) {
    int cases = 0;
    gate_make(&gate, hostile_texts[i]);
    write_report(&gate.result, &(struct sf_report_paths){.junit = path});
    xmlTextReaderPtr reader = xmlReaderForFile(path, NULL, XML_PARSE_NONET);
    assert_non_null(reader);
    int read = 0;
    while ((read = xmlTextReaderRead(reader)) == 1) {
      if (xmlTextReaderNodeType(reader) != XML_READER_TYPE_ELEMENT) continue;
      const char *name = (const char *)xmlTextReaderConstName(reader);
      assert_true(strstr("testsuites testsuite testcase failure error properties property", name) != NULL);
      cases += strcmp(name, "testcase") == 0;
    }
    assert_int_equal(read, 0);
    assert_int_equal(cases, 3);
    xmlFreeTextReader(reader);
  }
}

/* --- JSON -------------------------------------------------------------------------------------------------------- */

/* Takes the value. One line, ASCII, and the same value again. */
static void assert_json(json_t *value) {
  struct sf_text line = {0};
  assert_non_null(value);
  assert_int_equal(sf_json_append(&line, value, JSON_COMPACT), SF_OK);
  assert_lines(line.data);
  assert_int_equal(line_count(line.data), 0);
  for (const char *at = line.data; *at; at++) assert_true(*at >= 0x20 && *at < 0x7f);
  json_t *again = json_loads(line.data, JSON_REJECT_DUPLICATES, NULL);
  assert_true(json_equal(value, again));
  json_decref(again);
  json_decref(value);
  sf_text_destroy(&line);
}

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
    assert_json(sf_json_of_outcome(&outcome, &c));
    assert_json(sf_json_of_gate(&gate.result));
    assert_json(sf_json_of_campaign(&gate.result.campaign, &signatures));
    assert_json(sf_json_of_shrink(&shrunk, &c, hostile_texts[i]));
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
  struct sf_text line = {0};
  json_t *json = sf_json_of_check(&report, &candidate);
  assert_int_equal(sf_json_append(&line, json, JSON_COMPACT), SF_OK);
  json_decref(json);
  assert_lines(line.data);
  json_t *value = json_loads(line.data, JSON_REJECT_DUPLICATES, NULL);
  assert_non_null(value);
  json_decref(value);
  sf_text_destroy(&line);
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
    assert_last_word(replay, strcspn(replay, "\n"), path.data);
    sf_text_destroy(&path);
    sf_free(report);
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
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_finding_report_any_text_forges_no_line),
      cmocka_unit_test(test_replay_append_any_path_shell_gives_it_back),
      cmocka_unit_test(test_replay_append_any_folder_shell_gives_it_back),
      cmocka_unit_test(test_signatures_text_any_signature_has_one_line),
      FOLDER_TEST(test_gate_summary_any_text_stays_in_its_cell),
      FOLDER_TEST(test_gate_junit_any_text_is_well_formed),
      cmocka_unit_test(test_json_any_text_is_one_line_that_parses),
      cmocka_unit_test(test_check_reports_any_name_and_text_keep_to_their_lines),
      cmocka_unit_test(test_op_report_any_text_keeps_to_its_line),
      cmocka_unit_test(test_describe_and_errors_any_text_keep_to_their_lines),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
