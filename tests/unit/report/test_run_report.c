#include "harness/base/alloc.h"
#include "harness/run/report/report.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>
#include <libxml/xmlreader.h>
#include <math.h>
#include <unistd.h>

static struct sf_report_item *add(struct sf_report *report, const char *name, enum sf_report_outcome outcome, double seconds) {
  struct sf_report_item *item = sf_report_add(report, "corpus", outcome == SF_REPORT_PASSED ? "ok" : "new", outcome);
  sf_text_append(&item->name, "%s", name);
  item->seconds = seconds;
  return item;
}

/* Four items: one passed, one failed, one that could not be tested, one that takes longest. */
static struct sf_report make_report(void) {
  struct sf_report report = {.title = "shardfuzz gate"};
  sf_report_fact(&report, "seed", NULL, "%d", 7);
  sf_report_fact(&report, "note", "<&\">\x01", "last: ");
  add(&report, "regress/one.json", SF_REPORT_PASSED, 0.25)->is_quiet = true;
  struct sf_report_item *failed = add(&report, "two <tp=2 & sp>", SF_REPORT_FAILED, NAN);
  sf_text_append(&failed->message, "ratio 9.5 at \"act\"");
  sf_text_append(&failed->text, "line one\nline <two> ]]>\x1b[0m\xff");
  sf_text_append(&failed->next, "shardfuzz replay 'two'");
  sf_text_append(&add(&report, "three", SF_REPORT_ERROR, 12.3456)->message, "worker died");
  add(&report, "four", SF_REPORT_PASSED, 0);
  return report;
}

/* What libxml2's reader found. */
struct found {
  int testcases, failures, errors, skipped, properties;
  char failure_text[128], failure_message[64], last_value[64], second_name[64], tests[8], suite_time[16];
};

static void attribute_copy(char *out, size_t out_size, xmlTextReaderPtr reader, const char *name) {
  xmlChar *value = xmlTextReaderGetAttribute(reader, BAD_CAST name);
  snprintf(out, out_size, "%s", value == NULL ? "(none)" : (const char *)value);
  xmlFree(value);
}

static void element_read(struct found *found, xmlTextReaderPtr reader) {
  const char *name = (const char *)xmlTextReaderConstName(reader);
  if (strcmp(name, "testcase") == 0 && ++found->testcases == 2)
    attribute_copy(found->second_name, sizeof found->second_name, reader, "name");
  if (strcmp(name, "error") == 0) found->errors++;
  if (strcmp(name, "skipped") == 0) found->skipped++;
  if (strcmp(name, "testsuite") == 0) {
    attribute_copy(found->tests, sizeof found->tests, reader, "tests");
    attribute_copy(found->suite_time, sizeof found->suite_time, reader, "time");
  }
  if (strcmp(name, "property") == 0) {
    found->properties++;
    attribute_copy(found->last_value, sizeof found->last_value, reader, "value");
  }
  if (strcmp(name, "failure") == 0) {
    found->failures++;
    attribute_copy(found->failure_message, sizeof found->failure_message, reader, "message");
    xmlChar *text = xmlTextReaderReadString(reader);
    snprintf(found->failure_text, sizeof found->failure_text, "%s", (const char *)text);
    xmlFree(text);
  }
}

static struct found document_read(const char *text, size_t length) {
  struct found found = {0};
  xmlTextReaderPtr reader = xmlReaderForMemory(text, (int)length, NULL, NULL, XML_PARSE_NONET);
  assert_non_null(reader);
  int code = 1;
  while ((code = xmlTextReaderRead(reader)) == 1) {
    if (xmlTextReaderNodeType(reader) == XML_READER_TYPE_ELEMENT) element_read(&found, reader);
  }
  assert_int_equal(code, 0); /* well-formed to the end */
  xmlFreeTextReader(reader);
  return found;
}

static void test_junit_format_reader_finds_everything(void **state) {
  (void)state;
  struct sf_text text = {0};
  struct sf_report report = make_report();
  assert_int_equal(sf_report_append_junit(&text, &report), SF_OK);
  const struct found found = document_read(text.data, text.length);
  assert_int_equal(found.testcases, 4);
  assert_int_equal(found.failures, 1);
  assert_int_equal(found.errors, 1);
  assert_int_equal(found.skipped, 0);
  assert_int_equal(found.properties, 2);
  assert_string_equal(found.tests, "4");
  assert_string_equal(found.suite_time, "12.596");
  assert_string_equal(found.second_name, "two <tp=2 & sp>");
  assert_string_equal(found.failure_message, "ratio 9.5 at \"act\"");
  assert_string_equal(found.failure_text, "line one\nline <two> ]]>\xef\xbf\xbd[0m\xef\xbf\xbd");
  assert_string_equal(found.last_value, "last: <&\">\xef\xbf\xbd");
  assert_non_null(
      strstr(text.data, "<testsuite name=\"shardfuzz gate\" tests=\"4\" failures=\"1\" errors=\"1\" skipped=\"0\" time=\"12.596\">"));
  assert_non_null(strstr(text.data, "<testcase name=\"two &lt;tp=2 &amp; sp&gt;\" classname=\"corpus\" time=\"0.000\">"));
  sf_text_destroy(&text);
  sf_report_destroy(&report);
}

static void test_summary_has_what_is_not_quiet_and_the_story_of_what_failed(void **state) {
  (void)state;
  struct sf_text text = {0};
  struct sf_report report = make_report();
  assert_int_equal(sf_report_append_summary(&text, &report), SF_OK);
  assert_ptr_equal(strstr(text.data, "## shardfuzz gate: failed\n\n- seed: 7\n- note: last: `"), text.data);
  assert_non_null(strstr(text.data, "\n| **new** | `two <tp=2 & sp>` | `shardfuzz replay 'two'` |\n| new | `three` |"));
  assert_null(strstr(text.data, "regress/one.json"));
  assert_non_null(strstr(text.data, "<details>"));
  assert_null(strstr(strstr(text.data, "<details>") + 1, "<details>"));
  assert_null(strstr(text.data, "Not judged"));
  sf_report_add(&report, "fuzz", "known", SF_REPORT_PASSED);
  text.length = 0;
  assert_int_equal(sf_report_append_html(&text, &report), SF_OK);
  assert_non_null(strstr(text.data, "<h1>1 new finding</h1>"));
  sf_text_append(&report.nothing, "out of time");
  text.length = 0;
  assert_int_equal(sf_report_append_summary(&text, &report), SF_OK);
  assert_non_null(strstr(text.data, "\n**Not judged:** `out of time`\n"));
  sf_text_destroy(&text);
  sf_report_destroy(&report);
}

static void test_sarif_has_a_result_for_what_is_not_quiet(void **state) {
  struct sf_report report = make_report();
  struct sf_text text = {0};
  (void)state;
  sf_text_append(&report.items[1].file, "a b/%%\xff.json");
  assert_int_equal(sf_report_append_sarif(&text, &report), SF_OK);
  json_t *log = json_loads(text.data, 0, NULL);
  const json_t *run = json_array_get(json_object_get(log, "runs"), 0), *results = json_object_get(run, "results");
  assert_int_equal(json_array_size(results), 3);
  const char *rule, *level, *message, *uri;
  assert_int_equal(json_unpack(json_array_get(results, 0), "{s:s, s:s, s:{s:s}, s:[{s:{s:{s:s}}}]}", "ruleId", &rule, "level", &level,
                               "message", "text", &message, "locations", "physicalLocation", "artifactLocation", "uri", &uri),
                   0);
  assert_string_equal(rule, "shardfuzz/new");
  assert_string_equal(level, "error");
  assert_string_equal(message, "ratio 9.5 at \"act\"");
  assert_string_equal(uri, "a%20b/%25%FF.json");
  assert_int_equal(json_array_size(json_object_get(json_object_get(json_object_get(run, "tool"), "driver"), "rules")), 2);
  json_decref(log);
  sf_text_destroy(&text);
  sf_report_destroy(&report);
}

static void test_html_format_is_a_page_of_what_is_not_quiet(void **state) {
  (void)state;
  struct sf_text text = {0};
  struct sf_report report = make_report();
  report.items[1].has_command = true;
  sf_text_append(&report.items[2].figures, "<figure>ours</figure>\n");
  assert_int_equal(sf_report_append_html(&text, &report), SF_OK);
  document_read(text.data, text.length);
  assert_non_null(strstr(text.data, "<h1>1 finding</h1>"));
  assert_null(strstr(text.data, "regress/one.json"));
  assert_non_null(strstr(text.data, "<h2>two &lt;tp=2 &amp; sp&gt;</h2>"));
  assert_non_null(strstr(text.data, "<pre class=\"command\">shardfuzz replay &#39;two&#39;\n</pre>"));
  assert_non_null(strstr(text.data, "<dd>last: &lt;&amp;&quot;&gt;\\x01</dd>"));
  assert_non_null(strstr(text.data, "<figure>ours</figure>"));
  assert_null(strstr(text.data, "worker died")); /* figures say it */
  sf_text_append(&report.nothing, "out of time");
  text.length = 0;
  assert_int_equal(sf_report_append_html(&text, &report), SF_OK);
  document_read(text.data, text.length);
  assert_non_null(strstr(text.data, "<h1>Not judged</h1>"));
  sf_text_destroy(&text);
  sf_report_destroy(&report);
}

static void test_annotations_are_one_command_a_line(void **state) {
  struct sf_report report = make_report();
  struct sf_text text = {0};
  (void)state;
  sf_text_append(&report.items[1].message, " 3 %%\n::error::forged");
  sf_text_append(&report.items[1].file, "a:b,c.json");
  assert_int_equal(sf_report_append_annotations(&text, &report), SF_OK);
  assert_string_equal(text.data, "::error file=a%3Ab%2Cc.json,title=shardfuzz gate%3A new::ratio 9.5 at \"act\" 3 %25\\n::error::forged%0A"
                                 "shardfuzz replay 'two'\n"
                                 "::warning file=.,title=shardfuzz gate%3A new::worker died\n"
                                 "::notice file=.,title=shardfuzz gate%3A ok::four\n");
  sf_text_destroy(&text);
  sf_report_destroy(&report);
}

static void test_codequality_has_an_issue_for_what_is_not_quiet(void **state) {
  struct sf_report report = make_report();
  struct sf_text text = {0};
  (void)state;
  assert_int_equal(sf_report_append_codequality(&text, &report), SF_OK);
  json_t *issues = json_loads(text.data, 0, NULL);
  const char *severity, *path, *first, *second;
  assert_int_equal(json_array_size(issues), 3);
  assert_int_equal(json_unpack(json_array_get(issues, 0), "{s:s, s:s, s:{s:s}}", "fingerprint", &first, "severity", &severity, "location",
                               "path", &path),
                   0);
  assert_int_equal(json_unpack(json_array_get(issues, 1), "{s:s}", "fingerprint", &second), 0);
  assert_string_equal(severity, "critical");
  assert_string_equal(path, ".");
  assert_string_not_equal(first, second);
  json_decref(issues);
  sf_text_destroy(&text);
  sf_report_destroy(&report);
}

static void test_html_format_single_item_is_the_heading(void **state) {
  (void)state;
  struct sf_text text = {0};
  struct sf_report report = {.title = "shardfuzz replay"};
  sf_text_append(&add(&report, "only <one>", SF_REPORT_FAILED, 0)->message, "wrong");
  assert_int_equal(sf_report_append_html(&text, &report), SF_OK);
  document_read(text.data, text.length);
  assert_non_null(strstr(text.data, "<h1>only &lt;one&gt;</h1>"));
  assert_null(strstr(text.data, "<h2>"));
  sf_text_destroy(&text);
  sf_report_destroy(&report);
}

static void test_junit_format_empty_suite_is_a_document(void **state) {
  (void)state;
  const struct sf_report empty = {.title = "nothing"};
  struct sf_text text = {0};
  assert_int_equal(sf_report_append_junit(&text, &empty), SF_OK);
  const struct found found = document_read(text.data, text.length);
  assert_int_equal(found.testcases, 0);
  assert_string_equal(found.tests, "0");
  sf_text_destroy(&text);
}

/* Each file is written whole or not at all, and says why not. */
static void test_report_write_replaces_whole_files_or_nothing(void **state) {
  (void)state;
  char folder[96], path[128], page[128], missing[128];
  const char *base = getenv("TMPDIR");
  struct sf_report report = make_report();
  snprintf(folder, sizeof folder, "%.60s/sf_report_XXXXXX", base == NULL ? P_tmpdir : base);
  assert_non_null(mkdtemp(folder));
  snprintf(path, sizeof path, "%s/report.xml", folder);
  snprintf(page, sizeof page, "%s/page.md", folder);
  snprintf(missing, sizeof missing, "%s/none/report.xml", folder);
  const struct sf_report_paths nowhere = {0}, both = {.junit = path, .summary = page}, wrong = {.junit = missing};
  assert_int_equal(sf_report_write(&report, &nowhere, NULL), SF_OK);
  assert_int_equal(sf_bytes_write_file(path, "old", 3, NULL), SF_OK);
  struct sf_error error = {0};
  assert_int_equal(sf_report_check(&both, &error), SF_OK);
  assert_int_equal(sf_report_check(&wrong, &error), SF_EUSAGE);
  assert_int_not_equal(sf_report_write(&report, &wrong, &error), SF_OK);
  assert_non_null(strstr(error.text, "none/report.xml"));
  sf_alloc_fail_at(1);
  assert_int_equal(sf_report_write(&report, &both, &error), SF_ENOMEM);
  sf_alloc_fail_at(0);
  struct sf_bytes bytes = {0};
  assert_int_equal(sf_bytes_read_file(&bytes, path, 1 << 20, NULL), SF_OK);
  assert_string_equal((const char *)bytes.data, "old");
  sf_bytes_destroy(&bytes);
  assert_int_equal(sf_report_write(&report, &both, &error), SF_OK);
  assert_int_equal(sf_bytes_read_file(&bytes, path, 1 << 20, NULL), SF_OK);
  assert_int_equal(document_read((const char *)bytes.data, bytes.size_bytes).testcases, 4);
  sf_bytes_destroy(&bytes);
  assert_int_equal(unlink(path), 0);
  assert_int_equal(unlink(page), 0);
  assert_int_equal(rmdir(folder), 0); /* no temporary file is left */
  sf_report_destroy(&report);
}

/* Wherever memory runs out, what is written says so and not half of it. */
static void test_report_without_memory_is_refused(void **state) {
  (void)state;
  const struct sf_report_paths nowhere_to_go = {.junit = "/dev/null/none"};
  for (int at = 1; at < 12; at++) {
    struct sf_error error = {0};
    sf_alloc_fail_at(at);
    struct sf_report report = make_report();
    sf_alloc_fail_at(0);
    assert_int_equal(sf_report_write(&report, &nowhere_to_go, &error), SF_ENOMEM);
    sf_report_destroy(&report);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_junit_format_reader_finds_everything),
      cmocka_unit_test(test_sarif_has_a_result_for_what_is_not_quiet),
      cmocka_unit_test(test_annotations_are_one_command_a_line),
      cmocka_unit_test(test_codequality_has_an_issue_for_what_is_not_quiet),
      cmocka_unit_test(test_html_format_is_a_page_of_what_is_not_quiet),
      cmocka_unit_test(test_html_format_single_item_is_the_heading),
      cmocka_unit_test(test_junit_format_empty_suite_is_a_document),
      cmocka_unit_test(test_report_write_replaces_whole_files_or_nothing),
      cmocka_unit_test(test_report_without_memory_is_refused),
      cmocka_unit_test(test_summary_has_what_is_not_quiet_and_the_story_of_what_failed),
  };
  const int failed = cmocka_run_group_tests_name("run/report", tests, NULL, NULL);
  xmlCleanupParser();
  return failed;
}
