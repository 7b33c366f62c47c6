/* Template: the choice of experts, and which tokens they have no room for. */
#ifndef SF_ORACLES_REFERENCE_CHOICE_H
#define SF_ORACLES_REFERENCE_CHOICE_H

#include "oracles/reference/reference_linear.h"

/* Whether expert a comes before b: the larger logit, the lower number of equal ones, NaN last. */
static inline bool is_ahead(const real *logits, int64_t a, int64_t b) {
  const bool is_a_nan = logits[a] != logits[a], is_b_nan = logits[b] != logits[b];
  if (is_a_nan || is_b_nan) return is_a_nan && is_b_nan ? a < b : is_b_nan;
  return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
}

/* The topk largest logits, the lower number among equals, NaN below all; in order of their number. */
static inline void choose_row(int32_t *chosen, const real *logits, int64_t experts, int64_t topk) {
  int64_t count = 0;
  for (int64_t e = 0; e < experts; e++) {
    int64_t ahead = 0;
    for (int64_t i = 0; i < experts; i++) ahead += is_ahead(logits, i, e);
    if (ahead < topk) chosen[count++] = (int32_t)e;
  }
  SF_ASSERT_EQ(count, topk);
}

/* Experts take tokens in row order until they are full. */
static inline void drop_slots(struct run *run, struct moe_acts *acts) {
  const struct sf_moe *moe = &run->c->moe;
  const int64_t b = run->c->train.microbatch_size, topk = moe->topk;
  const bool by_sequence = moe->scope == SF_SCOPE_SEQUENCE;
  const int64_t tokens = (by_sequence ? run->c->model.seq : run->tokens) / sets_within(run, SF_WITHIN_CAPACITY);
  const int64_t share = moe->capacity_milli * tokens * topk, unit = 1000 * moe->experts;
  const int64_t up = has_slip(run, SF_SLIP_CAPACITY_DOWN) ? 0 : unit - 1, capacity = share > unit ? (share + up) / unit : 1;
  memset(run->moe.expert_load, 0, (size_t)(moe->experts * b * sets_within(run, SF_WITHIN_LOAD)) * sizeof *run->moe.expert_load);
  for (int64_t slot = 0; slot < run->tokens * topk; slot++) {
    const int64_t t = slot / topk, sequence = has_slip(run, SF_SLIP_LOAD_BY_BLOCKS) ? t / run->c->model.seq : t % b,
                  counted = set_of_token(run, SF_WITHIN_LOAD, t) * b + (by_sequence ? sequence : 0);
    int32_t *load = run->moe.expert_load + counted * moe->experts + acts->chosen[slot];
    acts->dropped[slot] = moe->capacity_milli > 0 && *load >= capacity;
    *load += 1;
  }
}

/* sorted: the slots that were not dropped, by expert, then by token; first: where each expert's begin. */
static inline void sort_slots(const struct run *run, struct moe_acts *acts) {
  int32_t count = 0;
  for (int32_t e = 0; e < (int32_t)run->c->moe.experts; e++) {
    acts->first[e] = count;
    for (int64_t slot = 0; slot < run->tokens * run->c->moe.topk; slot++)
      if (acts->chosen[slot] == e && !acts->dropped[slot]) acts->sorted[count++] = (int32_t)slot;
  }
  acts->first[run->c->moe.experts] = count;
}

#endif
