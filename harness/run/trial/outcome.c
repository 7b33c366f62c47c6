#include "harness/run/trial/outcome.h"

#include "harness/base/names.h"
#include "harness/base/sinks.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The key's length without the mode. */
static size_t key_length(const char *key) {
  const size_t length = strlen(key), mark = strlen(SF_KEY_ISOLATED);
  return length > mark && strcmp(key + length - mark, SF_KEY_ISOLATED) == 0 ? length - mark : length;
}

bool sf_outcome_same_failure(const char *key, const char *other_key) {
  const size_t length = key_length(key);
  return length == key_length(other_key) && strncmp(key, other_key, length) == 0;
}

/* Whether this tensor makes no other one wrong: isolated mode has replaced it by a given one on every rank, or what was made of it is
 * compared with what the reference makes of it. */
static bool is_contained(const struct sf_case *c, const struct sf_catalog *catalog, const struct sf_finding *finding) {
  if (c->mode != SF_MODE_ISOLATED) return finding->anchored;
  const bool misplaced = finding->cls == SF_CLASS_GAP || finding->cls == SF_CLASS_OVERLAP || finding->cls == SF_CLASS_MAP;
  return !misplaced && sf_trace_is_given(catalog, finding->id);
}

/* The fields that a culprit and an outcome share; texts of findings fit both. */
#define SHARED_FIELDS(X)                                                                                                                   \
  X(cls)                                                                                                                                   \
  X(shrink_key) X(signature) X(first_id) X(module) X(kind) X(module_class) X(finding) X(rank) X(row) X(error) X(noise) X(ratio) X(diagnosis)

bool sf_outcome_shown_has(const char *shown, const char *shrink_key) {
  for (const char *line = shown; *line;) {
    const size_t length = strcspn(line, "\n");
    char key[SF_SHRINK_KEY_TEXT];
    snprintf(key, sizeof key, "%.*s", (int)length, line);
    if (sf_outcome_same_failure(key, shrink_key)) return true;
    line += length + (line[length] == '\n');
  }
  return false;
}

static void note_shown(struct sf_outcome *out, const char *shrink_key) {
  const size_t length = strlen(out->shown), more = strlen(shrink_key) + 1;
  if (length + more >= sizeof out->shown || sf_outcome_shown_has(out->shown, shrink_key)) return;
  snprintf(out->shown + length, sizeof out->shown - length, "%s\n", shrink_key);
}

void sf_outcome_tell_of(struct sf_outcome *out, const struct sf_culprit *culprit) {
  note_shown(out, culprit->shrink_key);
#define X(field) memcpy(&out->field, &culprit->field, sizeof out->field);
  SHARED_FIELDS(X)
#undef X
  snprintf(out->text, sizeof out->text, "%s", culprit->text);
}

struct sf_culprit sf_outcome_told_of(const struct sf_outcome *outcome) {
  struct sf_culprit culprit;
#define X(field)                                                                                                                           \
  static_assert(sizeof culprit.field == sizeof outcome->field, #field " is copied");                                                       \
  memcpy(&culprit.field, &outcome->field, sizeof culprit.field);
  SHARED_FIELDS(X)
#undef X
  snprintf(culprit.text, sizeof culprit.text, "%s", outcome->text);
  return culprit;
}

static struct sf_culprit culprit_of(const struct sf_case *c, const struct sf_catalog *catalog, const struct sf_judgement *judgement,
                                    int32_t place) {
  const struct sf_finding *finding = &judgement->findings[place];
  const struct sf_module *module = finding->module >= 0 ? &catalog->modules[finding->module] : NULL;
  struct sf_culprit out = {.cls = finding->cls,
                           .kind = finding->id.kind,
                           .module_class = module ? (int32_t)module->cls : -1,
                           .finding = place,
                           .rank = finding->rank,
                           .row = finding->row,
                           .error = finding->error,
                           .noise = finding->noise,
                           .ratio = finding->ratio};
  snprintf(out.module, sizeof out.module, "%s", module ? module->name : "");
  sf_trace_id_text(out.first_id, sizeof out.first_id, catalog, finding->id);
  snprintf(out.shrink_key, sizeof out.shrink_key, "%s/%s/%s", sf_finding_class_name(finding->cls),
           sf_kind_name((enum sf_kind)finding->id.kind), module ? sf_modules[module->cls].name : "none");
  sf_signature_make(out.signature, out.shrink_key, c);
  snprintf(out.text, sizeof out.text, "%s", finding->text);
  return out;
}

/* Whether an earlier finding has the same tensor: replicas that differ are often wrong too. */
static bool is_of_earlier_tensor(const struct sf_judgement *judgement, int32_t place) {
  const uint64_t key = sf_trace_key(judgement->findings[place].id);
  for (int32_t i = 0; i < place; i++)
    if (sf_trace_key(judgement->findings[i].id) == key) return true;
  return false;
}

void sf_outcome_from_judgement(struct sf_outcome *out, const struct sf_case *c, const struct sf_catalog *catalog,
                               const struct sf_judgement *judgement) {
  const struct sf_culprit first = culprit_of(c, catalog, judgement, 0);
  out->verdict = SF_VERDICT_FINDING;
  out->finding_count = judgement->finding_count;
  sf_outcome_tell_of(out, &first);
  sf_pattern_of(out->pattern, c, catalog, judgement);
  bool is_contained_so_far = true;
  for (int32_t i = 1; i < judgement->finding_count; i++) {
    const struct sf_culprit next = culprit_of(c, catalog, judgement, i);
    is_contained_so_far &= is_contained(c, catalog, &judgement->findings[i - 1]);
    if (is_contained_so_far && !is_of_earlier_tensor(judgement, i)) sf_outcome_add_culprit(out, &next);
    note_shown(out, next.shrink_key);
  }
}

void sf_outcome_add_culprit(struct sf_outcome *out, const struct sf_culprit *culprit) {
  note_shown(out, culprit->shrink_key);
  bool is_new = out->further_count < SF_FURTHER_MAX && strcmp(out->shrink_key, culprit->shrink_key) != 0;
  for (int32_t i = 0; i < out->further_count; i++) is_new &= strcmp(out->further[i].shrink_key, culprit->shrink_key) != 0;
  if (is_new) out->further[out->further_count++] = *culprit;
}

static void turn_to(struct sf_outcome *outcome, int32_t which) {
  const struct sf_culprit other = sf_outcome_told_of(outcome);
  sf_outcome_tell_of(outcome, &outcome->further[which]);
  outcome->further[which] = other;
}

bool sf_outcome_turn_to(struct sf_outcome *outcome, const char *shrink_key) {
  if (outcome->status != SF_OK || outcome->verdict != SF_VERDICT_FINDING) return false;
  if (sf_outcome_same_failure(outcome->shrink_key, shrink_key)) return true;
  for (int32_t i = 0; i < outcome->further_count; i++) {
    if (!sf_outcome_same_failure(outcome->further[i].shrink_key, shrink_key)) continue;
    turn_to(outcome, i);
    return true;
  }
  return false;
}

struct sf_outcome sf_outcome_of_culprit(const struct sf_outcome *outcome, int32_t which) {
  struct sf_outcome about = *outcome;
  if (which > 0) sf_outcome_turn_to(&about, outcome->further[which - 1].shrink_key);
  return about;
}

void sf_outcome_turn_to_expected(struct sf_outcome *outcome, const struct sf_expect *expect) {
  char key[SF_SIGNATURE_TEXT];
  const char *axes = strrchr(expect->signature, '@');
  if (!expect->present || !axes) return;
  snprintf(key, sizeof key, "%.*s", (int)(axes - expect->signature), expect->signature);
  sf_outcome_turn_to(outcome, key);
}

/* The length of the module's name, which ends before the pass: names of a plugin's modules have dots. */
static size_t module_length(const char *label) {
  const char *forward = strstr(label, ".fwd"), *backward = strstr(label, ".bwd");
  return forward ? (size_t)(forward - label) : backward ? (size_t)(backward - label) : strcspn(label, ".");
}

void sf_outcome_from_failure(struct sf_outcome *out, const struct sf_case *c, enum sf_finding_class cls, enum sf_manner manner,
                             int32_t rank, const char *label, const char *text) {
  out->verdict = SF_VERDICT_FINDING;
  out->cls = cls;
  out->manner = manner;
  out->kind = out->module_class = -1;
  out->rank = rank;
  out->row = -1;
  out->finding_count = 1;
  sf_name_fit(out->label, sizeof out->label, label, strlen(label));
  sf_name_fit(out->module, sizeof out->module, label, module_length(label));
  snprintf(out->shrink_key, sizeof out->shrink_key, "%s/comm%s%s/%s", sf_finding_class_name(cls), manner ? "-" : "", sf_manner_name(manner),
           *label ? out->label : "none");
  note_shown(out, out->shrink_key);
  sf_signature_make(out->signature, out->shrink_key, c);
  snprintf(out->text, sizeof out->text, "%s", text);
}

bool sf_outcome_breaks_ranks(const struct sf_outcome *outcome) {
  if (outcome->status != SF_OK) return outcome->status != SF_EINPUT;
  return outcome->verdict == SF_VERDICT_FINDING &&
         (outcome->cls == SF_CLASS_DEADLOCK || outcome->cls == SF_CLASS_MISMATCH || outcome->cls == SF_CLASS_CRASH);
}

bool sf_outcome_ran_to_its_end(const struct sf_outcome *outcome) {
  if (outcome->status != SF_OK) return false;
  return outcome->verdict == SF_VERDICT_PASS ||
         (outcome->verdict == SF_VERDICT_FINDING && !sf_class_cuts_off(outcome->cls) && outcome->cls != SF_CLASS_HANG);
}

void sf_outcome_excuse_memory(struct sf_outcome *outcome) {
  if (outcome->status != SF_ENOMEM) return;
  outcome->status = SF_OK;
  outcome->verdict = SF_VERDICT_INCONCLUSIVE;
  outcome->lacked = true;
}

bool sf_outcome_as_expected(const struct sf_outcome *outcome, const struct sf_expect *expect) {
  if (!expect->present) return true;
  if (outcome->status != SF_OK || strcmp(sf_verdict_name(outcome->verdict), expect->verdict) != 0) return false;
  bool as_expected =
      outcome->verdict != SF_VERDICT_FINDING || !*expect->signature || sf_signature_covers(expect->signature, outcome->signature);
  for (int32_t i = 0; i < outcome->further_count; i++) as_expected |= sf_signature_covers(expect->signature, outcome->further[i].signature);
  return as_expected;
}

void sf_diagnosis_line(char out[SF_DIAGNOSIS_LINE_TEXT], const struct sf_diagnosis *diagnosis) {
  *out = '\0';
  if (*diagnosis->text) snprintf(out, SF_DIAGNOSIS_LINE_TEXT, "%s: %s", sf_diagnosis_class_name(diagnosis->cls), diagnosis->text);
}

static void append_share(struct sf_text *out, const struct sf_wrong_share *share, const char *name) {
  if (share->all > 1) sf_line_append(out, ", %" PRId64 " of %" PRId64 " %s", share->wrong, share->all, name);
}

/* Rows of activations are tokens, of weights output features. */
void sf_numbers_append(struct sf_text *out, const struct sf_numbers *n, int32_t kind) {
  const bool of_tokens = kind == SF_KIND_ACT || kind == SF_KIND_ACT_GRAD;
  if (n->elements.all == 0) return;
  sf_line_append(out, "worst        [%" PRId64 ", %" PRId64 "] of [%" PRId64 ", %" PRId64 "]", n->worst.row, n->worst.col, n->rows.all,
                 n->cols.all);
  if (n->worst_rank >= 0)
    sf_line_append(out, ", rank %d's [%" PRId64 ", %" PRId64 "]", n->worst_rank, n->worst_local.row, n->worst_local.col);
  sf_line_append(out, ": got %.7g, want %.7g within %.2g\n", n->got, n->wanted, n->allowed);
  sf_line_append(out, "wrong        %" PRId64 " of %" PRId64 " elements", n->elements.wrong, n->elements.all);
  append_share(out, &n->rows, of_tokens ? "tokens" : "rows");
  append_share(out, &n->cols, "columns");
  append_share(out, &n->parts, n->part_name);
  sf_line_append(out, "; mean %.4g, want %.4g\n", n->mean_got, n->mean);
}

struct sf_error sf_outcome_error(const struct sf_outcome *outcome) {
  struct sf_error error;
  sf_error_set(&error, outcome->status, "%.470s", outcome->text);
  return error;
}
