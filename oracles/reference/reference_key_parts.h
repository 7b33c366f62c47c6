/* Template: fp16 gradients of keys and values that ranks hold as partial sums. With fewer key heads than ranks each rank stores what its
 * own query heads give, after attention, rotation and norm. Such a part may overflow where the whole does not, and the whole where no part
 * does. A rerun of other sums (E5) therefore takes the whole as ever, and beside it the parts of equal runs of a group's query heads: an
 * element overflows where a part does, and there alone. End to end only: in isolated mode gradients are given. */
#ifndef SF_ORACLES_REFERENCE_KEY_PARTS_H
#define SF_ORACLES_REFERENCE_KEY_PARTS_H

#include "oracles/reference/reference_products.h"

#include <string.h>

/* How many parts this run looks at: a divisor of the group, a toss of the draw; 1 where there is nothing to look at. */
static inline int64_t key_parts_of(const struct run *run) {
  const int64_t group = run->c->model.heads / run->c->model.kv_heads;
  if (run->options->perturb != SF_PERTURB_SPLIT || run->format != SF_F16 || run->c->mode != SF_MODE_E2E || group == 1) return 1;
  int64_t choices = 0;
  for (int64_t n = 2; n <= group; n++) choices += group % n == 0;
  int64_t chosen = (int64_t)(sf_mix64(run->options->draw) % (uint64_t)choices);
  for (int64_t n = 2; n < group; n++)
    if (group % n == 0 && chosen-- == 0) return n;
  return group;
}

/* Memory for the parts, where key gradients have more than one. */
static inline void take_key_parts(struct run *run) {
  run->attention.key_part_count = key_parts_of(run);
  if (run->attention.key_part_count > 1) run->attention.key_parts = take(run, run->tokens * run->context_width);
}

/* Part p of a group's key gradient at a token. */
static inline real *key_part(const struct run *run, int64_t t, int64_t group, int64_t p) {
  return run->attention.key_parts + ((t * run->c->model.kv_heads + group) * run->attention.key_part_count + p) * run->c->model.head_dim;
}

/* whole [head_dim] is never stored: what would overflow is held at the largest number, until a part is found to overflow. */
static inline void key_whole_hold(const struct run *run, real *whole) {
  const real most = 65504;
  for (int64_t j = 0; j < run->c->model.head_dim; j++)
    if (!(whole[j] <= most && whole[j] >= -most)) whole[j] = whole[j] < 0 ? -most : most;
}

/* part [head_dim] is stored; what of it is infinite then is infinite in the whole. */
static inline void key_part_store(const struct run *run, real *whole, real *part) {
  const int64_t d = run->c->model.head_dim;
  round_to(part, d, run->format);
  for (int64_t j = 0; j < d; j++)
    if (!isfinite(part[j])) whole[j] = part[j];
}

/* coefficients [heads of the group][s x s], rows [heads of the group][s x d]: parts of scale coefficients^T rows, of which whole [s x d],
 * stride ld, is the sum. keeps: these are keys, whose parts are wanted later. */
static inline void key_parts_sum(struct run *run, real *whole, int64_t ld, const real *coefficients, const real *rows, real scale,
                                 int64_t group, int64_t sequence, bool keeps) {
  const struct sf_model *model = &run->c->model;
  const int64_t s = model->seq, d = model->head_dim, b = run->c->train.microbatch_size;
  const int64_t heads = model->heads / model->kv_heads / run->attention.key_part_count;
  for (int64_t p = 0; p < run->attention.key_part_count; p++) {
    const int64_t first = p * heads * s;
    multiply_whole(&run->noise, run->attention.head_grad, d, turned(coefficients + first * s, s, heads * s, s),
                   straight(rows + first * d, heads * s, d, d));
    for (int64_t i = 0; i < s; i++) {
      real *part = run->attention.head_grad + i * d;
      for (int64_t j = 0; j < d; j++) part[j] *= scale;
      if (p == 0) key_whole_hold(run, whole + i * ld);
      key_part_store(run, whole + i * ld, part);
      if (keeps) memcpy(key_part(run, i * b + sequence, group, p), part, (size_t)d * sizeof(real));
    }
  }
}

#endif
