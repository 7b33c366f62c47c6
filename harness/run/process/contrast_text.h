/* What contrast says of a finding, as it is kept: one JSON object, which the store, contrast.json beside a smallest case and --json have
 * alike. Readers take its sentence from it, and pages its fields. */
#ifndef SF_RUN_CONTRAST_TEXT_H
#define SF_RUN_CONTRAST_TEXT_H

#include "generators/contrast.h"

enum { SF_CONTRAST_TEXT = 24576, SF_CONTRAST_LINE_TEXT = 1200 };
/* States of a field. */
#define SF_CONTRAST_WORD_MATTERS "matters"
#define SF_CONTRAST_WORD_TIED "tied"
#define SF_CONTRAST_WORD_SMALLEST "matters in the smallest case"
#define SF_CONTRAST_FILE "contrast.json"

/* {"why": sentence, "trials", "budget", "fields": [{"field", "state", "condition", "failed", "passed"}, ..]}. cut: NULL, or why it
 * ended early. Fields that could not be changed are left out. "" on no memory, or if it does not fit. */
void sf_contrast_write(char out[SF_CONTRAST_TEXT], const struct sf_contrast *contrast, const struct sf_table *table, const char *cut);
/* The same where nothing was tried; reason: a clause. */
void sf_contrast_write_skipped(char out[SF_CONTRAST_TEXT], const char *reason);

/* The sentence and the number of trials, in one line; "" where json is NULL, empty, or no such object. */
void sf_contrast_line(char out[SF_CONTRAST_LINE_TEXT], const char *json);

#endif
