/* Which findings of a campaign have one cause. One fault often has several signatures: it makes several tensors wrong, shows in exact
 * mode too, or takes another axis in another case. */
#ifndef SF_RUN_CAUSES_H
#define SF_RUN_CAUSES_H

#include "harness/spec/case.h"
#include "oracles/diagnose/diagnose.h"

/* What is known of one finding. Everything is borrowed. */
struct sf_cause_evidence {
  const char *signature;
  const char *shown;         /* shrink keys of all that is wrong in its smallest case, a line each; NULL: not known */
  const struct sf_case *min; /* its smallest case; NULL: not known */
  const struct sf_diagnosis *diagnosis;
  bool is_shadow;              /* sf_finding_is_shadow_of another one */
  const struct sf_case *found; /* the case in which it was found; NULL: not known */
};

/* Whether the other finding has the same kind and module, and its smallest case needs fewer settings. Then the first finding's smallest
 * case may show other wrong tensors only because of its additional settings. False where a smallest case is not known. */
bool sf_finding_is_shadow_of(const struct sf_cause_evidence *finding, const struct sf_cause_evidence *other);

/* Whether two findings have one cause, as far as can be seen. "Shows" means that the kind of tensor and the module of one finding are wrong
 * in the smallest case of the other too. They have one cause
 *   - if their diagnoses name the same cause, and they have the module in common, or kind and axes, or one shows the other;
 *   - if they have module and kind in common (a parameter's gradient before and after it is summed is one kind), and the axes, or the class
 *     and all axes but those of data (dp against cp), and their diagnoses do not name two causes, or one is of exact mode, where numbers
 *     are so few that other causes fit; or if the two that they name are those of one sum: missing over several axes, over another group,
 *     or made too early; or both scale one term of the value;
 *   - if they are of a framework, their smallest cases ask for the same in whatever mode, and for more than a layout, and one shows the
 *     other: those cases are short lists of settings, so that two bugs seldom need the same one;
 *   - if neither is finite, and one shows the other;
 *   - if both are values of parameters, with class and axes in common, and their diagnoses do not name two causes: whatever writes these,
 *     an optimizer or a checkpoint, writes all of them;
 *   - if each shows the other, and they have the module or the kind in common: what mends one mends both;
 *   - if one shows the other, layout, training and precision of their smallest cases are the same, and they have the module or the kind in
 *     common, or their diagnoses do not name two causes and those cases need more than ranks, such as dropout or fp8.
 * That one shows the other is not enough: a fault that needs nothing shows in every case. For the same reason the last rule does not hold
 * for shadows. */
bool sf_findings_have_one_cause(const struct sf_cause_evidence *a, const struct sf_cause_evidence *b);

/* Whether a finding that was not shrunk may well have the cause of the other one: they have class, kind and module in common, and their
 * diagnoses do not name two causes. Also, its case contains the smallest case of the other one; or that was not shrunk either, and they
 * have the mode in common. Its axes are those of the case that was drawn, and say nothing. */
bool sf_finding_may_be_of(const struct sf_cause_evidence *finding, const struct sf_cause_evidence *other);

#endif
