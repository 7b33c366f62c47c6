/* What GitHub Actions shows beside the files of a pull request: commands of a workflow, a line each, for a step that prints the file. */
#include "harness/base/sinks.h"
#include "harness/run/report/places.h"

#include <string.h>

/* Text of a command: what would end it, and in a property what would end that, is escaped. */
static void append_escaped(struct sf_text *out, const char *text, const char *also) {
  struct sf_text line = {0};
  sf_line_append(&line, "%s", text);
  for (const char *at = line.data ? line.data : ""; *at; at++)
    sf_text_append(out, *at == '%' || strchr(also, *at) ? "%%%02X" : "%c", (unsigned char)*at);
  out->failed |= line.failed;
  sf_text_destroy(&line);
}

enum sf_status sf_report_append_annotations(struct sf_text *out, const struct sf_report *report) {
  static const char *const commands[] = {"notice", "error", "warning"}; /* by outcome */
  sf_text_append(out, "%s", "");
  for (int32_t i = 0; i < report->item_count; i++) {
    const struct sf_report_item *item = &report->items[i];
    if (item->is_quiet && item->outcome == SF_REPORT_PASSED) continue;
    sf_text_append(out, "::%s file=", commands[item->outcome]);
    append_escaped(out, sf_place_path(item), ":,");
    sf_text_append(out, ",title=");
    append_escaped(out, report->title, ":,");
    sf_text_append(out, "%%3A %s::", item->state);
    append_escaped(out, sf_place_message(item), "");
    if (item->next.data && item->outcome != SF_REPORT_PASSED) {
      sf_text_append(out, "%%0A");
      append_escaped(out, item->next.data, "");
    }
    sf_text_append(out, "\n");
  }
  return out->failed ? SF_ENOMEM : SF_OK;
}
