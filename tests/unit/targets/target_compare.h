/* What differs between two runs of a simulated world. For the tests of this room. */
#ifndef SF_TESTS_TARGET_COMPARE_H
#define SF_TESTS_TARGET_COMPARE_H

#include "tests/unit/targets/target_world.h"

/* The id under which a run without recomputation and pipeline has the same tensor. */
static inline struct sf_trace_id world_plain_id(struct sf_trace_id id) {
  if (id.pass == SF_PASS_RECOMPUTE) id.pass = SF_PASS_FWD;
  if (id.kind == SF_KIND_ACT || id.kind == SF_KIND_ACT_GRAD) id.call = 0;
  return id;
}

static inline double world_difference(const struct world_tensor *a, const struct world_tensor *b) {
  double error = 0.0, norm = 0.0;
  for (int64_t i = 0; i < a->shape.rows * a->shape.cols; i++) {
    const double d = (double)a->values[i] - (double)b->values[i];
    error += d * d;
    norm += (double)b->values[i] * (double)b->values[i];
  }
  return norm > 0.0 ? sqrt(error / norm) : sqrt(error);
}

static inline bool world_tensor_is_complete(const struct world_tensor *tensor) {
  for (int64_t i = 0; i < tensor->shape.rows * tensor->shape.cols; i++)
    if (tensor->seen[i] != 1 && tensor->seen[i] != 2) return false;
  return true;
}

/* In isolated mode what is received is what the sender's sink wrote: true when it is that in every bit. */
static inline bool world_received_is_injected(const struct world *w, const struct world_tensor *tensor) {
  struct sf_trace_id id = sf_trace_id_from_key(tensor->key);
  id.call = 0;
  const struct sf_fill fill = sf_fill_for_trace(w->catalog, id);
  bool same = true;
  for (int64_t i = 0; i < tensor->shape.rows * tensor->shape.cols; i++) {
    float value;
    sf_fill_range(&value, &fill, i, 1);
    same = same && memcmp(&value, &tensor->values[i], sizeof value) == 0;
  }
  return same;
}

/* What differs between a run and the one-rank run of the same logical case. */
struct world_comparison {
  int64_t missing, incomplete, extra;
  int64_t not_injected; /* isolated mode: received tensors that are not what was sent */
  double worst;         /* largest relative difference of a tensor; NaN counts as infinite */
  struct sf_trace_id worst_id;
};

/* Adam divides a gradient by its own size, so a change that it makes of a gradient near zero is compared by no one. */
static inline bool is_smooth(struct sf_trace_id id) { return id.kind != SF_KIND_PARAM_DELTA && (id.kind != SF_KIND_PARAM || id.step == 0); }

static inline struct world_comparison world_compare(const struct world *w, const struct world *plain) {
  struct world_comparison out = {0};
  for (int i = 0; i < WORLD_SLOTS; i++) {
    const struct world_tensor *tensor = &w->tensors[i];
    if (plain->tensors[i].used && !world_find(w, sf_trace_id_from_key(plain->tensors[i].key))) out.missing++;
    if (!tensor->used) continue;
    const struct sf_trace_id id = sf_trace_id_from_key(tensor->key);
    const struct world_tensor *other = world_find(plain, world_plain_id(id));
    out.incomplete += !world_tensor_is_complete(tensor);
    if (other == NULL) {
      out.extra++;
      continue;
    }
    const double difference = world_difference(tensor, other);
    if (!is_smooth(id)) continue;
    if (w->c.mode == SF_MODE_ISOLATED && id.call == 1 && id.kind != SF_KIND_WGRAD) {
      out.not_injected += !world_received_is_injected(w, tensor);
      continue;
    }
    if (!(difference <= out.worst)) out.worst = isnan(difference) ? (double)INFINITY : difference, out.worst_id = id;
  }
  return out;
}

#endif
