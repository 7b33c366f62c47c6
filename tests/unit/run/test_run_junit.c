#include "harness/base/alloc.h"
#include "harness/run/report/junit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <libxml/xmlreader.h>
#include <math.h>
#include <unistd.h>

static const struct sf_junit_property properties[] = {{"seed", "7"}, {"note", "<&\">\x01"}};
static const struct sf_junit_case cases[] = {
    {.name = "regress/one.json", .class_name = "corpus", .seconds = 0.25},
    {.name = "two <tp=2 & sp>",
     .class_name = "corpus",
     .seconds = NAN,
     .outcome = SF_JUNIT_FAILED,
     .type = "tolerance",
     .message = "ratio 9.5 at \"act\"",
     .text = "line one\nline <two> ]]>\x1b[0m\xff",
     .properties = properties,
     .property_count = 2},
    {.name = "three", .seconds = 12.3456, .outcome = SF_JUNIT_ERROR, .message = "worker died"},
    {.name = "four", .outcome = SF_JUNIT_SKIPPED},
};
static const struct sf_junit_suite suite = {
    .name = "shardfuzz gate",
    .properties = properties,
    .property_count = 1,
    .cases = cases,
    .case_count = 4,
};

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
  assert_int_equal(sf_junit_format(&text, &suite), SF_OK);
  const struct found found = document_read(text.data, text.length);
  assert_int_equal(found.testcases, 4);
  assert_int_equal(found.failures, 1);
  assert_int_equal(found.errors, 1);
  assert_int_equal(found.skipped, 1);
  assert_int_equal(found.properties, 3);
  assert_string_equal(found.tests, "4");
  assert_string_equal(found.suite_time, "12.596");
  assert_string_equal(found.second_name, "two <tp=2 & sp>");
  assert_string_equal(found.failure_message, "ratio 9.5 at \"act\"");
  assert_string_equal(found.failure_text, "line one\nline <two> ]]>\xef\xbf\xbd[0m\xef\xbf\xbd");
  assert_string_equal(found.last_value, "<&\">\xef\xbf\xbd");
  assert_non_null(
      strstr(text.data, "<testsuite name=\"shardfuzz gate\" tests=\"4\" failures=\"1\" errors=\"1\" skipped=\"1\" time=\"12.596\">"));
  assert_non_null(strstr(text.data, "<testcase name=\"two &lt;tp=2 &amp; sp&gt;\" classname=\"corpus\" time=\"0.000\">"));
  sf_text_destroy(&text);
}

static void test_junit_format_empty_suite_is_a_document(void **state) {
  (void)state;
  const struct sf_junit_suite empty = {.name = "nothing"};
  struct sf_text text = {0};
  assert_int_equal(sf_junit_format(&text, &empty), SF_OK);
  const struct found found = document_read(text.data, text.length);
  assert_int_equal(found.testcases, 0);
  assert_string_equal(found.tests, "0");
  sf_text_destroy(&text);
}

static void test_junit_write_replaces_whole_file_or_nothing(void **state) {
  (void)state;
  char folder[96], path[128], missing[128];
  const char *base = getenv("TMPDIR");
  snprintf(folder, sizeof folder, "%.60s/sf_junit_XXXXXX", base == NULL ? P_tmpdir : base);
  assert_non_null(mkdtemp(folder));
  snprintf(path, sizeof path, "%s/report.xml", folder);
  snprintf(missing, sizeof missing, "%s/none/report.xml", folder);
  assert_int_equal(sf_bytes_write_file(path, "old", 3, NULL), SF_OK);
  struct sf_error error = {0};
  assert_int_not_equal(sf_junit_write(missing, &suite, &error), SF_OK);
  assert_non_null(strstr(error.text, "none/report.xml"));
  sf_alloc_fail_at(1);
  assert_int_equal(sf_junit_write(path, &suite, &error), SF_ENOMEM);
  sf_alloc_fail_at(0);
  struct sf_bytes bytes = {0};
  assert_int_equal(sf_bytes_read_file(&bytes, path, 1 << 20, NULL), SF_OK);
  assert_string_equal((const char *)bytes.data, "old");
  sf_bytes_destroy(&bytes);
  assert_int_equal(sf_junit_write(path, &suite, &error), SF_OK);
  assert_int_equal(sf_bytes_read_file(&bytes, path, 1 << 20, NULL), SF_OK);
  assert_int_equal(document_read((const char *)bytes.data, bytes.size_bytes).testcases, 4);
  sf_bytes_destroy(&bytes);
  assert_int_equal(unlink(path), 0);
  assert_int_equal(rmdir(folder), 0); /* no temporary file is left */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_junit_format_reader_finds_everything),
      cmocka_unit_test(test_junit_format_empty_suite_is_a_document),
      cmocka_unit_test(test_junit_write_replaces_whole_file_or_nothing),
  };
  const int failed = cmocka_run_group_tests_name("run/junit", tests, NULL, NULL);
  xmlCleanupParser();
  return failed;
}
