/* The gate's files for CI systems. */
#include "harness/base/alloc.h"
#include "harness/base/bytes.h"
#include "harness/base/sinks.h"
#include "harness/run/campaign/finding_files.h"
#include "harness/run/gate/gate.h"
#include "harness/run/report/junit.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MESSAGE_TEXT = 640 };

void sf_gate_append_replay(struct sf_text *out, const struct sf_gate_item *item) {
  sf_replay_append(out, *item->min_path ? item->min_path : item->name, item->replay_options, 0);
}

/* What a report's line "what" says; of another text its first line. */
static void keep_what(char *out, size_t size, const char *text) {
  static const char key[] = "\nwhat         ";
  const char *what = strstr(text, key), *at = what ? what + sizeof key - 1 : text;
  size_t length = strcspn(at, "\n");
  if (length > 0 && at[length - 1] == ':') length--;
  snprintf(out, size, "%.*s", (int)length, at);
}

/* One line that says without the report what is wrong. */
static void message_of(char out[MESSAGE_TEXT], const struct sf_gate_item *item) {
  char what[320], diagnosis[SF_DIAGNOSIS_LINE_TEXT];
  keep_what(what, sizeof what, item->text);
  sf_diagnosis_line(diagnosis, &item->diagnosis);
  if (item->state != SF_GATE_NEW)
    snprintf(out, MESSAGE_TEXT, "%s", what);
  else
    snprintf(out, MESSAGE_TEXT, "new finding %s: %s%s%s", item->name, what, *diagnosis ? "; diagnosis: " : "", diagnosis);
}

static struct sf_junit_case case_of(const struct sf_gate_item *item, bool of_corpus, char message[MESSAGE_TEXT]) {
  const bool fails = sf_gate_item_fails(item), not_run = item->state == SF_GATE_NOT_RUN;
  message_of(message, item);
  if (not_run) snprintf(message, MESSAGE_TEXT, "not replayed: out of time");
  return (struct sf_junit_case){
      .name = item->name,
      .class_name = of_corpus                      ? "corpus"
                    : item->state == SF_GATE_STALE ? "known list"
                                                   : "fuzz",
      .seconds = item->seconds,
      .outcome = fails     ? SF_JUNIT_FAILED
                 : not_run ? SF_JUNIT_ERROR
                           : SF_JUNIT_PASSED,
      .type = fails || not_run ? sf_gate_state_text(item->state) : NULL,
      .message = fails || not_run ? message : NULL,
      .text = item->state == SF_GATE_OK ? NULL : item->text,
  };
}

enum sf_status sf_gate_write_junit(const struct sf_gate_result *result, const char *path, struct sf_error *error) {
  struct sf_junit_case *cases = sf_alloc((size_t)(result->item_count + 1) * sizeof *cases);
  char(*messages)[MESSAGE_TEXT] = sf_alloc((size_t)(result->item_count + 1) * sizeof *messages);
  if (!cases || !messages) {
    sf_free(cases);
    sf_free(messages);
    return sf_error_set(error, SF_ENOMEM, "%s: out of memory", path);
  }
  for (int32_t i = 0; i < result->item_count; i++) cases[i] = case_of(&result->items[i], i < result->corpus_count, messages[i]);
  const char *nothing = *result->nothing ? result->nothing : NULL;
  cases[result->item_count] = (struct sf_junit_case){.name = "campaign",
                                                     .class_name = "fuzz",
                                                     .seconds = result->campaign.seconds,
                                                     .outcome = nothing ? SF_JUNIT_ERROR : SF_JUNIT_PASSED,
                                                     .type = nothing ? "not judged" : NULL,
                                                     .message = nothing};
  const struct sf_junit_suite suite = {.name = "shardfuzz gate", .cases = cases, .case_count = result->item_count + 1};
  const enum sf_status status = sf_junit_write(path, &suite, error);
  sf_free(cases);
  sf_free(messages);
  return status;
}

static void append_totals(struct sf_text *text, const struct sf_gate_result *result) {
  const struct sf_store_summary *s = &result->campaign.summary;
  sf_text_append(text, "- corpus: %d cases, %d not as expected, %d not replayed\n", result->corpus_count, result->corpus_failed,
                 result->corpus_not_run);
  sf_text_append(text, "- fuzzing: %" PRId64 " cases in %.0f s, %" PRId64 " with findings, %" PRId64 " inconclusive",
                 result->campaign.cases_run, result->campaign.seconds, s->by_verdict[SF_VERDICT_FINDING],
                 s->by_verdict[SF_VERDICT_INCONCLUSIVE]);
  if (*s->inconclusive_reason) {
    sf_text_append(text, ", the last: ");
    sf_markdown_append(text, s->inconclusive_reason);
  }
  sf_text_append(text, "\n\n");
  if (!*result->nothing) return;
  sf_text_append(text, "**Not judged:** ");
  sf_markdown_append(text, result->nothing);
  sf_text_append(text, "\n\n");
}

static void append_row(struct sf_text *text, const struct sf_gate_item *item) {
  const char *bold = sf_gate_item_fails(item) ? "**" : "";
  struct sf_text replay = {0};
  sf_text_append(text, "| %s%s%s | ", bold, sf_gate_state_text(item->state), bold);
  sf_markdown_append(text, item->name);
  sf_text_append(text, " | ");
  if (item->state == SF_GATE_STALE) {
    sf_markdown_append(text, item->text);
  } else {
    sf_gate_append_replay(&replay, item);
    if (replay.failed)
      text->failed = 1;
    else
      sf_markdown_append(text, replay.data);
  }
  sf_text_append(text, " |\n");
  sf_text_destroy(&replay);
}

static void append_details(struct sf_text *text, const struct sf_gate_item *item) {
  sf_text_append(text, "\n");
  sf_markdown_append(text, item->name);
  sf_text_append(text, "\n\n<details><summary>report</summary>\n\n");
  sf_markdown_append_block(text, item->text);
  sf_text_append(text, "\n</details>\n");
}

enum sf_status sf_gate_write_summary(const struct sf_gate_result *result, const char *path, struct sf_error *error) {
  struct sf_text text = {0};
  bool heading = false;
  sf_text_append(&text, "## shardfuzz gate: %s\n\n", result->passed ? "passed" : "failed");
  append_totals(&text, result);
  for (int32_t i = 0; i < result->item_count; i++) {
    if (result->items[i].state == SF_GATE_OK) continue;
    if (!heading) sf_text_append(&text, "| state | what | next |\n| --- | --- | --- |\n");
    heading = true;
    append_row(&text, &result->items[i]);
  }
  for (int32_t i = 0; i < result->item_count; i++)
    if (sf_gate_item_fails(&result->items[i])) append_details(&text, &result->items[i]);
  const enum sf_status status =
      text.failed ? sf_error_set(error, SF_ENOMEM, "%s: out of memory", path) : sf_bytes_write_file(path, text.data, text.length, error);
  sf_text_destroy(&text);
  return status;
}
