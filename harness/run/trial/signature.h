/* Signatures of findings: a shrink key, and behind an @ the axes of the case that are above 1. Findings are grouped and known by them. */
#ifndef SF_RUN_SIGNATURE_H
#define SF_RUN_SIGNATURE_H

#include "harness/spec/case.h"

enum { SF_AXES_TEXT = 48 };

/* "tp+sp+dp": the axes that are > 1 (sp: on) in the layout or in the one that the case is loaded with, and "isolated" where that is the
 * mode of a framework's case; "none". key: the shrink key of a finding, or NULL. A key of the experts (their weights, outputs and dispatch)
 * takes the axes of the expert mesh, etp, ep and edp, in place of tp, sp, cp and dp: it does not matter to the experts which of those their
 * ranks come from. */
void sf_signature_axes(char out[SF_AXES_TEXT], const struct sf_case *c, const char *key);
/* key@axes. */
void sf_signature_make(char out[SF_SIGNATURE_TEXT], const char *key, const struct sf_case *c);
/* A signature taken apart. Texts are "" where there is none; kind and module lie behind the class. */
struct sf_signature_parts {
  char cls[SF_SIGNATURE_TEXT]; /* without "flaky/" */
  const char *kind, *module;
  unsigned axes, other_axes; /* a bit for each; other_axes: but for those whose ranks have other data (dp, cp, edp), or may come from such
                                (ep, etp) */
  unsigned model_axes;       /* other_axes without sp, which goes with tp: those that cut the model */
  bool has_axes;             /* it names some, or that there are none */
};
/* Takes a signature apart, or a shrink key, which has no axes. */
void sf_signature_split(struct sf_signature_parts *out, const char *signature);
/* Whether the case has every axis that the signature names; of an operation it names none. */
bool sf_signature_within(const char *signature, const struct sf_case *c);
/* Whether a signature that was written down (in a known list, in a case's expectation) stands for one that was seen. Two older forms count
 * too: without a manner, "crash/comm/LABEL@AXES" stands for each manner; without etp and edp, axes stand for those with etp, and for
 * experts for any axes that their ranks may have come from. */
bool sf_signature_covers(const char *written, const char *seen);

#endif
