/* The Markdown page: verdict, facts, a table of the items that are not quiet, and the story of each that failed. */
#include "harness/base/sinks.h"
#include "harness/run/report/report.h"

static const char *data_of(const struct sf_text *text) { return text->data ? text->data : ""; }

static void append_row(struct sf_text *out, const struct sf_report_item *item) {
  const char *bold = item->outcome == SF_REPORT_FAILED ? "**" : "";
  sf_text_append(out, "| %s%s%s | ", bold, item->state, bold);
  sf_markdown_append(out, data_of(&item->name));
  sf_text_append(out, " | ");
  sf_markdown_append(out, data_of(&item->next));
  sf_text_append(out, " |\n");
}

static void append_story(struct sf_text *out, const struct sf_report_item *item) {
  sf_text_append(out, "\n");
  sf_markdown_append(out, data_of(&item->name));
  sf_text_append(out, "\n\n<details><summary>report</summary>\n\n");
  sf_markdown_append_block(out, data_of(&item->text));
  if (item->minimal.data) {
    sf_text_append(out, "\nThe smallest case:\n\n");
    sf_markdown_append_block(out, item->minimal.data);
  }
  sf_text_append(out, "\n</details>\n");
}

enum sf_status sf_report_append_summary(struct sf_text *out, const struct sf_report *report) {
  bool heading = false;
  sf_text_append(out, "## %s: %s\n\n", report->title, report->passed ? "passed" : "failed");
  for (int32_t i = 0; i < report->fact_count; i++) {
    const struct sf_report_fact *fact = &report->facts[i];
    sf_text_append(out, "- %s: %s", fact->name, data_of(&fact->value));
    if (fact->said.data) sf_markdown_append(out, fact->said.data);
    sf_text_append(out, "\n");
  }
  sf_text_append(out, "\n");
  if (report->nothing.data) {
    sf_text_append(out, "**Not judged:** ");
    sf_markdown_append(out, report->nothing.data);
    sf_text_append(out, "\n\n");
  }
  for (int32_t i = 0; i < report->item_count; i++) {
    if (report->items[i].is_quiet) continue;
    if (!heading) sf_text_append(out, "| state | what | next |\n| --- | --- | --- |\n");
    heading = true;
    append_row(out, &report->items[i]);
  }
  for (int32_t i = 0; i < report->item_count; i++)
    if (report->items[i].outcome == SF_REPORT_FAILED) append_story(out, &report->items[i]);
  return out->failed ? SF_ENOMEM : SF_OK;
}
