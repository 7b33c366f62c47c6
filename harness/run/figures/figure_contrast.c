/* Which fields of a smallest case matter, as a table. */
#include "harness/base/json.h"
#include "harness/base/sinks.h"
#include "harness/run/figures/figures.h"
#include "harness/run/process/contrast_text.h"

#include <jansson.h>
#include <string.h>

static const char *text_of(const json_t *field, const char *key) {
  const char *text = json_string_value(json_object_get(field, key));
  return text != NULL ? text : "";
}

/* On a narrow screen cells stand below each other, each with its column's name. */
static void append_values(struct sf_text *out, const char *column, const json_t *values) {
  sf_text_append(out, "</td><td data-column=\"%s\">%s", column, json_array_size(values) == 0 ? "none" : "");
  for (size_t i = 0; i < json_array_size(values); i++) {
    const char *value = json_string_value(json_array_get(values, i));
    sf_html_append(out, "%s%s", i > 0 ? ", " : "", value != NULL ? value : "");
  }
}

static void append_row(struct sf_text *out, const json_t *field) {
  sf_text_append(out, "<tr><td>");
  sf_html_append(out, "%s%s", text_of(field, "field"), text_of(field, "condition"));
  sf_text_append(out, "</td><td>");
  sf_html_append(out, "%s", text_of(field, "state"));
  append_values(out, "failed with", json_object_get(field, "failed"));
  append_values(out, "passed with", json_object_get(field, "passed"));
  sf_text_append(out, "</td></tr>\n");
}

/* Whether the smallest case fails because of it, or because of one that binds it. */
static bool does_matter(const char *state) {
  static const char *const words[] = {SF_CONTRAST_WORD_MATTERS, SF_CONTRAST_WORD_SMALLEST, SF_CONTRAST_WORD_TIED};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
    if (strcmp(state, words[i]) == 0) return true;
  return false;
}

/* Rows of the fields that matter, or of the others; returns how many. */
static int32_t append_rows(struct sf_text *out, const json_t *fields, bool matters) {
  int32_t count = 0;
  sf_text_append(out, "<table class=\"stack\">\n<tr><th>field</th><th>state</th><th>failed with</th><th>passed with</th></tr>\n");
  for (size_t i = 0; i < json_array_size(fields); i++) {
    const json_t *field = json_array_get(fields, i);
    if (does_matter(text_of(field, "state")) != matters) continue;
    append_row(out, field);
    count++;
  }
  sf_text_append(out, "</table>\n");
  return count;
}

void sf_figure_contrast(struct sf_text *out, const char *contrast) {
  json_t *object = contrast != NULL && *contrast ? sf_json_of(contrast) : NULL;
  const json_t *fields = json_object_get(object, "fields");
  struct sf_text others = {0};
  if (json_array_size(fields) > 0) {
    const int32_t count = append_rows(&others, fields, false);
    sf_figure_begin(
        out, "Why it fails",
        "The smallest case was run with other values of its fields. These decide whether it fails; a tied one follows from another. "
        "Without one that matters in the smallest case alone, the case that was found fails too.");
    append_rows(out, fields, true);
    sf_figure_end(out);
    sf_text_append(out, "<details class=\"more\">\n<summary>Other fields (%d)</summary>\n<div class=\"scroll\">\n%s</div>\n</details>\n",
                   count, others.data != NULL ? others.data : "");
  }
  sf_text_destroy(&others);
  json_decref(object);
}
