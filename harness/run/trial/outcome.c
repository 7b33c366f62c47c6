#include "harness/run/trial/outcome.h"

#include "harness/base/names.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Without the mode. */
static size_t key_length(const char *key) {
  const size_t length = strlen(key), mark = strlen(SF_KEY_ISOLATED);
  return length > mark && strcmp(key + length - mark, SF_KEY_ISOLATED) == 0 ? length - mark : length;
}

bool sf_outcome_same_failure(const char *key, const char *other_key) {
  const size_t length = key_length(key);
  return length == key_length(other_key) && strncmp(key, other_key, length) == 0;
}

void sf_outcome_from_finding(struct sf_outcome *out, const struct sf_case *c, const struct sf_catalog *catalog, const struct sf_finding *finding) {
  const struct sf_module *module = finding->module >= 0 ? &catalog->modules[finding->module] : NULL;
  out->verdict = SF_VERDICT_FINDING;
  out->cls = finding->cls;
  out->kind = finding->id.kind;
  out->module_class = module ? (int32_t)module->cls : -1;
  snprintf(out->module, sizeof out->module, "%s", module ? module->name : "");
  sf_trace_id_text(out->first_id, sizeof out->first_id, catalog, finding->id);
  snprintf(out->shrink_key, sizeof out->shrink_key, "%s/%s/%s", sf_finding_class_name(finding->cls), sf_kind_name((enum sf_kind)finding->id.kind),
           module ? sf_module_class_name(module->cls) : "none");
  sf_signature_make(out->signature, out->shrink_key, c);
  out->rank = finding->rank;
  out->row = finding->row;
  out->error = finding->error;
  out->noise = finding->noise;
  out->ratio = finding->ratio;
  snprintf(out->text, sizeof out->text, "%s", finding->text);
}

/* What stands before the pass: a plugin's modules have dots in their names. */
static size_t module_length(const char *label) {
  const char *forward = strstr(label, ".fwd"), *backward = strstr(label, ".bwd");
  return forward ? (size_t)(forward - label) : backward ? (size_t)(backward - label) : strcspn(label, ".");
}

void sf_outcome_from_failure(struct sf_outcome *out, const struct sf_case *c, enum sf_finding_class cls, enum sf_manner manner, int32_t rank, const char *label,
                             const char *text) {
  out->verdict = SF_VERDICT_FINDING;
  out->cls = cls;
  out->manner = manner;
  out->kind = out->module_class = -1;
  out->rank = rank;
  out->row = -1;
  out->finding_count = 1;
  sf_name_fit(out->label, sizeof out->label, label, strlen(label));
  sf_name_fit(out->module, sizeof out->module, label, module_length(label));
  snprintf(out->shrink_key, sizeof out->shrink_key, "%s/comm%s%s/%s", sf_finding_class_name(cls), manner ? "-" : "", sf_manner_name(manner), *label ? out->label : "none");
  sf_signature_make(out->signature, out->shrink_key, c);
  snprintf(out->text, sizeof out->text, "%s", text);
}

bool sf_outcome_breaks_ranks(const struct sf_outcome *outcome) {
  if (outcome->status != SF_OK) return outcome->status != SF_EINPUT;
  return outcome->verdict == SF_VERDICT_FINDING && (outcome->cls == SF_CLASS_DEADLOCK || outcome->cls == SF_CLASS_MISMATCH || outcome->cls == SF_CLASS_CRASH);
}

bool sf_outcome_ran_to_its_end(const struct sf_outcome *outcome) {
  if (outcome->status != SF_OK) return false;
  return outcome->verdict == SF_VERDICT_PASS || (outcome->verdict == SF_VERDICT_FINDING && outcome->cls != SF_CLASS_CRASH && outcome->cls != SF_CLASS_HANG);
}

void sf_outcome_excuse_memory(struct sf_outcome *outcome) {
  if (outcome->status != SF_ENOMEM) return;
  outcome->status = SF_OK;
  outcome->verdict = SF_VERDICT_INCONCLUSIVE;
}

bool sf_outcome_as_expected(const struct sf_outcome *outcome, const struct sf_expect *expect) {
  if (!expect->present) return true;
  if (outcome->status != SF_OK || strcmp(sf_verdict_name(outcome->verdict), expect->verdict) != 0) return false;
  return outcome->verdict != SF_VERDICT_FINDING || !*expect->signature || sf_signature_covers(expect->signature, outcome->signature);
}

void sf_diagnosis_line(char out[SF_DIAGNOSIS_LINE_TEXT], const struct sf_diagnosis *diagnosis) {
  *out = '\0';
  if (*diagnosis->text) snprintf(out, SF_DIAGNOSIS_LINE_TEXT, "%s: %s", sf_diagnosis_class_name(diagnosis->cls), diagnosis->text);
}

/* Behind a number such as 12, 3.84e+06 or 1e-05; NULL where none begins. */
static const char *skip_number(const char *at) {
  if (!isdigit((unsigned char)*at)) return NULL;
  while (isdigit((unsigned char)*at) || (*at == '.' && isdigit((unsigned char)at[1]))) at++;
  if (*at == 'e' && (at[1] == '+' || at[1] == '-') && isdigit((unsigned char)at[2])) at += 2 + strspn(at + 2, "0123456789");
  return at;
}

bool sf_diagnosis_same_line(const char *line, const char *other) {
  while (*line && *other) {
    const char *behind = skip_number(line), *other_behind = skip_number(other);
    if (behind && other_behind) line = behind, other = other_behind;
    else if (*line++ != *other++) return false;
  }
  return *line == *other;
}

struct sf_error sf_outcome_error(const struct sf_outcome *outcome) {
  struct sf_error error;
  sf_error_set(&error, outcome->status, "%.470s", outcome->text);
  return error;
}
