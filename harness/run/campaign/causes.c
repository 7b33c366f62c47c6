#include "harness/run/campaign/causes.h"

#include "harness/run/framework/framework_case.h"
#include "harness/run/process/subject.h"
#include "harness/run/trial/outcome.h"

#include <stdio.h>
#include <string.h>

/* Isolated mode tells a module's output from its inputs, which end-to-end mode does not. */
static bool same_module_of(const char *module, const char *other) {
  static const char output[] = ".output";
  size_t length = strlen(module), others = strlen(other);
  if (length >= strlen(output) && strcmp(module + length - strlen(output), output) == 0) length -= strlen(output);
  if (others >= strlen(output) && strcmp(other + others - strlen(output), output) == 0) others -= strlen(output);
  return length > 0 && length == others && memcmp(module, other, length) == 0;
}

/* Whether kind and module of b are among what is wrong in a's smallest case, in whatever class. */
static bool shows(const struct sf_cause_evidence *a, const struct sf_signature_parts *b) {
  struct sf_signature_parts line;
  for (const char *at = a->shown ? a->shown : ""; *at; at += strcspn(at, "\n"), at += *at == '\n') {
    char key[SF_SIGNATURE_TEXT];
    snprintf(key, sizeof key, "%.*s", (int)strcspn(at, "\n"), at);
    char *mode = strstr(key, SF_KEY_ISOLATED); /* of a framework's keys; signatures have it among their axes */
    if (mode) *mode = '\0';
    sf_signature_split(&line, key);
    if (strcmp(line.kind, b->kind) == 0 && same_module_of(line.module, b->module)) return true;
  }
  return false;
}

/* --- what smallest cases need ---------------------------------------------------------------------------------- */

static bool is_of_model(const struct sf_field *field) {
  static const char *const parts[] = {"layout.", "reload.", "train.", "precision."};
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
    if (strncmp(field->path, parts[i], strlen(parts[i])) == 0) return false;
  return true;
}

/* Of shares such as dropout's it matters whether there is one: data that stay exact take other ones. */
static bool is_share(const struct sf_field *field) {
  const char *unit = strrchr(field->path, '_');
  return unit != NULL && (strcmp(unit, "_milli") == 0 || strcmp(unit, "_micro") == 0);
}

static bool has_the_same(const struct sf_case *a, const struct sf_case *b, const struct sf_field *field) {
  const int64_t of_a = sf_case_field_get(a, field), of_b = sf_case_field_get(b, field);
  return of_a == of_b || (is_share(field) && of_a != field->smallest && of_b != field->smallest);
}

static bool same_but_for_the_model(const struct sf_case *a, const struct sf_case *b, bool but_for_sp) {
  if (!a || !b || *a->fields || *b->fields) return false; /* fields of a framework: nobody says what they mean */
  for (int i = 0; i < sf_case_field_count; i++) {
    const struct sf_field *field = &sf_case_fields[i];
    if (field->type == SF_FIELD_TEXT || is_of_model(field) || (but_for_sp && strcmp(field->path, "layout.sp") == 0)) continue;
    if (!has_the_same(a, b, field)) return false;
  }
  return true;
}

/* A fault in a parameter's gradient is in the sum over ranks and microbatches, too. */
static bool same_kind_of(const char *kind, const char *other) {
  const char *wgrad = sf_kind_name(SF_KIND_WGRAD), *main_grad = sf_kind_name(SF_KIND_MAIN_GRAD);
  const bool both =
      (strcmp(kind, wgrad) == 0 && strcmp(other, main_grad) == 0) || (strcmp(kind, main_grad) == 0 && strcmp(other, wgrad) == 0);
  return both || strcmp(kind, other) == 0;
}

/* Cases of exact mode have numbers of few values, which other mistakes explain as well: a missing sum of equal parts is a factor. */
static bool is_exact(const struct sf_signature_parts *parts) { return strcmp(parts->cls, sf_finding_class_name(SF_CLASS_EXACT)) == 0; }

/* NaN of one tensor makes norms and losses NaN, and memory that was never written shows in whatever reads it. */
static bool are_not_finite(const struct sf_signature_parts *a, const struct sf_signature_parts *b) {
  const char *cls = sf_finding_class_name(SF_CLASS_NONFINITE);
  return strcmp(a->cls, cls) == 0 && strcmp(b->cls, cls) == 0;
}

/* Whether two diagnoses of one tensor are of one sum. One that is missing over several axes shows over each alone. A sum over another group
 * lacks some of its terms and has others too often: which of them shows, and over which axes, depends on the case. A sum that is made too
 * early lacks terms, or is nothing, or is of a rank's own data. */
static bool of_one_sum(enum sf_diagnosis_class a, enum sf_diagnosis_class b, bool same_axes) {
  const unsigned both = 1u << a | 1u << b, group = 1u << SF_DIAGNOSIS_MISSING_REDUCTION | 1u << SF_DIAGNOSIS_EXTRA_REDUCTION,
                 sums = group | 1u << SF_DIAGNOSIS_UNSYNCHRONISED | 1u << SF_DIAGNOSIS_STALE;
  if (a == b) return a == SF_DIAGNOSIS_MISSING_REDUCTION;
  return both == group || (same_axes && (both & ~sums) == 0);
}

static bool name_two_causes(const struct sf_diagnosis *a, const struct sf_diagnosis *b) {
  return sf_diagnosis_says_why(a) && sf_diagnosis_says_why(b) && !sf_diagnosis_says_the_same(a, b);
}

/* Whether both say that one term of the value is scaled: their causes, "what is wrong: term: factor", agree up to the factor, which depends
 * on the case's axes. */
static bool of_one_term(const struct sf_diagnosis *a, const struct sf_diagnosis *b) {
  const char *term = strchr(a->cause, ':'), *factor = term ? strchr(term + 1, ':') : NULL;
  const size_t length = factor ? (size_t)(factor + 1 - a->cause) : 0;
  return a->cls == SF_DIAGNOSIS_SCALE && b->cls == SF_DIAGNOSIS_SCALE && length > 0 && strncmp(a->cause, b->cause, length) == 0;
}

/* Whether the smallest case needs more than sizes and ranks: dropout, say, a precision, or a distributed optimizer. */
static bool needs_a_feature(const struct sf_case *c) {
  static const char *const sizes[] = {
      "layout.tp",    "layout.cp",      "layout.dp",          "layout.pp",   "layout.vpp",           "layout.ep", "layout.etp", "layout.sp",
      "layout.order", "layout.cp_comm", "train.microbatches", "train.steps", "train.microbatch_size"};
  bool needs = false;
  for (int i = 0; i < sf_case_field_count; i++) {
    const struct sf_field *field = &sf_case_fields[i];
    if (field->type == SF_FIELD_TEXT || is_of_model(field)) continue;
    bool is_size = false;
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) is_size |= strcmp(field->path, sizes[k]) == 0;
    needs |= !is_size && sf_case_field_get(c, field) != field->smallest;
  }
  return needs;
}

/* Whether b's smallest case has all that a's needs beyond sizes of the model, and more. */
static bool needs_less(const struct sf_case *a, const struct sf_case *b) {
  bool less = false;
  if (!a || !b || *a->fields || *b->fields) return false;
  for (int i = 0; i < sf_case_field_count; i++) {
    const struct sf_field *field = &sf_case_fields[i];
    if (field->type == SF_FIELD_TEXT || is_of_model(field)) continue;
    const int64_t of_a = sf_case_field_get(a, field), of_b = sf_case_field_get(b, field);
    if (of_a != of_b && of_a != field->smallest) return false;
    less |= of_a != of_b;
  }
  return less;
}

bool sf_finding_is_shadow_of(const struct sf_cause_evidence *finding, const struct sf_cause_evidence *other) {
  struct sf_signature_parts own, its;
  sf_signature_split(&own, finding->signature);
  sf_signature_split(&its, other->signature);
  return *own.module && strcmp(own.module, its.module) == 0 && strcmp(own.kind, its.kind) == 0 && needs_less(other->min, finding->min);
}

bool sf_findings_have_one_cause(const struct sf_cause_evidence *a, const struct sf_cause_evidence *b) {
  struct sf_signature_parts one, other;
  sf_signature_split(&one, a->signature);
  sf_signature_split(&other, b->signature);
  const bool same_kind = same_kind_of(one.kind, other.kind), same_axes = one.has_axes == other.has_axes && one.axes == other.axes,
             same_cut = one.has_axes == other.has_axes && one.model_axes == other.model_axes,
             same_module = same_module_of(one.module, other.module), a_shows_b = shows(a, &other), b_shows_a = shows(b, &one);
  const bool same_why = sf_diagnosis_says_why(a->diagnosis) && sf_diagnosis_says_the_same(a->diagnosis, b->diagnosis),
             other_why = name_two_causes(a->diagnosis, b->diagnosis);
  /* The order of a fused projection's parts is that of its weight, and shows in all that is made with it. */
  const bool of_one_kind = same_kind || a->diagnosis->cls == SF_DIAGNOSIS_FUSED_ORDER;
  if (same_why) return same_module || (of_one_kind && same_cut) || a_shows_b || b_shows_a;
  if ((a_shows_b || b_shows_a) && a->min && b->min && sf_framework_cases_ask_the_same(a->min, b->min)) return true;
  if (same_module && same_kind) { /* what is shown says nothing then: each smallest case shows its own tensor */
    const bool near =
        same_axes || (strcmp(one.kind, other.kind) == 0 && strcmp(one.cls, other.cls) == 0 && one.other_axes == other.other_axes);
    return one.has_axes && ((near && (!other_why || is_exact(&one) != is_exact(&other))) ||
                            of_one_sum(a->diagnosis->cls, b->diagnosis->cls, same_axes) || of_one_term(a->diagnosis, b->diagnosis));
  }
  if ((a_shows_b || b_shows_a) && are_not_finite(&one, &other)) return true;
  if (same_kind && same_axes && !other_why && strcmp(one.cls, other.cls) == 0 && strcmp(one.kind, sf_kind_name(SF_KIND_PARAM)) == 0)
    return true;
  if (a_shows_b && b_shows_a && (same_module || same_kind)) return true;
  if (!a_shows_b && !b_shows_a) return false;
  if (same_module || same_kind) return same_but_for_the_model(a->min, b->min, false);
  return !other_why && !a->is_shadow && !b->is_shadow && same_but_for_the_model(a->min, b->min, true) && needs_a_feature(a->min);
}

bool sf_finding_may_be_of(const struct sf_cause_evidence *finding, const struct sf_cause_evidence *other) {
  struct sf_signature_parts own, its;
  sf_signature_split(&own, finding->signature);
  sf_signature_split(&its, other->signature);
  const bool same_failure = same_module_of(own.module, its.module) && strcmp(own.kind, its.kind) == 0 && strcmp(own.cls, its.cls) == 0;
  if (finding->min || !finding->found || !same_failure || name_two_causes(finding->diagnosis, other->diagnosis)) return false;
  if (!other->min) return (strstr(finding->signature, SF_KEY_ISOLATED) != NULL) == (strstr(other->signature, SF_KEY_ISOLATED) != NULL);
  const struct sf_subject *subject = sf_subject_of(finding->found);
  return subject->contains && subject == sf_subject_of(other->min) && subject->contains(finding->found, other->min);
}
