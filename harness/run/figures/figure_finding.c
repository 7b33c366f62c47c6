/* The page's part about one finding, in the order in which one reads it: cause, the worst element, the values, the network, the ranks, the
 * way of the shrinker. */
#include "harness/base/alloc.h"
#include "harness/base/sinks.h"
#include "harness/run/figures/figures.h"
#include "harness/run/framework/framework_judge.h"
#include "harness/run/plot/chart.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *class_meaning(enum sf_finding_class cls) {
  static const char *const meanings[SF_CLASS_COUNT] = {
#define X(name, text, meaning) meaning,
      SF_CLASS_MAP(X)
#undef X
  };
  return meanings[cls];
}

static const char *kind_meaning(int32_t kind) {
  static const char *const meanings[SF_KIND_COUNT] = {
#define X(name, text, meaning) meaning,
      SF_KIND_MAP(X)
#undef X
  };
  return kind >= 0 && kind < SF_KIND_COUNT ? meanings[kind] : "";
}

static void append_cause(struct sf_text *out, const struct sf_finding_view *view) {
  const struct sf_diagnosis *diagnosis = &view->culprit->diagnosis;
  char why[SF_CONTRAST_LINE_TEXT];
  sf_text_append(out, "<div class=\"cause\">\n<p class=\"note\">Cause</p>\n<p class=\"lead\">");
  sf_html_append(out, "%s", *diagnosis->text ? diagnosis->text : "No simple cause was looked for or found.");
  sf_text_append(out, "</p>\n");
  if (*diagnosis->operation) {
    sf_text_append(out, "<p>Operation: ");
    sf_html_append(out, "%s", diagnosis->operation);
    sf_text_append(out, "</p>\n");
  }
  if (view->pattern && *view->pattern) {
    sf_text_append(out, "<p>Pattern: ");
    sf_html_append(out, "%s", view->pattern);
    sf_text_append(out, "</p>\n");
  }
  sf_contrast_line(why, view->shrunk.contrast);
  if (*why) {
    sf_text_append(out, "<p>Contrast: ");
    sf_html_append(out, "%s", why);
    sf_text_append(out, "</p>\n");
  }
  sf_text_append(out, "</div>\n");
}

static void append_wrong(struct sf_text *out, const struct sf_culprit *culprit) {
  sf_figure_fact(out, "class", "%s: %s", sf_finding_class_name(culprit->cls), class_meaning(culprit->cls));
  if (*culprit->first_id) sf_figure_fact(out, "tensor", "%s", culprit->first_id);
  if (culprit->kind >= 0) sf_figure_fact(out, "kind", "%s", kind_meaning(culprit->kind));
  if (*culprit->module) sf_figure_fact(out, "module", "%s", culprit->module);
  if (culprit->ratio > 0 && isfinite(culprit->ratio))
    sf_figure_fact(out, "error", "%.3g, %.3g times what rounding explains", culprit->error, culprit->ratio);
}

static void append_share(struct sf_text *out, const struct sf_wrong_share *share, const char *name) {
  if (share->all > 1) sf_text_append(out, ", %" PRId64 " of %" PRId64 " %s", share->wrong, share->all, name);
}

/* The element that is off by most, by the numbers of the diagnosis. */
static void append_numbers(struct sf_text *out, const struct sf_numbers *n, int32_t kind) {
  struct sf_text wrong = {0};
  if (n->elements.all == 0) return;
  sf_figure_fact(out, "worst element", "[%" PRId64 ", %" PRId64 "] of [%" PRId64 ", %" PRId64 "]", n->worst.row, n->worst.col, n->rows.all,
                 n->cols.all);
  if (n->worst_rank >= 0)
    sf_figure_fact(out, "on rank", "%d, there [%" PRId64 ", %" PRId64 "]", n->worst_rank, n->worst_local.row, n->worst_local.col);
  sf_figure_fact(out, "expected", "%.7g", n->wanted);
  sf_figure_fact(out, "got", "%.7g", n->got);
  sf_figure_fact(out, "allowed", "an error of %.2g", n->allowed);
  sf_text_append(&wrong, "%" PRId64 " of %" PRId64 " elements", n->elements.wrong, n->elements.all);
  append_share(&wrong, &n->rows, kind == SF_KIND_ACT || kind == SF_KIND_ACT_GRAD ? "tokens" : "rows");
  append_share(&wrong, &n->cols, "columns");
  append_share(&wrong, &n->parts, n->part_name);
  sf_figure_fact(out, "wrong", "%s", wrong.data ? wrong.data : "");
  sf_text_destroy(&wrong);
}

static void append_further(struct sf_text *out, const struct sf_finding_view *view) {
  for (int32_t i = 0; i < view->further_count; i++)
    sf_figure_fact(out, "also wrong", "%s: %s", view->further[i].first_id, view->further[i].text);
}

void sf_figures_of_finding(struct sf_text *out, const struct sf_finding_view *view) {
  const struct sf_culprit *culprit = view->culprit;
  const struct sf_picture *picture = sf_evidence_find_picture(view->evidence, culprit->first_id);
  const size_t what = strcspn(culprit->text, "\n");
  const int32_t worst = culprit->diagnosis.numbers.elements.all > 0 ? culprit->diagnosis.numbers.worst_rank : culprit->rank;
  sf_text_append(out, "<p class=\"lead\">");
  sf_html_append(out, "%.*s", (int)what, culprit->text);
  sf_text_append(out, "</p>\n");
  append_cause(out, view);
  sf_text_append(out, "<h3>What is wrong</h3>\n<dl>\n");
  append_wrong(out, culprit);
  if (view->label && *view->label) sf_figure_fact(out, "call", "%s", view->label);
  append_numbers(out, &culprit->diagnosis.numbers, culprit->kind);
  append_further(out, view);
  sf_text_append(out, "</dl>\n");
  if (picture) sf_figure_values(out, picture);
  sf_figure_network(out, view);
  sf_figure_ranks(out, view->evidence, culprit->signature, picture, worst);
  sf_figure_contrast(out, view->shrunk.contrast);
  sf_figure_steps(out, view->shrunk.steps);
}

enum sf_status sf_figures_of_check(struct sf_text *out, const struct sf_check_report *report, const struct sf_trace_set *candidate) {
  struct sf_evidence evidence = {0};
  struct sf_culprit *culprits = sf_alloc((size_t)(report->culprit_count + 1) * sizeof *culprits);
  enum sf_status status = culprits ? sf_evidence_of_check(&evidence, report, candidate) : SF_ENOMEM;
  for (int32_t i = 0; i < report->culprit_count && status == SF_OK; i++) status = sf_framework_culprit(&culprits[i], report, i);
  const struct sf_finding_view view = {.culprit = culprits,
                                       .further = culprits ? culprits + 1 : NULL,
                                       .further_count = report->culprit_count > 0 ? report->culprit_count - 1 : 0,
                                       .evidence = &evidence};
  if (status == SF_OK && report->culprit_count > 0)
    sf_figures_of_finding(out, &view);
  else if (status == SF_OK)
    sf_figure_network(out, &view);
  if (status == SF_OK) sf_figures_of_steps(out, &evidence);
  sf_evidence_destroy(&evidence);
  sf_free(culprits);
  return status;
}

void sf_figures_of_outcome(struct sf_text *out, const struct sf_case *c, const struct sf_outcome *outcome,
                           const struct sf_evidence *evidence, struct sf_shrunk_texts shrunk) {
  const struct sf_culprit culprit = sf_outcome_told_of(outcome);
  struct sf_evidence layout = {0};
  const struct sf_finding_view view = {.culprit = &culprit,
                                       .further = outcome->further,
                                       .further_count = outcome->further_count,
                                       .pattern = outcome->pattern,
                                       .label = outcome->label,
                                       .c = c,
                                       .evidence = evidence->ranks > 0 ? evidence : &layout,
                                       .shrunk = shrunk};
  if (evidence->ranks == 0) sf_evidence_of_layout(&layout, c);
  if (outcome->verdict == SF_VERDICT_FINDING)
    sf_figures_of_finding(out, &view);
  else
    sf_figure_network(out, &view);
}
