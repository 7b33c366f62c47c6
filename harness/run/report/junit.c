#include "harness/run/report/report.h"

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

/* Milliseconds as they are written; a number of seconds that is not finite counts as 0. */
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

static void properties_write(struct writer *writer, const struct sf_report *report) {
  if (report->fact_count == 0) return;
  element_start(writer, "properties");
  for (int32_t i = 0; i < report->fact_count; i++) {
    const struct sf_report_fact *fact = &report->facts[i];
    struct sf_text value = {0};
    sf_text_append(&value, "%s%s", fact->value.data ? fact->value.data : "", fact->said.data ? fact->said.data : "");
    element_start(writer, "property");
    attribute(writer, "name", fact->name);
    attribute(writer, "value", value.data);
    element_end(writer);
    if (value.failed) writer->failed = true;
    sf_text_destroy(&value);
  }
  element_end(writer);
}

static void item_write(struct writer *writer, const struct sf_report_item *item) {
  static const char *const elements[] = {NULL, "failure", "error"}; /* by outcome */
  SF_ASSERT_ENTRIES(elements, SF_REPORT_OUTCOME_COUNT);
  element_start(writer, "testcase");
  attribute(writer, "name", item->name.data ? item->name.data : "");
  attribute(writer, "classname", item->group);
  attribute_time(writer, milliseconds_of(item->seconds));
  if (item->outcome != SF_REPORT_PASSED) {
    element_start(writer, elements[item->outcome]);
    attribute(writer, "type", item->state);
    attribute(writer, "message", item->message.data);
    content(writer, item->text.data);
    element_end(writer);
  }
  element_end(writer);
}

static int32_t outcome_count(const struct sf_report *report, enum sf_report_outcome outcome) {
  int32_t count = 0;
  for (int32_t i = 0; i < report->item_count; i++) count += report->items[i].outcome == outcome;
  return count;
}

/* Attributes of <testsuites> and of its one <testsuite>. The time is the sum of the tests' times, because readers add them up. */
static void suite_attributes(struct writer *writer, const struct sf_report *report) {
  int64_t milliseconds = 0;
  for (int32_t i = 0; i < report->item_count; i++) milliseconds += milliseconds_of(report->items[i].seconds);
  attribute(writer, "name", report->title);
  attribute_count(writer, "tests", report->item_count);
  attribute_count(writer, "failures", outcome_count(report, SF_REPORT_FAILED));
  attribute_count(writer, "errors", outcome_count(report, SF_REPORT_ERROR));
  attribute_count(writer, "skipped", 0);
  attribute_time(writer, milliseconds);
}

static void document_write(struct writer *writer, const struct sf_report *report) {
  check(writer, xmlTextWriterSetIndent(writer->xml, 1));
  check(writer, xmlTextWriterSetIndentString(writer->xml, BAD_CAST "  "));
  check(writer, xmlTextWriterStartDocument(writer->xml, NULL, "UTF-8", NULL));
  element_start(writer, "testsuites");
  suite_attributes(writer, report);
  element_start(writer, "testsuite");
  suite_attributes(writer, report);
  properties_write(writer, report);
  for (int32_t i = 0; i < report->item_count; i++) item_write(writer, &report->items[i]);
  check(writer, xmlTextWriterEndDocument(writer->xml));
}

/* UTF-8 (https://github.com/testmoapp/junitxml): a test suite with a test for each item, facts as its properties. Characters that XML
 * cannot hold are replaced (utf8.h); seconds that are not finite are written as 0. */
enum sf_status sf_report_append_junit(struct sf_text *out, const struct sf_report *report) {
  struct writer writer = {0};
  enum sf_status status = SF_ENOMEM;
  xmlBufferPtr buffer = xmlBufferCreate();
  if (buffer != NULL) writer.xml = xmlNewTextWriterMemory(buffer, 0);
  if (writer.xml != NULL) {
    document_write(&writer, report);
    xmlFreeTextWriter(writer.xml); /* flushes into the buffer */
    if (!writer.failed) {
      sf_text_append(out, "%s", (const char *)xmlBufferContent(buffer));
      if (!out->failed) status = SF_OK;
    }
  }
  if (buffer != NULL) xmlBufferFree(buffer);
  return status;
}
