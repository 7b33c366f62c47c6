/* The gate's files for CI systems. */
#include "harness/base/alloc.h"
#include "harness/base/bytes.h"
#include "harness/run/gate/gate.h"
#include "harness/run/gate/junit.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static bool fails(const struct sf_gate_item *item) { return item->state == SF_GATE_NEW || item->state == SF_GATE_UNEXPECTED; }

enum sf_status sf_gate_write_junit(const struct sf_gate_result *result, const char *path, struct sf_error *error) {
  struct sf_junit_case *cases = sf_alloc((size_t)(result->item_count + 1) * sizeof *cases);
  if (!cases) return sf_error_set(error, SF_ENOMEM, "%s: out of memory", path);
  for (int32_t i = 0; i < result->item_count; i++) {
    const struct sf_gate_item *item = &result->items[i];
    cases[i] = (struct sf_junit_case){
        .name = item->name,
        .class_name = i < result->corpus_count ? "corpus" : "fuzz",
        .seconds = item->seconds,
        .outcome = fails(item) ? SF_JUNIT_FAILED : SF_JUNIT_PASSED,
        .type = fails(item) ? sf_gate_state_text(item->state) : NULL,
        .message = fails(item) ? sf_gate_state_text(item->state) : NULL,
        .text = item->state == SF_GATE_OK ? NULL : item->text,
    };
  }
  cases[result->item_count] = (struct sf_junit_case){.name = "campaign", .class_name = "fuzz", .seconds = result->campaign.seconds, .outcome = *result->nothing ? SF_JUNIT_ERROR : SF_JUNIT_PASSED,
                                                    .type = *result->nothing ? "nothing was judged" : NULL, .message = *result->nothing ? result->nothing : NULL};
  const struct sf_junit_suite suite = {.name = "shardfuzz gate", .seconds = result->campaign.seconds, .cases = cases, .case_count = result->item_count + 1};
  const enum sf_status status = sf_junit_write(path, &suite, error);
  sf_free(cases);
  return status;
}

enum sf_status sf_gate_write_summary(const struct sf_gate_result *result, const char *path, struct sf_error *error) {
  struct sf_text text = {0};
  sf_text_append(&text, "## shardfuzz gate: %s\n\n", result->passed ? "passed" : "failed");
  sf_text_append(&text, "- corpus: %d cases, %d not as expected\n- fuzzing: %" PRId64 " cases in %.0f s, %" PRId64 " with findings, %" PRId64 " inconclusive%s%s\n\n",
                 result->corpus_count, result->corpus_failed, result->campaign.cases_run, result->campaign.seconds,
                 result->campaign.summary.by_verdict[SF_VERDICT_FINDING], result->campaign.summary.by_verdict[SF_VERDICT_INCONCLUSIVE],
                 *result->campaign.summary.inconclusive_reason ? ", the last: " : "", result->campaign.summary.inconclusive_reason);
  if (*result->nothing) sf_text_append(&text, "**%s**\n\n", result->nothing);
  bool heading = false;
  for (int32_t i = 0; i < result->item_count; i++) {
    const struct sf_gate_item *item = &result->items[i];
    if (item->state == SF_GATE_OK) continue;
    if (!heading) sf_text_append(&text, "| state | what | replay |\n| --- | --- | --- |\n");
    heading = true;
    sf_text_append(&text, "| %s%s%s | `%s` | `shardfuzz replay '%s'` |\n", fails(item) ? "**" : "", sf_gate_state_text(item->state), fails(item) ? "**" : "",
                   item->name, *item->min_path ? item->min_path : item->name);
  }
  for (int32_t i = 0; i < result->item_count; i++) {
    const struct sf_gate_item *item = &result->items[i];
    if (fails(item)) sf_text_append(&text, "\n<details><summary>%s</summary>\n\n```\n%s\n```\n</details>\n", item->name, item->text);
  }
  const enum sf_status status =
      text.failed ? sf_error_set(error, SF_ENOMEM, "%s: out of memory", path) : sf_bytes_write_file(path, text.data, text.length, error);
  sf_text_destroy(&text);
  return status;
}
