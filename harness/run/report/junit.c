#include "harness/run/report/junit.h"

#include "harness/base/assert.h"
#include "harness/base/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>

#include <libxml/xmlwriter.h>

/* libxml2's writer with the first failure remembered; its functions return a negative number then. */
struct writer {
  xmlTextWriterPtr xml;
  bool failed;
};

static void check(struct writer *writer, int code) {
  if (code < 0) writer->failed = true;
}

static void element_start(struct writer *writer, const char *name) { check(writer, xmlTextWriterStartElement(writer->xml, BAD_CAST name)); }
static void element_end(struct writer *writer) { check(writer, xmlTextWriterEndElement(writer->xml)); }

/* NULL writes nothing. */
static void attribute(struct writer *writer, const char *name, const char *value) {
  struct sf_text clean = {0};
  if (value == NULL) return;
  sf_utf8_append(&clean, value);
  check(writer, clean.failed ? -1 : xmlTextWriterWriteAttribute(writer->xml, BAD_CAST name, BAD_CAST clean.data));
  sf_text_destroy(&clean);
}

static void attribute_count(struct writer *writer, const char *name, int32_t value) {
  check(writer, xmlTextWriterWriteFormatAttribute(writer->xml, BAD_CAST name, "%d", value));
}

/* As written; what is no finite number of seconds counts as 0. */
static int64_t milliseconds_of(double seconds) { return isfinite(seconds) && fabs(seconds) < 1e12 ? llround(seconds * 1000) : 0; }

static void attribute_time(struct writer *writer, int64_t milliseconds) {
  check(writer, xmlTextWriterWriteFormatAttribute(writer->xml, BAD_CAST "time", "%" PRId64 ".%03" PRId64, milliseconds / 1000,
                                                  milliseconds % 1000));
}

static void content(struct writer *writer, const char *text) {
  struct sf_text clean = {0};
  if (text == NULL) return;
  sf_utf8_append(&clean, text);
  check(writer, clean.failed ? -1 : xmlTextWriterWriteString(writer->xml, BAD_CAST clean.data));
  sf_text_destroy(&clean);
}

static void properties_write(struct writer *writer, const struct sf_junit_property *properties, int32_t count) {
  if (count == 0) return;
  element_start(writer, "properties");
  for (int32_t i = 0; i < count; i++) {
    element_start(writer, "property");
    attribute(writer, "name", properties[i].name);
    attribute(writer, "value", properties[i].value == NULL ? "" : properties[i].value);
    element_end(writer);
  }
  element_end(writer);
}

static void case_write(struct writer *writer, const struct sf_junit_case *one) {
  static const char *const elements[] = {
#define X(name, element) element,
      SF_JUNIT_OUTCOME_MAP(X)
#undef X
  };
  SF_ASSERT_LT((unsigned)one->outcome, SF_JUNIT_OUTCOME_COUNT);
  element_start(writer, "testcase");
  attribute(writer, "name", one->name);
  attribute(writer, "classname", one->class_name);
  attribute_time(writer, milliseconds_of(one->seconds));
  properties_write(writer, one->properties, one->property_count);
  if (one->outcome != SF_JUNIT_PASSED) {
    element_start(writer, elements[one->outcome]);
    attribute(writer, "type", one->type);
    attribute(writer, "message", one->message);
    content(writer, one->text);
    element_end(writer);
  }
  element_end(writer);
}

static int32_t outcome_count(const struct sf_junit_suite *suite, enum sf_junit_outcome outcome) {
  int32_t count = 0;
  for (int32_t i = 0; i < suite->case_count; i++) count += suite->cases[i].outcome == outcome;
  return count;
}

/* Attributes that <testsuites> and its one <testsuite> share. */
static void suite_attributes(struct writer *writer, const struct sf_junit_suite *suite) {
  int64_t milliseconds = 0;
  for (int32_t i = 0; i < suite->case_count; i++) milliseconds += milliseconds_of(suite->cases[i].seconds);
  attribute(writer, "name", suite->name);
  attribute_count(writer, "tests", suite->case_count);
  attribute_count(writer, "failures", outcome_count(suite, SF_JUNIT_FAILED));
  attribute_count(writer, "errors", outcome_count(suite, SF_JUNIT_ERROR));
  attribute_count(writer, "skipped", outcome_count(suite, SF_JUNIT_SKIPPED));
  attribute_time(writer, milliseconds);
}

static void document_write(struct writer *writer, const struct sf_junit_suite *suite) {
  check(writer, xmlTextWriterSetIndent(writer->xml, 1));
  check(writer, xmlTextWriterSetIndentString(writer->xml, BAD_CAST "  "));
  check(writer, xmlTextWriterStartDocument(writer->xml, NULL, "UTF-8", NULL));
  element_start(writer, "testsuites");
  suite_attributes(writer, suite);
  element_start(writer, "testsuite");
  suite_attributes(writer, suite);
  properties_write(writer, suite->properties, suite->property_count);
  for (int32_t i = 0; i < suite->case_count; i++) case_write(writer, &suite->cases[i]);
  check(writer, xmlTextWriterEndDocument(writer->xml));
}

enum sf_status sf_junit_format(struct sf_text *out, const struct sf_junit_suite *suite) {
  struct writer writer = {0};
  enum sf_status status = SF_ENOMEM;
  xmlBufferPtr buffer = xmlBufferCreate();
  if (buffer != NULL) writer.xml = xmlNewTextWriterMemory(buffer, 0);
  if (writer.xml != NULL) {
    document_write(&writer, suite);
    xmlFreeTextWriter(writer.xml); /* flushes into the buffer */
    if (!writer.failed) {
      sf_text_append(out, "%s", (const char *)xmlBufferContent(buffer));
      if (!out->failed) status = SF_OK;
    }
  }
  if (buffer != NULL) xmlBufferFree(buffer);
  return status;
}

enum sf_status sf_junit_write(const char *path, const struct sf_junit_suite *suite, struct sf_error *error) {
  struct sf_text text = {0};
  enum sf_status status = sf_junit_format(&text, suite);
  status =
      status != SF_OK ? sf_error_set(error, status, "%s: out of memory", path) : sf_bytes_write_file(path, text.data, text.length, error);
  sf_text_destroy(&text);
  return status;
}
