/* The gate's files for CI systems. */
#include "harness/base/alloc.h"
#include "harness/base/bytes.h"
#include "harness/run/gate/gate.h"
#include "harness/run/gate/junit.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MESSAGE_TEXT = 640 };

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

static void append_row(struct sf_text *out, const struct sf_gate_item *item) {
  const char *bold = sf_gate_item_fails(item) ? "**" : "";
  sf_text_append(out, "| %s%s%s | `%s` | ", bold, sf_gate_state_text(item->state), bold, item->name);
  if (item->state == SF_GATE_STALE)
    sf_text_append(out, "%s |\n", item->text);
  else
    sf_text_append(out, "`shardfuzz replay '%s'` |\n", *item->min_path ? item->min_path : item->name);
}

enum sf_status sf_gate_write_summary(const struct sf_gate_result *result, const char *path, struct sf_error *error) {
  struct sf_text text = {0};
  sf_text_append(&text, "## shardfuzz gate: %s\n\n", result->passed ? "passed" : "failed");
  sf_text_append(&text,
                 "- corpus: %d cases, %d not as expected, %d not replayed\n- fuzzing: %" PRId64 " cases in %.0f s, %" PRId64
                 " with findings, %" PRId64 " inconclusive%s%s\n\n",
                 result->corpus_count, result->corpus_failed, result->corpus_not_run, result->campaign.cases_run, result->campaign.seconds,
                 result->campaign.summary.by_verdict[SF_VERDICT_FINDING], result->campaign.summary.by_verdict[SF_VERDICT_INCONCLUSIVE],
                 *result->campaign.summary.inconclusive_reason ? ", the last: " : "", result->campaign.summary.inconclusive_reason);
  if (*result->nothing) sf_text_append(&text, "**%s**\n\n", result->nothing);
  bool heading = false;
  for (int32_t i = 0; i < result->item_count; i++) {
    const struct sf_gate_item *item = &result->items[i];
    if (item->state == SF_GATE_OK) continue;
    if (!heading) sf_text_append(&text, "| state | what | next |\n| --- | --- | --- |\n");
    heading = true;
    append_row(&text, item);
  }
  for (int32_t i = 0; i < result->item_count; i++) {
    const struct sf_gate_item *item = &result->items[i];
    if (sf_gate_item_fails(item))
      sf_text_append(&text, "\n<details><summary>%s</summary>\n\n```\n%s\n```\n</details>\n", item->name, item->text);
  }
  const enum sf_status status =
      text.failed ? sf_error_set(error, SF_ENOMEM, "%s: out of memory", path) : sf_bytes_write_file(path, text.data, text.length, error);
  sf_text_destroy(&text);
  return status;
}
