/* The way of the shrinker as text: a line for each trial, "+layout.tp: 4 -> 2" where the smaller case failed in the same way and was kept,
 * "-.." where it did not. */
#ifndef SF_RUN_SHRINK_STEPS_H
#define SF_RUN_SHRINK_STEPS_H

#include "harness/spec/case.h"

enum { SF_STEPS_TEXT = 12288 };

/* Appends the line of a trial that led from one case to another. When there is little room left only those that were kept have lines, and
 * when there is none nothing has. */
void sf_steps_note(char steps[SF_STEPS_TEXT], const struct sf_case *from, const struct sf_case *to, bool kept);

#endif
