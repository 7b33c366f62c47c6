/* Template: multi-token prediction. Depth k takes the norm of what the depth before (the decoder) put out and the norm of the embedding of
 * the token k + 1 further on, side by side, through a linear, a transformer layer and a norm to a prediction of its own. */
#ifndef SF_ORACLES_REFERENCE_MTP_H
#define SF_ORACLES_REFERENCE_MTP_H

#include "oracles/reference/reference_ends.h"
#include "oracles/reference/reference_linear.h"
#include "oracles/reference/reference_norm.h"

/* Memory of an output layer and its loss. */
static inline struct head head_take(struct run *run, enum sf_module_class output, enum sf_module_class loss, int32_t layer) {
  const int64_t t = run->tokens;
  struct head head = {.output = output, .loss = loss, .layer = layer};
  head.label = take_indices(run, t);
  head.weight = take(run, t);
  head.logits = take(run, t * run->c->model.vocab_padded);
  head.losses = take(run, t);
  return head;
}

/* Memory of every depth, if the model predicts several tokens. */
static inline void take_mtp(struct run *run) {
  const int64_t t = run->tokens, h = run->hidden, depths = run->c->model.mtp_depth;
  if (depths == 0) return;
  run->scratch.pair_grad = take(run, t * 2 * h);
  run->acts.mtp = take_all(run, depths, sizeof *run->acts.mtp);
  for (int64_t k = 0; k < depths && !run->out_of_memory; k++) {
    struct mtp *mtp = &run->acts.mtp[k];
    mtp->token = take_indices(run, t);
    mtp->words = take(run, t * h);
    mtp->enorm = take(run, t * h);
    mtp->hnorm = take(run, t * h);
    mtp->pair = take(run, t * 2 * h);
    mtp->projected = take(run, t * h);
    mtp->final_norm = take(run, t * h);
    mtp->head = head_take(run, SF_MODULE_MTP_OUTPUT_LAYER, SF_MODULE_MTP_LOSS, (int32_t)(run->c->model.layers + k));
  }
}

/* What depth k reads of the depth before. */
static inline const real *mtp_input(const struct run *run, int64_t depth) {
  return depth > 0 ? run->acts.mtp[depth - 1].final_norm : run->acts.final_norm;
}

/* Logits and losses from x [tokens x hidden]. */
static inline void head_forward(struct run *run, const struct head *head, const real *x) {
  linear_forward(run, head->output, head->layer, head->logits, x, false);
  loss_forward(run, head);
}

/* x_grad: gradient of x from the prediction alone. */
static inline void head_backward(struct run *run, const struct head *head, real *x_grad, const real *x) {
  loss_backward(run, head, run->scratch.wide_b);
  linear_backward(run, head->output, head->layer, x_grad, run->scratch.wide_b, x);
}

/* Up to the layer's input. */
static inline void mtp_begin(struct run *run, int64_t depth) {
  struct mtp *mtp = &run->acts.mtp[depth];
  const int32_t layer = mtp->head.layer;
  const int64_t h = run->hidden;
  look_up(run, SF_MODULE_MTP_EMBEDDING, layer, mtp->words, mtp->token);
  norm_forward(run, SF_MODULE_MTP_ENORM, layer, mtp->enorm, mtp->words);
  norm_forward(run, SF_MODULE_MTP_HNORM, layer, mtp->hnorm, mtp_input(run, depth));
  for (int64_t t = 0; t < run->tokens; t++)
    for (int64_t j = 0; j < h; j++) {
      mtp->pair[2 * t * h + j] = mtp->enorm[t * h + j];
      mtp->pair[2 * t * h + h + j] = mtp->hnorm[t * h + j];
    }
  linear_forward(run, SF_MODULE_MTP_EH_PROJ, layer, mtp->projected, mtp->pair, false);
}

/* The part of pair_grad from column `first` on, dense. */
static inline void take_half(const struct run *run, real *restrict out, int64_t first) {
  const int64_t h = run->hidden;
  for (int64_t t = 0; t < run->tokens; t++)
    for (int64_t j = 0; j < h; j++) out[t * h + j] = run->scratch.pair_grad[2 * t * h + first + j];
}

/* run->scratch.stream: gradient of the layer's input. branch_b becomes the gradient of mtp_input. */
static inline void mtp_end_backward(struct run *run, int64_t depth) {
  const struct mtp *mtp = &run->acts.mtp[depth];
  const int32_t layer = mtp->head.layer, words = sf_catalog_param(run->catalog, SF_MODULE_WORD_EMBEDDINGS, -1, 0);
  linear_backward(run, SF_MODULE_MTP_EH_PROJ, layer, run->scratch.pair_grad, round_stream(run, run->scratch.rounded, run->scratch.stream),
                  mtp->pair);
  take_half(run, run->scratch.branch_a, 0);
  norm_backward(run, SF_MODULE_MTP_ENORM, layer, run->scratch.branch_b, run->scratch.branch_a, mtp->words);
  if (is_trained(run, words)) {
    const uint8_t call = (uint8_t)(SF_CALL_MTP_EMBEDDING + SF_CALLS_PER_DEPTH * depth);
    scatter_rows(run, words, call, run->scratch.branch_b, mtp->token);
    finish_wgrad(run, words, call);
  }
  take_half(run, run->scratch.branch_a, run->hidden);
  norm_backward(run, SF_MODULE_MTP_HNORM, layer, run->scratch.branch_b, run->scratch.branch_a, mtp_input(run, depth));
}

/* x_grad, the gradient from the prediction, becomes that of both uses of the head's input; module: which put it out. */
static inline void add_use(struct run *run, enum sf_module_class cls, int32_t layer, real *restrict x_grad, const real *restrict other) {
  for (int64_t i = 0; i < run->tokens * run->hidden; i++) x_grad[i] += other[i];
  store(run, act_id(run, cls, layer, SF_KIND_ACT_GRAD), 1, x_grad, run->tokens * run->hidden, run->format);
}

#endif
