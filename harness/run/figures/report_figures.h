/* Adds figures to the report of a campaign or a gate, before it is written as a page. */
#ifndef SF_RUN_REPORT_FIGURES_H
#define SF_RUN_REPORT_FIGURES_H

#include "harness/run/figures/case_report.h"

/* Of so many findings the smallest case runs once more, for its pictures. */
enum { SF_FIGURES_FINDINGS_MAX = 30 };

struct sf_figures_source {
  const char *store_path;
  /* Runs the job's case, the smallest one of a finding, and takes what it shows (sf_case_show). NULL: by this pool. */
  enum sf_status (*show)(void *context, struct sf_evidence *evidence, struct sf_outcome *outcome, struct sf_job *job,
                         struct sf_error *error);
  void *context;
  const struct sf_pool_options *pool;
};
/* Adds the campaign's figures, and those of each finding whose name is the item's and that the store has. A finding that does not run again
 * gets a line that says so. Fails as sf_store_open and as its readers do. */
enum sf_status sf_report_add_figures(struct sf_report *report, const struct sf_figures_source *source, struct sf_error *error) SF_MUST_USE;

#endif
