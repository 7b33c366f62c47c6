/* Routing ties: where the choice of an expert hangs on rounding, candidate and reference may go different ways, and what follows can neither be
 * compared nor pass. */
#include "oracles/collector.h"

#include <math.h>

/* Distance of the topk-th logit to the next one. */
static double margin_of(const float *logits, int64_t experts, int64_t topk) {
  double least = 0, most = 0;
  bool has_least = false, has_most = false;
  for (int64_t e = 0; e < experts; e++) {
    int64_t ahead = 0;
    for (int64_t i = 0; i < experts; i++) ahead += logits[i] > logits[e] || (logits[i] == logits[e] && i < e);
    const double value = (double)logits[e];
    if (ahead < topk && (!has_least || value < least)) least = value, has_least = true;
    if (ahead >= topk && (!has_most || value > most)) most = value, has_most = true;
  }
  return has_most ? least - most : INFINITY;
}

/* A row without any noise has logits that no order of sums changes. */
static bool has_tie(const struct sf_expected *e, enum sf_level level, int64_t topk, double *levels) {
  sf_row_noise(levels, e, level);
  for (int64_t r = 0; r < e->spec.shape.rows; r++) {
    const double margin = margin_of(e->x + r * e->spec.shape.cols, e->spec.shape.cols, topk);
    if (levels[r] > 0 && !(margin > 2 * levels[r])) return true;
  }
  return false;
}

static int64_t place_of(const struct sf_collector *collector, struct sf_trace_id id) {
  return id.step * collector->c.train.microbatches + id.microbatch;
}

enum sf_status sf_ties_find(struct sf_ties *ties, const struct sf_collector *collector, enum sf_level level, double *row_scratch) {
  const struct sf_case *c = &collector->c;
  *ties = (struct sf_ties){0};
  if (c->moe.experts == 0 || c->mode != SF_MODE_E2E) return SF_OK;
  const int64_t places = c->train.steps * c->train.microbatches;
  ties->first = sf_arena_alloc(collector->of_judgement, (size_t)places * sizeof *ties->first);
  if (ties->first == NULL) return SF_ENOMEM;
  for (int64_t i = 0; i < places; i++) ties->first[i] = INT32_MAX;
  ties->step = INT32_MAX;
  for (int32_t i = 0; i < collector->count; i++) {
    const struct sf_expected *e = sf_expectations_at(collector->expectations, i);
    if (e->id.kind != SF_KIND_ACT || collector->catalog->modules[e->id.subject].cls != SF_MODULE_ROUTER) continue;
    int32_t *first = &ties->first[place_of(collector, e->id)];
    if (*first < i || !has_tie(e, level, c->moe.topk, row_scratch)) continue;
    *first = i;
    if (e->id.step < ties->step) ties->step = e->id.step;
  }
  return SF_OK;
}

bool sf_ties_reach(const struct sf_ties *ties, const struct sf_collector *collector, const struct sf_expected *e) {
  if (ties->first == NULL || e->id.step < ties->step) return false;
  if (e->id.step > ties->step || e->id.kind == SF_KIND_MAIN_GRAD) return true;
  return e->ordinal > ties->first[place_of(collector, e->id)];
}
