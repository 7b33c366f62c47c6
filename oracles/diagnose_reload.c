/* What may stand where a tensor should after a reload that lost something: masters or moments that begin anew. */
#include "harness/tensor/consistent.h"
#include "oracles/diagnose_related.h"
#include "oracles/norms.h"

#include <math.h>
#include <stdio.h>

static const struct sf_expected *of_step(const struct sf_collector *collector, enum sf_kind kind, int32_t subject, int32_t step) {
  const struct sf_trace_id id = {.step = (uint16_t)step, .pass = SF_PASS_STEP, .kind = (uint8_t)kind, .subject = subject};
  return sf_expectations_find(collector->expectations, id);
}

/* The first weights with the changes of the steps since the reload alone. */
static void collect_stale_master(struct sf_related_list *list, const struct sf_expected *own) {
  const struct sf_collector *collector = list->collector;
  const int32_t after = (int32_t)collector->c.reload.after_step, param = own->id.subject;
  const int64_t count = own->spec.shape.rows * own->spec.shape.cols;
  float *x = sf_related_alloc(list, (size_t)count * sizeof *x);
  if (x == NULL) return;
  const struct sf_fill fill = sf_fill_for_param(collector->catalog, param, 0);
  sf_fill_range(x, &fill, 0, count);
  for (int32_t step = after; step < own->id.step; step++) {
    const struct sf_expected *delta = of_step(collector, SF_KIND_PARAM_DELTA, param, step);
    if (delta == NULL) return;
    for (int64_t i = 0; i < count; i++) x[i] += delta->x[i];
  }
  sf_round_array(x, count, sf_case_storage(&collector->c));
  sf_related_add_stale(list, own->spec.shape, x, "masters that were not loaded");
}

/* The step's change, but for its weight decay, which is that of the first weights. */
static void collect_stale_decay(struct sf_related_list *list, const struct sf_expected *own) {
  const struct sf_collector *collector = list->collector;
  const struct sf_train *train = &collector->c.train;
  const int64_t count = own->spec.shape.rows * own->spec.shape.cols;
  const float factor = (float)((double)train->lr_micro * 1e-6 * (double)train->weight_decay_milli / 1000.0);
  float *x = sf_related_alloc(list, (size_t)count * sizeof *x);
  if (x == NULL || factor == 0 || !collector->catalog->params[own->id.subject].decayed) return;
  for (int64_t i = 0; i < count; i++) x[i] = own->x[i];
  for (int32_t step = 0; step < collector->c.reload.after_step; step++) {
    const struct sf_expected *delta = of_step(collector, SF_KIND_PARAM_DELTA, own->id.subject, step);
    if (delta == NULL) return;
    for (int64_t i = 0; i < count; i++) x[i] += factor * delta->x[i];
  }
  sf_related_add_stale(list, own->spec.shape, x, "a change with the decay of masters that were not loaded");
}

/* Steps up to `step` that were not skipped. */
static int32_t applied_until(const struct sf_collector *collector, int32_t step) {
  int32_t applied = 0;
  for (int32_t s = 0; s <= step; s++) {
    const struct sf_expected *overflow = of_step(collector, SF_KIND_SCALAR, SF_SCALAR_OVERFLOW, s);
    applied += overflow == NULL || overflow->x[0] == 0;
  }
  return applied;
}

/* Adam's first change after the reload with moments of zero, and its count of steps going on. */
static void collect_lost_moments(struct sf_related_list *list, const struct sf_expected *own) {
  const struct sf_collector *collector = list->collector;
  const struct sf_train *train = &collector->c.train;
  const int32_t step = own->id.step, param = own->id.subject, applied = applied_until(collector, step);
  const struct sf_expected *grad = of_step(collector, SF_KIND_MAIN_GRAD, param, step), *weight = of_step(collector, SF_KIND_PARAM, param, step);
  const struct sf_expected *clip = of_step(collector, SF_KIND_SCALAR, SF_SCALAR_CLIP, step);
  const int64_t count = own->spec.shape.rows * own->spec.shape.cols;
  float *x = sf_related_alloc(list, (size_t)count * sizeof *x);
  if (x == NULL || grad == NULL || weight == NULL || clip == NULL) return;
  const double beta1 = (double)train->beta1_milli / 1000.0, beta2 = (double)train->beta2_milli / 1000.0, lr = (double)train->lr_micro * 1e-6;
  const double decay = collector->catalog->params[param].decayed ? (double)train->weight_decay_milli / 1000.0 : 0.0;
  static const double EPSILON = 1e-8; /* of the logical function */
  for (int64_t i = 0; i < count; i++) {
    const double g = (double)clip->x[0] * (double)grad->x[i];
    const double m = (1 - beta1) * g / (1 - pow(beta1, applied)), v = (1 - beta2) * g * g / (1 - pow(beta2, applied));
    x[i] = (float)(-lr * (m / (sqrt(v) + EPSILON) + decay * (double)weight->x[i]));
  }
  sf_related_add_stale(list, own->spec.shape, x, "Adam with moments that were not loaded");
}

void sf_related_collect_reload(struct sf_related_list *list, const struct sf_slot *slot) {
  const struct sf_collector *collector = list->collector;
  const struct sf_expected *own = slot->expected;
  const int64_t after = collector->c.reload.after_step;
  if (after == 0 || own->id.step < after || slot->phase != SF_SLOT_FIRST) return;
  const bool is_e2e = collector->c.mode == SF_MODE_E2E;
  if (own->id.kind == SF_KIND_PARAM && own->id.step > after && is_e2e) collect_stale_master(list, own);
  if (own->id.kind == SF_KIND_PARAM_DELTA && is_e2e) collect_stale_decay(list, own);
  if (own->id.kind == SF_KIND_PARAM_DELTA && own->id.step == after) collect_lost_moments(list, own);
}
