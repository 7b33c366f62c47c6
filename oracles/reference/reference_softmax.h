/* Template: the softmax of causal attention, with windows, documents and sinks. */
#ifndef SF_ORACLES_REFERENCE_SOFTMAX_H
#define SF_ORACLES_REFERENCE_SOFTMAX_H

#include "oracles/reference/reference_products.h"

/* A query's softmax: which keys it sees, and the sink that competes with them. */
struct softmax {
  int64_t seq, window; /* window 0: all keys up to the query's own */
  real scale;
  const real *sink;         /* logit of the head; NULL without sinks */
  const int32_t *documents; /* of the sequence: first position of each position's document; NULL without */
  const struct run *hides;  /* NULL, or the run whose supposed mistake hides keys */
  int64_t beyond;           /* keys seen behind the query's own; but for a supposed mistake none */
  bool hides_own;           /* .. and it sees its own */
  bool sums_sink;           /* but for a supposed mistake */
};

/* The first key that the query sees, by window and document; the last is itself. */
static inline int64_t first_key(const struct softmax *softmax, int64_t query) {
  const int64_t first = softmax->window == 0 ? 0 : query - softmax->window + 1;
  const int64_t begin = softmax->documents == NULL ? 0 : softmax->documents[query];
  return first < begin ? begin : first;
}

/* The last key that the query sees. */
static inline int64_t last_key(const struct softmax *softmax, int64_t query) {
  const int64_t last = query + softmax->beyond;
  return last < softmax->seq ? last : softmax->seq - 1;
}

/* Takes the keys out of a row of scores that a supposed mistake hides. A query sees one key at least. */
static inline void hide_keys(const struct softmax *softmax, real *row, int64_t query, int64_t first, int64_t last) {
  for (int64_t j = first; softmax->hides != NULL && j <= last; j++)
    if (!do_meet(softmax->hides, SF_WITHIN_KEYS, query, j)) row[j] = -(real)INFINITY;
  if (softmax->hides_own && first < query) row[query] = -(real)INFINITY;
}

/* In place: scores [seq x seq] -> softmax of scale * score over the columns that the row sees, zeros elsewhere. sink_probs [seq]: what the
 * sink takes. */
static inline void softmax_causal(struct inner inner, const struct softmax *softmax, real *scores, real *sink_probs) {
  const int64_t seq = softmax->seq;
  for (int64_t i = 0; i < seq; i++) {
    const int64_t first = first_key(softmax, i), last = last_key(softmax, i), count = last + 1 - first;
    real *row = scores + i * seq;
    for (int64_t j = first; j <= last; j++) row[j] *= softmax->scale;
    hide_keys(softmax, row, i, first, last);
    inner_perturb(inner, i * seq, row + first, count);
    real top = row_max(row + first, count);
    if (softmax->sink != NULL && *softmax->sink > top) top = *softmax->sink;
    for (int64_t j = first; j <= last; j++) row[j] = real_exp(row[j] - top);
    const real apart = softmax->sink != NULL ? inner_number(inner, seq * seq + seq + i, real_exp(*softmax->sink - top)) : 0;
    const real sum = inner_number(inner, seq * seq + i, row_sum(row + first, count) + (softmax->sums_sink ? apart : 0));
    for (int64_t j = first; j <= last; j++) row[j] /= sum;
    if (softmax->sink != NULL) sink_probs[i] = apart / sum;
    for (int64_t j = 0; j < first; j++) row[j] = 0;
    for (int64_t j = last + 1; j < seq; j++) row[j] = 0;
  }
}

/* sinks: the layer's parameter, or -1. */
static inline struct softmax softmax_of(const struct run *run, int32_t sinks, int64_t head, int64_t sequence) {
  const struct sf_model *model = &run->c->model;
  return (struct softmax){.seq = model->seq,
                          .window = model->window,
                          .scale = score_scale(run),
                          .documents = run->acts.documents == NULL ? NULL : run->acts.documents + sequence * model->seq,
                          .beyond = has_slip(run, SF_SLIP_ALL_KEYS) ? model->seq : has_slip(run, SF_SLIP_NEXT_KEY),
                          .hides_own = has_slip(run, SF_SLIP_NOT_OWN_KEY),
                          .hides = sets_within(run, SF_WITHIN_KEYS) > 1 ? run : NULL,
                          .sums_sink = !has_slip(run, SF_SLIP_SINK_NOT_SUMMED),
                          .sink = sinks < 0 ? NULL : run->params[sinks].weight + head};
}

/* In place: dP -> P (dP - rowsum(P dP)) where the mask lets through, zeros elsewhere. means [seq]: the row sums. */
static inline void softmax_backward(struct inner inner, const struct softmax *softmax, real *grad, real *means, const real *probs) {
  const int64_t seq = softmax->seq;
  for (int64_t i = 0; i < seq; i++) {
    const int64_t first = first_key(softmax, i), last = last_key(softmax, i), count = last + 1 - first;
    real *restrict row = grad + i * seq;
    const real *restrict p = probs + i * seq;
    inner_perturb(inner, i * seq, row + first, count);
    const real mean = means[i] = inner_number(inner, seq * seq + i, row_dot(row + first, p + first, count));
    for (int64_t j = first; j <= last; j++) row[j] = p[j] * (row[j] - mean);
    for (int64_t j = 0; j < first; j++) row[j] = 0;
    for (int64_t j = last + 1; j < seq; j++) row[j] = 0;
  }
}

#endif
