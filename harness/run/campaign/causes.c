#include "harness/run/campaign/causes.h"

#include "harness/run/trial/outcome.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* --- what diagnoses say ---------------------------------------------------------------------------------------- */

/* The end of a number such as 12 or 3.84e+06, or of a list such as "3, 5-7 and 2 more"; `at` stands at its first digit. */
static const char *skip_numbers(const char *at) {
  for (;;) {
    while (isdigit((unsigned char)*at) || ((*at == '.' || *at == '-') && isdigit((unsigned char)at[1]))) at++;
    if (*at == 'e' && (at[1] == '+' || at[1] == '-') && isdigit((unsigned char)at[2]))
      at += 2;
    else if (strncmp(at, ", ", 2) == 0 && isdigit((unsigned char)at[2]))
      at += 2;
    else if (strncmp(at, " and ", 5) == 0 && isdigit((unsigned char)at[5]))
      at += 5;
    else
      break;
  }
  return strncmp(at, " more", 5) == 0 ? at + 5 : at;
}

/* The text up to the first colon or semicolon, with # in place of numbers. */
static void stem_of(char *out, size_t size, const char *text) {
  size_t length = 0;
  while (*text && *text != ':' && *text != ';' && length + 1 < size) {
    const bool number = isdigit((unsigned char)*text);
    out[length++] = number ? '#' : *text;
    text = number ? skip_numbers(text) : text + 1;
  }
  out[length] = '\0';
}

bool sf_diagnosis_says_the_same(const struct sf_diagnosis *a, const struct sf_diagnosis *b) {
  char stem[sizeof a->text], other[sizeof b->text];
  if (!*a->text || a->cls == SF_DIAGNOSIS_UNKNOWN || a->cls != b->cls) return false;
  stem_of(stem, sizeof stem, a->text);
  stem_of(other, sizeof other, b->text);
  return strcmp(stem, other) == 0;
}

/* --- what signatures name -------------------------------------------------------------------------------------- */

/* "CLASS/KIND/MODULE@AXES", with "flaky/" in front or not. */
struct names {
  char cls[SF_SIGNATURE_TEXT];
  const char *kind, *module, *axes; /* "" where there is none; they lie behind the class */
};

static void names_of(struct names *out, const char *signature) {
  static const char flaky[] = "flaky/";
  const bool is_flaky = strncmp(signature, flaky, sizeof flaky - 1) == 0;
  snprintf(out->cls, sizeof out->cls, "%s", signature + (is_flaky ? sizeof flaky - 1 : 0));
  out->kind = out->module = out->axes = "";
  char *axes = strrchr(out->cls, '@'), *kind = strchr(out->cls, '/'), *module = kind ? strchr(kind + 1, '/') : NULL;
  if (axes) *axes = '\0', out->axes = axes + 1;
  if (module) *module = '\0', out->module = module + 1;
  if (kind) *kind = '\0', out->kind = kind + 1;
}

/* The axes but for those whose ranks have other data, or may come from such: a fault of the ranks that share a gradient takes any. */
static void other_axes(char out[SF_SIGNATURE_TEXT], const char *axes) {
  static const char *const of_data[] = {"dp", "cp", "edp", "ep", "etp"};
  out[0] = '\0';
  for (size_t length; *axes; axes += length + (axes[length] == '+')) {
    bool is_data = false;
    length = strcspn(axes, "+");
    for (size_t i = 0; i < sizeof of_data / sizeof of_data[0]; i++)
      is_data |= strlen(of_data[i]) == length && strncmp(of_data[i], axes, length) == 0;
    const size_t at = strlen(out);
    if (!is_data) snprintf(out + at, SF_SIGNATURE_TEXT - at, "+%.*s", (int)length, axes);
  }
}

static bool axes_differ_in_data_alone(const char *axes, const char *other) {
  char rest[SF_SIGNATURE_TEXT], other_rest[SF_SIGNATURE_TEXT];
  other_axes(rest, axes);
  other_axes(other_rest, other);
  return strcmp(rest, other_rest) == 0;
}

/* Whether kind and module of b are among what is wrong in a's smallest case, in whatever class. */
static bool shows(const struct sf_cause_evidence *a, const struct names *b) {
  struct names line;
  for (const char *at = a->shown ? a->shown : ""; *at; at += strcspn(at, "\n"), at += *at == '\n') {
    char key[SF_SIGNATURE_TEXT];
    snprintf(key, sizeof key, "%.*s", (int)strcspn(at, "\n"), at);
    char *mode = strstr(key, SF_KEY_ISOLATED); /* of a framework's keys; signatures have it among their axes */
    if (mode) *mode = '\0';
    names_of(&line, key);
    if (*b->module && strcmp(line.kind, b->kind) == 0 && strcmp(line.module, b->module) == 0) return true;
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

static bool same_but_for_the_model(const struct sf_case *a, const struct sf_case *b, bool but_for_sp) {
  if (!a || !b || *a->fields || *b->fields) return false; /* fields of a framework: nobody says what they mean */
  for (int i = 0; i < sf_case_field_count; i++) {
    const struct sf_field *field = &sf_case_fields[i];
    if (field->type == SF_FIELD_TEXT || is_of_model(field) || (but_for_sp && strcmp(field->path, "layout.sp") == 0)) continue;
    if (sf_case_field_get(a, field) != sf_case_field_get(b, field)) return false;
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

/* Whether the diagnosis is a cause: not only a place, or a factor that depends on the data. */
static bool says_why(const struct sf_diagnosis *diagnosis) {
  const bool is_place = diagnosis->cls == SF_DIAGNOSIS_UNKNOWN || diagnosis->cls == SF_DIAGNOSIS_PART,
             is_number = strstr(diagnosis->text, "no ratio of the case") || strstr(diagnosis->text, "a factor of its own");
  return *diagnosis->text && !is_place && !is_number;
}

/* Whether two diagnoses of one tensor are of one sum. A sum over another group lacks some of its terms and has others too often: which of
 * them shows, and over which axes, depends on the case. A sum that is made too early lacks terms, or is nothing, or is of a rank's own
 * data. */
static bool of_one_sum(enum sf_diagnosis_class a, enum sf_diagnosis_class b, bool same_axes) {
  const unsigned both = 1u << a | 1u << b, group = 1u << SF_DIAGNOSIS_MISSING_REDUCTION | 1u << SF_DIAGNOSIS_EXTRA_REDUCTION,
                 sums = group | 1u << SF_DIAGNOSIS_UNSYNCHRONISED | 1u << SF_DIAGNOSIS_STALE;
  return a != b && (both == group || (same_axes && (both & ~sums) == 0));
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

bool sf_findings_have_one_cause(const struct sf_cause_evidence *a, const struct sf_cause_evidence *b) {
  struct names one, other;
  names_of(&one, a->signature);
  names_of(&other, b->signature);
  const bool same_kind = same_kind_of(one.kind, other.kind), same_axes = strcmp(one.axes, other.axes) == 0,
             same_module = *one.module && strcmp(one.module, other.module) == 0, a_shows_b = shows(a, &other), b_shows_a = shows(b, &one);
  const bool same_why = says_why(a->diagnosis) && sf_diagnosis_says_the_same(a->diagnosis, b->diagnosis),
             other_why = says_why(a->diagnosis) && says_why(b->diagnosis) && !same_why;
  if (same_why) return same_module || (same_kind && same_axes) || a_shows_b || b_shows_a;
  if (same_module && same_kind) { /* what is shown says nothing then: each smallest case shows its own tensor */
    const bool near = same_axes || (strcmp(one.kind, other.kind) == 0 && strcmp(one.cls, other.cls) == 0 &&
                                    axes_differ_in_data_alone(one.axes, other.axes));
    return *one.axes && ((near && !other_why) || of_one_sum(a->diagnosis->cls, b->diagnosis->cls, same_axes));
  }
  if (a_shows_b && b_shows_a && (same_module || same_kind)) return true;
  if (!a_shows_b && !b_shows_a) return false;
  if (same_module || same_kind) return same_but_for_the_model(a->min, b->min, false);
  return !other_why && same_but_for_the_model(a->min, b->min, true) && needs_a_feature(a->min);
}
