/* Figures for the page of a report: what the texts say, as pictures. All of them read the structs that the texts are made of: outcomes and
 * culprits, evidence of a run, the store. Each function appends HTML in which texts of others are safe already (struct sf_text figures of a
 * report or an item). */
#ifndef SF_RUN_FIGURES_H
#define SF_RUN_FIGURES_H

#include "harness/run/campaign/finding_files.h"
#include "harness/run/campaign/signatures.h"
#include "harness/run/evidence/evidence.h"

/* A finding: of a case that ran, or of a judged trace. */
struct sf_finding_view {
  const struct sf_culprit *culprit, *further; /* what it is about; the other culprits */
  int32_t further_count;
  const char *pattern, *label;        /* as in an outcome; "" */
  const struct sf_case *c;            /* NULL: a trace */
  const struct sf_evidence *evidence; /* without tensors: the run did not come to its end, or nobody kept any */
  struct sf_shrunk_texts shrunk;
};

/* Cause, worst element, values, network, ranks, contrast, the way of the shrinker: in the order in which one reads them. */
void sf_figures_of_finding(struct sf_text *out, const struct sf_finding_view *view);
/* The same of what a case showed. */
void sf_figures_of_outcome(struct sf_text *out, const struct sf_case *c, const struct sf_outcome *outcome,
                           const struct sf_evidence *evidence, struct sf_shrunk_texts shrunk);
/* The same of a judged trace, its errors by layer and step first. SF_ENOMEM. */
enum sf_status sf_figures_of_check(struct sf_text *out, const struct sf_check_report *report,
                                   const struct sf_trace_set *candidate) SF_MUST_USE;
/* The error of a trace by layer and step. Nothing where it has one step. */
void sf_figures_of_steps(struct sf_text *out, const struct sf_evidence *evidence);

/* A campaign: cases over time, how near clean tensors came to the alarm, which pairs of settings ran together, what could not be judged.
 * Fails as readers of the store do, with a line that says why. */
enum sf_status sf_figures_of_campaign(struct sf_text *out, struct sf_store *store, struct sf_error *error) SF_MUST_USE;
/* Which pairs of settings ran together (sf_cover_count_append). */
void sf_figure_pairs(struct sf_text *out, const char *pairs);

/* --- parts of it ---------------------------------------------------------------------------------------------------- */

/* What the elements should be and what they are. */
void sf_figure_values(struct sf_text *out, const struct sf_picture *picture);
/* Every module from input to loss, with the error of its tensors forward and backward. */
void sf_figure_network(struct sf_text *out, const struct sf_finding_view *view);
/* The ranks in the groups over which the signature's axes run, and what each holds of the tensor. picture: NULL, or of it. */
void sf_figure_ranks(struct sf_text *out, const struct sf_evidence *evidence, const char *signature, const struct sf_picture *picture,
                     int32_t rank);
/* The fields that matter, with the values that failed and those that passed; on demand all others. */
void sf_figure_contrast(struct sf_text *out, const char *contrast);
/* The steps of shrinking. */
void sf_figure_steps(struct sf_text *out, const char *steps);

/* A heading, a note under it (a printf format as of sf_html_append), and room for a picture that scrolls where it is wider than the page.
 */
void sf_figure_begin(struct sf_text *out, const char *title, const char *note, ...) SF_PRINTF(3, 4);
void sf_figure_end(struct sf_text *out);
/* A row of a <dl>: a name of ours, and a text as of sf_html_append. */
void sf_figure_fact(struct sf_text *out, const char *name, const char *format, ...) SF_PRINTF(3, 4);

#endif
