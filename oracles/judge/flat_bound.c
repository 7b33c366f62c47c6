#include "oracles/judge/flat_bound.h"

#include "oracles/judge/collector.h"
#include "oracles/noise/norms.h"

#include <math.h>

double sf_flat_bound(void) { return 4 * pow(1.03, 33) * ldexp(1, -7); }

/* Relative distance over the bound. */
static double ratio_of(const struct sf_expected *e, const float *candidate) {
  const double error = sqrt(sf_diff_squares(candidate, e->x, e->spec.shape.rows * e->spec.shape.cols));
  if (error == 0) return 0;
  const double ratio = error / (sf_flat_bound() * e->norm);
  return ratio == ratio ? ratio : INFINITY;
}

void sf_flat_bound_judge(struct sf_flat_result *out, const struct sf_collector *collector) {
  *out = (struct sf_flat_result){0};
  for (int32_t i = 0; i < collector->count; i++) {
    const struct sf_slot *slot = sf_slot_at(collector, i, SF_SLOT_FIRST);
    const struct sf_expected *e = slot->expected;
    if (!sf_kind_has_noise((enum sf_kind)e->id.kind) || !sf_slot_is_whole(slot) || !isfinite(e->norm)) continue;
    const double ratio = ratio_of(e, slot->merged);
    out->tensors++;
    if (!(ratio <= 1) && out->beyond++ == 0) out->first = e->id;
    if (ratio > out->worst) out->worst = ratio;
  }
}
