/* Collects tensors that may appear after a reload that lost masters. Lost moments: diagnose_adam.c. */
#include "harness/tensor/consistent.h"
#include "oracles/diagnose/diagnose_related.h"

/* The first weights plus only the changes of the steps since the reload. */
static void collect_stale_master(struct sf_related_list *list, const struct sf_expected *own) {
  const struct sf_collector *collector = list->collector;
  const int32_t after = (int32_t)collector->c.reload.after_step, param = own->id.subject;
  const int64_t count = own->spec.shape.rows * own->spec.shape.cols;
  float *x = sf_related_alloc(list, (size_t)count * sizeof *x);
  if (x == NULL) return;
  const struct sf_fill fill = sf_fill_for_param(collector->catalog, param, 0);
  sf_fill_range(x, &fill, 0, count);
  for (int32_t step = after; step < own->id.step; step++) {
    const struct sf_expected *delta = sf_related_of_step(collector, SF_KIND_PARAM_DELTA, param, step);
    if (delta == NULL) return;
    for (int64_t i = 0; i < count; i++) x[i] += delta->x[i];
  }
  sf_round_array(x, count, sf_case_storage(&collector->c));
  sf_related_add_stale(list, own->spec.shape, x, "masters that were not loaded");
}

/* The step's change with the weight decay of the first weights. */
static void collect_stale_decay(struct sf_related_list *list, const struct sf_expected *own) {
  const struct sf_collector *collector = list->collector;
  const struct sf_train *train = &collector->c.train;
  const int64_t count = own->spec.shape.rows * own->spec.shape.cols;
  const float factor = (float)((double)train->lr_micro * 1e-6 * (double)train->weight_decay_milli / 1000.0);
  float *x = sf_related_alloc(list, (size_t)count * sizeof *x);
  if (x == NULL || factor == 0 || !collector->catalog->params[own->id.subject].decayed) return;
  for (int64_t i = 0; i < count; i++) x[i] = own->x[i];
  for (int32_t step = 0; step < collector->c.reload.after_step; step++) {
    const struct sf_expected *delta = sf_related_of_step(collector, SF_KIND_PARAM_DELTA, own->id.subject, step);
    if (delta == NULL) return;
    for (int64_t i = 0; i < count; i++) x[i] += factor * delta->x[i];
  }
  sf_related_add_stale(list, own->spec.shape, x, "a change with the decay of masters that were not loaded");
}

void sf_related_collect_reload(struct sf_related_list *list, const struct sf_slot *slot) {
  const struct sf_collector *collector = list->collector;
  const struct sf_expected *own = slot->expected;
  const int64_t after = collector->c.reload.after_step;
  if (after == 0 || own->id.step < after || slot->phase != SF_SLOT_FIRST) return;
  const bool is_e2e = collector->c.mode == SF_MODE_E2E;
  if (own->id.kind == SF_KIND_PARAM && own->id.step > after && is_e2e) collect_stale_master(list, own);
  if (own->id.kind == SF_KIND_PARAM_DELTA && is_e2e) collect_stale_decay(list, own);
}
