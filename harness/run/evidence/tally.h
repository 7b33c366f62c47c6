/* What a campaign remembers of the tensors of a case beside their number: how near a right one came to the alarm, and which modules have
 * tensors that could not be judged. */
#ifndef SF_RUN_TALLY_H
#define SF_RUN_TALLY_H

#include <stdbool.h>

enum { SF_UNJUDGED_TEXT = 192 };
struct sf_tally {
  double closest;                  /* the largest error over what is allowed, of those that are not wrong; 0: none, or not noted. Only of
                                      those whose noise level is of all perturbed runs: what fewer runs clear may seem near, and is not */
  char unjudged[SF_UNJUDGED_TEXT]; /* "loss=2 mlp.router=1": module and number of tensors, as many as there is room for */
};
/* A tensor that was judged and is not wrong. */
void sf_tally_near(struct sf_tally *tally, double share);
/* A tensor that was not judged. module: without blanks and equals signs, or it is not noted. */
void sf_tally_unjudged(struct sf_tally *tally, const char *module);

#endif
