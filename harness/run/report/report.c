#include "harness/run/report/report.h"

#include "harness/base/alloc.h"
#include "harness/base/system/directories.h"

#include <stdarg.h>
#include <stdio.h>

struct sf_report_item *sf_report_add(struct sf_report *report, const char *group, const char *state, enum sf_report_outcome outcome) {
  static struct sf_report_item spare;
  struct sf_report_item *items = sf_grown(report->items, report->item_count, sizeof *items), *item = &spare;
  if (items)
    report->items = items, item = &items[report->item_count++];
  else
    report->failed = true;
  item->group = group;
  item->state = state;
  item->outcome = outcome;
  return item;
}

void sf_report_case(struct sf_report_item *item, const char *path) {
  enum { CASE_BYTES_MAX = 8192 };
  struct sf_bytes bytes = {0};
  sf_text_append(&item->file, "%s", path);
  if (item->outcome != SF_REPORT_FAILED || sf_bytes_read_file(&bytes, path, CASE_BYTES_MAX, NULL) != SF_OK) return;
  sf_text_append(&item->minimal, "%s", (const char *)bytes.data);
  sf_bytes_destroy(&bytes);
}

void sf_report_fact(struct sf_report *report, const char *name, const char *said, const char *format, ...) {
  char value[512];
  struct sf_report_fact *facts = sf_grown(report->facts, report->fact_count, sizeof *facts);
  va_list arguments;
  if (!facts) {
    report->failed = true;
    return;
  }
  report->facts = facts;
  struct sf_report_fact *fact = &facts[report->fact_count++];
  fact->name = name;
  va_start(arguments, format);
  vsnprintf(value, sizeof value, format, arguments);
  va_end(arguments);
  sf_text_append(&fact->value, "%s", value);
  if (said && *said) sf_text_append(&fact->said, "%s", said);
}

void sf_report_campaign(struct sf_report *report, double seconds, const char *nothing) {
  struct sf_report_item *item = sf_report_add(report, "fuzz", "not judged", *nothing ? SF_REPORT_ERROR : SF_REPORT_PASSED);
  item->is_quiet = true;
  item->seconds = seconds;
  sf_text_append(&item->name, "campaign");
  if (!*nothing) return;
  sf_text_append(&item->message, "%s", nothing);
  sf_text_append(&report->nothing, "%s", nothing);
}

void sf_report_destroy(struct sf_report *report) {
  for (int32_t i = 0; i < report->fact_count; i++) {
    sf_text_destroy(&report->facts[i].value);
    sf_text_destroy(&report->facts[i].said);
  }
  for (int32_t i = 0; i < report->item_count; i++) {
    struct sf_report_item *item = &report->items[i];
    struct sf_text *texts[] = {&item->name, &item->message, &item->text, &item->next, &item->file, &item->minimal, &item->figures};
    for (size_t k = 0; k < sizeof texts / sizeof texts[0]; k++) sf_text_destroy(texts[k]);
  }
  sf_text_destroy(&report->nothing);
  sf_text_destroy(&report->figures);
  sf_free(report->facts);
  sf_free(report->items);
}

static bool is_complete(const struct sf_report *report) {
  bool failed = report->failed || report->nothing.failed || report->figures.failed;
  for (int32_t i = 0; i < report->fact_count; i++) failed |= report->facts[i].value.failed || report->facts[i].said.failed;
  for (int32_t i = 0; i < report->item_count; i++) {
    const struct sf_report_item *item = &report->items[i];
    failed |= item->name.failed || item->message.failed || item->text.failed || item->next.failed;
    failed |= item->file.failed || item->minimal.failed || item->figures.failed;
  }
  return !failed;
}

/* --- formats ---------------------------------------------------------------------------------------------------- */

#define COUNT_ONE(...) +1
enum { FORMAT_COUNT = 0 SF_REPORT_FORMAT_MAP(COUNT_ONE, ) };

typedef enum sf_status append_function(struct sf_text *out, const struct sf_report *report);
static append_function *const formats[FORMAT_COUNT] = {
#define APPEND(format, ...) sf_report_append_##format,
    SF_REPORT_FORMAT_MAP(APPEND, )};

static void list_paths(const char *out[FORMAT_COUNT], const struct sf_report_paths *paths) {
  int32_t count = 0;
#define PATH(format, ...) out[count++] = paths->format;
  SF_REPORT_FORMAT_MAP(PATH, )
}

enum sf_status sf_report_check(const struct sf_report_paths *paths, struct sf_error *error) {
  const char *path[FORMAT_COUNT];
  enum sf_status status = SF_OK;
  list_paths(path, paths);
  for (int32_t i = 0; i < FORMAT_COUNT && status == SF_OK; i++) status = sf_output_check(path[i], error);
  return status;
}

static enum sf_status write_one(const struct sf_report *report, append_function *append, const char *path, struct sf_error *error) {
  struct sf_text text = {0};
  enum sf_status status = is_complete(report) ? append(&text, report) : SF_ENOMEM;
  status = status != SF_OK ? sf_error_set(error, status, "%s: %s", path, sf_status_text(status))
                           : sf_bytes_write_file(path, text.data, text.length, error);
  sf_text_destroy(&text);
  return status;
}

enum sf_status sf_report_write(const struct sf_report *report, const struct sf_report_paths *paths, struct sf_error *error) {
  const char *path[FORMAT_COUNT];
  enum sf_status status = SF_OK;
  list_paths(path, paths);
  for (int32_t i = 0; i < FORMAT_COUNT && status == SF_OK; i++)
    if (path[i]) status = write_one(report, formats[i], path[i], error);
  return status;
}
