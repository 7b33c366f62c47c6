#include "harness/run/campaign/signatures.h"

#include "harness/base/alloc.h"
#include "harness/base/sinks.h"
#include "harness/run/campaign/causes.h"
#include "harness/run/campaign/finding_files.h"
#include "harness/run/support/version.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FURTHER_SHOWN = 6 }; /* signatures of a cause, below its first */

struct reading {
  struct sf_signatures list;
  struct evidence *evidence; /* of each */
  int32_t evidence_count;
  const char *out_dir;
};
struct evidence {
  char *shown;
  struct sf_case *min, *found;
  bool is_shadow;
};

/* out stays NULL where there is no text, or one of another version, whose fields this one does not know. */
static enum sf_status read_case(struct sf_case **out, const char *json) {
  if (!json) return SF_OK;
  *out = sf_alloc(sizeof **out);
  if (!*out) return SF_ENOMEM;
  if (sf_case_from_json(*out, json, strlen(json), "", NULL) == SF_OK) return SF_OK;
  sf_free(*out);
  *out = NULL;
  return SF_OK;
}

/* What is known beside the signature and the diagnosis. */
static enum sf_status add_evidence(struct reading *reading, const struct sf_store_finding *finding) {
  struct evidence *grown = sf_grown(reading->evidence, reading->evidence_count, sizeof *grown);
  if (!grown) return SF_ENOMEM;
  reading->evidence = grown;
  struct evidence *e = &grown[reading->evidence_count++];
  *e = (struct evidence){.shown = sf_strdup(finding->shown ? finding->shown : "")};
  if (!e->shown) return SF_ENOMEM;
  const enum sf_status status = read_case(&e->min, finding->min_json);
  return status == SF_OK && !e->min ? read_case(&e->found, finding->case_json) : status;
}

static enum sf_status add(void *context, const struct sf_store_finding *finding) {
  struct reading *reading = context;
  struct sf_signatures *list = &reading->list;
  struct sf_signature *grown = sf_grown(list->at, list->count, sizeof *grown);
  if (!grown) return SF_ENOMEM;
  list->at = grown;
  struct sf_signature *s = &grown[list->count++];
  *s = (struct sf_signature){.count = finding->count,
                             .first_index = finding->index,
                             .trials = finding->trials,
                             .trials_max = finding->trials_max,
                             .shrunk = finding->min_json != NULL,
                             .minimal = finding->minimal,
                             .known = finding->known,
                             .diagnosis = finding->diagnosis};
  snprintf(s->signature, sizeof s->signature, "%s", finding->signature);
  sf_finding_directory(s->directory, sizeof s->directory, reading->out_dir, finding->signature, finding->folder);
  s->report = strdup(finding->report ? finding->report : "");
  s->what = strdup(finding->what ? finding->what : "");
  s->contrast = strdup(finding->contrast ? finding->contrast : "");
  if (!s->report || !s->what || !s->contrast) return SF_ENOMEM;
  snprintf(s->min_path, sizeof s->min_path, "%s/%s", s->directory, finding->min_json ? "min.json" : "case.json");
  return add_evidence(reading, finding);
}

/* --- causes ---------------------------------------------------------------------------------------------------- */

static struct sf_cause_evidence evidence_of(const struct reading *reading, int32_t which) {
  return (struct sf_cause_evidence){.signature = reading->list.at[which].signature,
                                    .shown = reading->evidence[which].shown,
                                    .min = reading->evidence[which].min,
                                    .found = reading->evidence[which].found,
                                    .diagnosis = &reading->list.at[which].diagnosis,
                                    .is_shadow = reading->evidence[which].is_shadow};
}

/* Findings that a third one joins have one cause, too. */
static void join(struct sf_signatures *list, int32_t a, int32_t b) {
  const int32_t first = list->at[a].cause < list->at[b].cause ? list->at[a].cause : list->at[b].cause,
                other = list->at[a].cause < list->at[b].cause ? list->at[b].cause : list->at[a].cause;
  for (int32_t i = 0; i < list->count; i++)
    if (list->at[i].cause == other) list->at[i].cause = first;
}

static bool is_shadow(const struct reading *reading, int32_t which) {
  const struct sf_cause_evidence own = evidence_of(reading, which);
  bool is = false;
  for (int32_t i = 0; i < reading->list.count && !is; i++) {
    const struct sf_cause_evidence other = evidence_of(reading, i);
    is = i != which && sf_finding_is_shadow_of(&own, &other);
  }
  return is;
}

/* Gives a group of findings that were not shrunk to a finding that may explain it: one that was shrunk, or another one. To the first such
 * one alone, so that it joins no two that were shrunk. */
static void join_unshrunk(struct reading *reading, int32_t which, bool to_shrunk) {
  struct sf_signatures *list = &reading->list;
  const struct sf_cause_evidence own = evidence_of(reading, which);
  for (int32_t i = 0; i < list->count; i++)
    if (reading->evidence[i].min && list->at[i].cause == list->at[which].cause) return;
  for (int32_t i = 0; i < list->count; i++) {
    const struct sf_cause_evidence other = evidence_of(reading, i);
    if (i == which || (other.min != NULL) != to_shrunk || !sf_finding_may_be_of(&own, &other)) continue;
    join(list, which, i);
    return;
  }
}

static void find_causes(struct reading *reading) {
  struct sf_signatures *list = &reading->list;
  for (int32_t i = 0; i < list->count; i++) reading->evidence[i].is_shadow = is_shadow(reading, i);
  for (int32_t i = 0; i < list->count; i++) {
    const struct sf_cause_evidence own = evidence_of(reading, i);
    list->at[i].cause = i;
    for (int32_t k = 0; k < i; k++) {
      const struct sf_cause_evidence other = evidence_of(reading, k);
      if (list->at[k].cause != list->at[i].cause && sf_findings_have_one_cause(&own, &other)) join(list, i, k);
    }
  }
  for (int turn = 0; turn < 2; turn++)
    for (int32_t i = 0; i < list->count; i++) join_unshrunk(reading, i, turn == 0);
  for (int32_t i = 0; i < list->count; i++) {
    list->cause_count += list->at[i].cause == i;
    list->new_cause_count += list->at[i].cause == i && sf_signatures_is_new(list, i);
  }
}

bool sf_signatures_is_new(const struct sf_signatures *signatures, int32_t cause) {
  bool is_new = false;
  for (int32_t i = cause; i < signatures->count; i++) is_new |= signatures->at[i].cause == cause && !signatures->at[i].known;
  return is_new;
}

/* --- reading --------------------------------------------------------------------------------------------------- */

enum sf_status sf_signatures_read(struct sf_signatures *out, const struct sf_campaign_options *options, struct sf_error *error) {
  const struct sf_store_options store_options = {.path = options->store_path, .mode = SF_STORE_READ};
  struct reading reading = {.out_dir = options->out_dir};
  struct sf_store *store = NULL;
  enum sf_status status = sf_store_open(&store, &store_options, error);
  if (status != SF_OK) return status;
  status = sf_store_each_finding(store, add, &reading, error);
  sf_store_close(store);
  if (status == SF_ENOMEM) sf_error_set(error, status, "%s: out of memory", options->store_path);
  if (status == SF_OK) {
    find_causes(&reading);
    *out = reading.list;
  } else {
    sf_signatures_destroy(&reading.list);
  }
  for (int32_t i = 0; i < reading.evidence_count; i++) {
    sf_free(reading.evidence[i].shown);
    sf_free(reading.evidence[i].min);
    sf_free(reading.evidence[i].found);
  }
  sf_free(reading.evidence);
  return status;
}

void sf_signatures_destroy(struct sf_signatures *signatures) {
  for (int32_t i = 0; i < signatures->count; i++)
    free(signatures->at[i].report), free(signatures->at[i].what), free(signatures->at[i].contrast);
  sf_free(signatures->at);
  memset(signatures, 0, sizeof *signatures);
}

/* --- what people read ------------------------------------------------------------------------------------------ */

/* The signature that stands for a cause: a new one before a known one, one that was shrunk before one that was not, an earlier one first.
 */
static int32_t face_of(const struct sf_signatures *signatures, int32_t cause) {
  int32_t face = cause, best = -1;
  for (int32_t i = cause; i < signatures->count; i++) {
    const struct sf_signature *s = &signatures->at[i];
    const int32_t worth = 2 * !s->known + s->shrunk;
    if (s->cause == cause && worth > best) best = worth, face = i;
  }
  return face;
}

static void append_signature(struct sf_text *out, const struct sf_signature *s, const char *indent) {
  const int width = 62 - (int)strlen(indent);
  sf_line_append(out, "%s%-*s %6" PRId64 " case%s, first %" PRId64 "%s  %s\n", indent, width, s->signature, s->count, sf_plural(s->count),
                 s->first_index, s->known ? " (known)" : "", s->directory);
}

/* Whether there is nothing to say of a signature that others of its cause do not say: an earlier one says the same, or it has no
 * diagnosis and another one has, or is the first. */
static bool is_said(const struct sf_signatures *signatures, int32_t which) {
  const struct sf_signature *s = &signatures->at[which];
  const bool says_nothing = s->diagnosis.cls == SF_DIAGNOSIS_UNKNOWN;
  for (int32_t i = s->cause; i < signatures->count; i++) {
    const struct sf_diagnosis *other = &signatures->at[i].diagnosis;
    if (i == which || signatures->at[i].cause != s->cause) continue;
    if (says_nothing && (i < which || other->cls != SF_DIAGNOSIS_UNKNOWN)) return true;
    if (i < which && sf_diagnosis_says_the_same(other, &s->diagnosis)) return true;
  }
  return false;
}

/* The further signatures of a cause: a fault that shows in every module would fill screens. */
static void append_further(struct sf_text *out, const struct sf_signatures *signatures, int32_t cause, int32_t face) {
  int32_t further = 0;
  for (int32_t i = cause; i < signatures->count; i++)
    if (i != face && signatures->at[i].cause == cause && ++further <= FURTHER_SHOWN) append_signature(out, &signatures->at[i], "    also ");
  if (further > FURTHER_SHOWN)
    sf_line_append(out, "    also %" PRId32 " more signature%s: --json and the campaign's page have them\n", further - FURTHER_SHOWN,
                   further == FURTHER_SHOWN + 1 ? "" : "s");
}

void sf_signatures_text(struct sf_text *out, const struct sf_signatures *signatures) {
  char line[SF_DIAGNOSIS_LINE_TEXT];
  for (int32_t cause = 0; cause < signatures->count; cause++) {
    if (signatures->at[cause].cause != cause) continue;
    const int32_t face = face_of(signatures, cause);
    append_signature(out, &signatures->at[face], "  ");
    append_further(out, signatures, cause, face);
    for (int32_t i = cause; i < signatures->count; i++) {
      if (signatures->at[i].cause != cause || is_said(signatures, i)) continue;
      sf_diagnosis_line(line, &signatures->at[i].diagnosis);
      if (*line) sf_line_append(out, "    diagnosis: %s\n", line);
      if (*signatures->at[i].diagnosis.operation) sf_line_append(out, "    operation: %s\n", signatures->at[i].diagnosis.operation);
    }
  }
}

/* One item for a cause: the signature that stands for it, and the names of the others. */
static void report_cause(struct sf_report *report, const struct sf_signatures *signatures, int32_t cause,
                         const struct sf_replay_way *replay) {
  const bool is_new = sf_signatures_is_new(signatures, cause);
  const int32_t shown = face_of(signatures, cause);
  const struct sf_signature *found = &signatures->at[shown];
  static const char *const states[2][2] = {{"known, not shrunk", "known"}, {"new, not shrunk", "new"}};
  struct sf_report_item *item = sf_report_add(report, "fuzz", states[is_new][found->shrunk], is_new ? SF_REPORT_FAILED : SF_REPORT_PASSED);
  sf_text_append(&item->name, "%s", found->signature);
  sf_text_append(&item->text, "%s", found->report);
  for (int32_t i = cause; i < signatures->count; i++) {
    const struct sf_signature *also = &signatures->at[i];
    if (i != shown && also->cause == cause)
      sf_line_append(&item->text, "one cause    %s%s\n", also->signature, also->known ? " (known)" : "");
  }
  sf_finding_message(&item->message, is_new ? found->signature : NULL, found->what, &found->diagnosis);
  item->has_command = true;
  sf_replay_append(&item->next, found->min_path, replay, 0);
  sf_report_case(item, found->min_path);
}

void sf_campaign_report(struct sf_report *report, const struct sf_campaign_result *result, const struct sf_signatures *signatures,
                        const char *nothing, const struct sf_replay_way *replay) {
  const struct sf_store_summary *s = &result->summary;
  report->title = "shardfuzz fuzz";
  report->passed = result->new_signatures == 0 && !*nothing;
  if (*result->seeds)
    sf_report_fact(report, "seeds", NULL, "%s", result->seeds);
  else
    sf_report_fact(report, "seed", NULL, "%" PRIu64, result->seed);
  sf_report_fact(report, "shardfuzz", NULL, "%s%s%s", sf_version, *sf_version_commit ? ", commit " : "", sf_version_commit);
  sf_report_fact(report, "cases", s->inconclusive_reason,
                 "%" PRId64 " in %.0f s: %" PRId64 " passed, %" PRId64 " with findings, %" PRId64 " inconclusive, %" PRId64 " skipped%s",
                 s->cases, result->seconds, s->by_verdict[SF_VERDICT_PASS], s->by_verdict[SF_VERDICT_FINDING],
                 s->by_verdict[SF_VERDICT_INCONCLUSIVE], s->by_verdict[SF_VERDICT_SKIP],
                 *s->inconclusive_reason ? "; last inconclusive: " : "");
  if (result->interrupted)
    sf_report_fact(report, "interrupted", NULL, "a signal ended the campaign early; %" PRId64 " findings are not confirmed",
                   result->waiting);
  for (int32_t i = 0; i < signatures->count; i++)
    if (signatures->at[i].cause == i) report_cause(report, signatures, i, replay);
  sf_report_campaign(report, result->seconds, nothing);
}
