/* Simple causes of a culprit: the merged tensor, or the sum of what the ranks hold, against multiples of the reference. */
#include "harness/check/check_internal.h"

#include "harness/check/kernel.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

/* Products of the candidate c and the reference x: c c, c x, x x. */
struct products { double cc, cx, xx; };

static enum sf_status add_products(struct products *out, struct sf_checking *checking, const struct sf_block *block) {
  const void *c, *x;
  const int64_t count = block->end - block->begin;
  enum sf_status status = sf_merger_block(checking->of_reference, &x, block->begin, block->end, checking->error);
  if (status == SF_OK) status = sf_merger_block(checking->of_candidate, &c, block->begin, block->end, checking->error);
  if (status != SF_OK) return status;
  sf_widen(checking->wide[0], c, count, sf_merger_dtype(checking->of_candidate));
  sf_widen(checking->wide[1], x, count, sf_merger_dtype(checking->of_reference));
  for (int64_t i = 0; i < count; i++) {
    out->cc += checking->wide[0][i] * checking->wide[0][i];
    out->cx += checking->wide[0][i] * checking->wide[1][i];
    out->xx += checking->wide[1][i] * checking->wide[1][i];
  }
  return SF_OK;
}

static enum sf_status measure(struct products *out, struct sf_checking *checking, const struct sf_trace_tensor *reference,
                              const struct sf_trace_tensor *tensor, bool sum) {
  struct sf_block block;
  enum sf_status status = sf_merger_begin(checking->of_reference, checking->reference, reference);
  if (status == SF_OK)
    status = sum ? sf_merger_begin_sum(checking->of_candidate, checking->candidate, tensor)
                 : sf_merger_begin(checking->of_candidate, checking->candidate, tensor);
  if (status != SF_OK) return sf_error_set(checking->error, status, "%s: out of memory", checking->candidate->path);
  *out = (struct products){0, 0, 0};
  for (bool more = sf_block_first(&block, reference); status == SF_OK && more; more = sf_block_next(&block, reference))
    status = add_products(out, checking, &block);
  return status;
}

/* c as x times a factor: what is left of it, in noise levels of so much. */
struct multiple {
  double times, left;
  bool fits;
};

/* What is left is no smaller than fp64 can show: rounding may make it negative. Without noise only an exact multiple fits. */
static struct multiple multiple_of(const struct products *p, double noise) {
  const double times = p->cx / p->xx, rest = p->cc - 2 * times * p->cx + times * times * p->xx, level = noise * fmax(1, fabs(times));
  const double left = rest > 0 ? sqrt(rest) / level : 0;
  return (struct multiple){times, left, left <= sf_factors.fro};
}

static struct sf_diagnosis say(enum sf_diagnosis_class cls, double left, const char *format, ...) SF_PRINTF(3, 4);
static struct sf_diagnosis say(enum sf_diagnosis_class cls, double left, const char *format, ...) {
  struct sf_diagnosis said = {.cls = cls, .left = left};
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(said.text, sizeof said.text, format, arguments);
  va_end(arguments);
  return said;
}

/* A factor that is a whole number or one over it is said as such. */
static void times_text(char *out, size_t size, double times, double margin) {
  const double whole = nearbyint(times), part = nearbyint(1 / times);
  if (fabs(times - whole) <= margin && fabs(whole) >= 1)
    snprintf(out, size, "%.0f", whole);
  else if (fabs(times) < 1 && fabs(times * part - 1) <= margin * fabs(part))
    snprintf(out, size, "1/%.0f", part);
  else
    snprintf(out, size, "%.5g", times);
}

/* The merged tensor by itself; of replicas the lowest rank's. */
static void explain_merged(struct sf_diagnosis *diagnosis, const struct sf_check_result *result, const struct products *p,
                           bool *is_simple) {
  char text[32];
  const struct multiple m = multiple_of(p, result->tensor_noise);
  *is_simple = p->cc == 0 || m.fits;
  if (!*is_simple || result->cls == SF_CLASS_CONFLICT) return;
  const double margin = sf_factors.fro * result->tensor_noise / sqrt(p->xx);
  if (p->cc == 0) {
    *diagnosis = say(SF_DIAGNOSIS_STALE, 0, "every element is 0");
  } else if (fabs(m.times - 1) > margin) { /* else it is a matter of some rows */
    times_text(text, sizeof text, m.times, margin * fmax(1, fabs(m.times)));
    *diagnosis = say(SF_DIAGNOSIS_SCALE, m.left, "the reference times %s", text);
  }
}

/* Replicas that are far apart. is_simple: the lowest rank's is a multiple of the reference by itself; then only a sum that is just the
 * reference says something (the other ranks have zeros). */
static void explain_sum(struct sf_diagnosis *diagnosis, const struct sf_check_result *result, const struct products *p, bool is_simple) {
  char text[32];
  const struct multiple m = multiple_of(p, result->tensor_noise);
  if (!m.fits) return;
  const double margin = sf_factors.fro * result->tensor_noise / sqrt(p->xx);
  times_text(text, sizeof text, m.times, margin * fmax(1, fabs(m.times)));
  if (fabs(m.times - 1) <= margin)
    *diagnosis = say(SF_DIAGNOSIS_MISSING_REDUCTION, m.left, "what the ranks hold adds up to the reference");
  else if (!is_simple)
    *diagnosis = say(SF_DIAGNOSIS_MISSING_REDUCTION, m.left, "what the ranks hold adds up to %s times the reference", text);
}

enum sf_status sf_check_explain(struct sf_checking *checking, struct sf_check_culprit *culprit) {
  const struct sf_check_result *result = &checking->report.results[culprit->result];
  struct products p = {0, 0, 0};
  char reason[SF_MISFIT_TEXT];
  bool is_simple;
  if (result->cls != SF_CLASS_TOLERANCE && result->cls != SF_CLASS_CONFLICT) return SF_OK;
  const struct sf_trace_tensor *reference = sf_trace_set_find(checking->reference, result->tensor->text),
                               *tensor = sf_trace_set_find(checking->candidate, result->tensor->text);
  if (reference == NULL || !sf_tensor_fits(reason, tensor, reference) || reference->count < 2) return SF_OK;
  enum sf_status status = measure(&p, checking, reference, tensor, false);
  if (status != SF_OK || !(p.xx > 0) || !isfinite(p.cc) || !isfinite(p.xx)) return status;
  explain_merged(&culprit->diagnosis, result, &p, &is_simple);
  if (result->cls != SF_CLASS_CONFLICT || !(result->error > sf_factors.ill_conditioned * sqrt(p.xx))) return SF_OK;
  status = measure(&p, checking, reference, tensor, true);
  if (status == SF_OK && isfinite(p.cc)) explain_sum(&culprit->diagnosis, result, &p, is_simple);
  return status;
}
