/* Routing ties: where rounding decides the choice of an expert, candidate and reference may choose differently. The tensors that follow can
 * then neither be compared nor pass. */
#include "oracles/judge/collector.h"

#include <math.h>

static bool is_chosen(const float *logits, int64_t experts, int64_t topk, int64_t e) {
  int64_t ahead = 0;
  for (int64_t i = 0; i < experts; i++) ahead += logits[i] > logits[e] || (logits[i] == logits[e] && i < e);
  return ahead < topk;
}

/* Distance of the topk-th logit to the next one. */
static double margin_of(const float *logits, int64_t experts, int64_t topk) {
  double least = INFINITY, most = -INFINITY;
  for (int64_t e = 0; e < experts; e++) {
    const double value = (double)logits[e];
    if (is_chosen(logits, experts, topk, e))
      least = value < least ? value : least;
    else
      most = value > most ? value : most;
  }
  return least - most;
}

static bool goes_elsewhere(const float *candidate, const float *logits, int64_t experts, int64_t topk) {
  for (int64_t e = 0; e < experts; e++)
    if (is_chosen(candidate, experts, topk, e) != is_chosen(logits, experts, topk, e)) return true;
  return false;
}

/* candidate: its logits; NULL: not known. A row without noise has logits that no order of sums changes. */
static bool has_turned(const struct sf_expected *e, const float *candidate, enum sf_level level, int64_t topk, double *levels) {
  const int64_t experts = e->spec.shape.cols;
  sf_row_noise(levels, e, level);
  for (int64_t r = 0; r < e->spec.shape.rows; r++) {
    const float *logits = e->x + r * experts;
    const bool is_tie = levels[r] > 0 && !(margin_of(logits, experts, topk) > 2 * levels[r]);
    if (is_tie && (candidate == NULL || goes_elsewhere(candidate + r * experts, logits, experts, topk))) return true;
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
    const struct sf_slot *slot = sf_slot_at(collector, i, SF_SLOT_FIRST);
    const float *candidate = sf_slot_is_whole(slot) ? slot->merged : NULL;
    if (*first < i || !has_turned(e, candidate, level, c->moe.topk, row_scratch)) continue;
    *first = i;
    if (e->id.step < ties->step) ties->step = e->id.step;
  }
  return SF_OK;
}

/* What a step makes of the gradients of all its microbatches. */
static bool sums_microbatches(enum sf_kind kind) {
  return kind == SF_KIND_MAIN_GRAD || kind == SF_KIND_PARAM_DELTA || kind == SF_KIND_SCALAR;
}

bool sf_ties_reach(const struct sf_ties *ties, const struct sf_collector *collector, const struct sf_expected *e) {
  if (ties->first == NULL || e->id.step < ties->step) return false;
  if (e->id.step > ties->step || sums_microbatches((enum sf_kind)e->id.kind)) return true;
  return e->ordinal > ties->first[place_of(collector, e->id)];
}
