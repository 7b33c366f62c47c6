/* The gate's report. */
#include "harness/base/sinks.h"
#include "harness/run/campaign/finding_files.h"
#include "harness/run/gate/gate.h"
#include "harness/run/support/version.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void sf_gate_append_replay(struct sf_text *out, const struct sf_gate_item *item) {
  sf_replay_append(out, *item->min_path ? item->min_path : item->name, item->replay, 0);
}

static struct sf_report_item *add_item(struct sf_report *report, const struct sf_gate_item *item, bool of_corpus) {
  const bool fails = sf_gate_item_fails(item), not_run = item->state == SF_GATE_NOT_RUN, is_stale = item->state == SF_GATE_STALE;
  struct sf_report_item *out = sf_report_add(report,
                                             of_corpus  ? "corpus"
                                             : is_stale ? "known list"
                                                        : "fuzz",
                                             sf_gate_state_text(item->state),
                                             fails     ? SF_REPORT_FAILED
                                             : not_run ? SF_REPORT_ERROR
                                                       : SF_REPORT_PASSED);
  out->is_quiet = item->state == SF_GATE_OK;
  out->seconds = item->seconds;
  sf_text_append(&out->name, "%s", item->name);
  if (not_run)
    sf_text_append(&out->message, "not replayed: out of time");
  else
    sf_finding_message(&out->message, fails && item->state == SF_GATE_NEW ? item->name : NULL, *item->what ? item->what : item->text,
                       &item->diagnosis);
  sf_text_append(&out->text, "%s", item->text);
  if (!is_stale) sf_report_case(out, *item->min_path ? item->min_path : item->name);
  out->has_command = !is_stale;
  if (is_stale)
    sf_text_append(&out->next, "%s", item->text);
  else
    sf_gate_append_replay(&out->next, item);
  return out;
}

/* One item for the findings of a cause: the first that fails, or the first, and the names of the others. */
static void add_cause(struct sf_report *report, const struct sf_gate_result *result, int32_t first, int32_t end) {
  int32_t shown = first;
  while (shown < end && !sf_gate_item_fails(&result->items[shown])) shown++;
  if (shown == end) shown = first;
  struct sf_report_item *out = add_item(report, &result->items[shown], first < result->corpus_count);
  for (int32_t i = first; i < end; i++)
    if (i != shown) sf_line_append(&out->text, "one cause    %s (%s)\n", result->items[i].name, sf_gate_state_text(result->items[i].state));
}

void sf_gate_report(struct sf_report *report, const struct sf_gate_result *result, const struct sf_gate_identity *identity) {
  const struct sf_store_summary *s = &result->campaign.summary;
  report->title = "shardfuzz gate";
  report->passed = result->passed;
  sf_report_fact(report, "seed", NULL, "%" PRIu64 "; %s", identity->seed, identity->seed_from);
  if (*identity->commit) sf_report_fact(report, "commit", NULL, "%s", identity->commit);
  sf_report_fact(report, "shardfuzz", NULL, "%s%s%s", sf_version, *sf_version_commit ? ", commit " : "", sf_version_commit);
  if (result->known_count > 0) sf_report_fact(report, "known list", NULL, "%d of %d entries seen", result->known_seen, result->known_count);
  sf_report_fact(report, "corpus", NULL, "%d case%s, %d not as expected, %d not replayed", result->corpus_count,
                 sf_plural(result->corpus_count), result->corpus_failed, result->corpus_not_run);
  sf_report_fact(report, "fuzzing", s->inconclusive_reason,
                 "%" PRId64 " case%s in %.0f s, %" PRId64 " with findings, %" PRId64 " inconclusive%s", result->campaign.cases_run,
                 sf_plural(result->campaign.cases_run), result->campaign.seconds, s->by_verdict[SF_VERDICT_FINDING],
                 s->by_verdict[SF_VERDICT_INCONCLUSIVE], *s->inconclusive_reason ? ", the last: " : "");
  for (int32_t i = 0, end; i < result->item_count; i = end) {
    end = sf_gate_cause_end(result, i);
    add_cause(report, result, i, end);
  }
  sf_report_campaign(report, result->campaign.seconds, result->nothing);
}
