/* Template: the two ends of the model: embeddings and loss. */
#ifndef SF_ORACLES_REFERENCE_ENDS_H
#define SF_ORACLES_REFERENCE_ENDS_H

#include "oracles/reference/reference_products.h"

/* weight of each token's loss: mask / divisor, times `share` of what the main loss weighs. */
static inline void weigh(const struct run *run, real *weight, double share, double divisor) {
  for (int64_t t = 0; t < run->tokens; t++) weight[t] = divisor > 0 ? (real)((double)run->acts.mask[t] * share / divisor) : 0;
}

/* Of the microbatch at hand, by its mask. */
static inline double kept_tokens(const struct run *run) {
  double kept = 0;
  for (int64_t t = 0; t < run->tokens; t++) kept += (double)run->acts.mask[t];
  return kept;
}

/* The depth whose labels or mask a depth has; another one where a mistake is supposed. */
static inline int64_t depth_seen(const struct run *run, enum sf_data_part part, int64_t depth) {
  const struct sf_supposed *supposed = run->options->supposed;
  return supposed != NULL && supposed->has_depth && supposed->parts >> part & 1 ? supposed->depth : depth;
}

/* depth -1: of the main loss. */
static inline void load_ahead(struct run *run, int32_t *labels, float *mask, struct moment of, int64_t depth) {
  if (depth < 0)
    sf_data_microbatch(NULL, labels, mask, run->c, of.step, of.microbatch);
  else
    sf_data_ahead(NULL, labels, mask, run->c, of.step, of.microbatch, depth);
}

/* The losses of a depth weigh together what the main loss's do, times the weight of multi-token prediction shared among the depths. */
static inline void ahead_load(struct run *run, int64_t depth) {
  const struct sf_train *train = &run->c->train;
  struct mtp *mtp = &run->acts.mtp[depth];
  const double share = (double)train->mtp_weight_milli / (1000.0 * (double)run->c->model.mtp_depth);
  const struct moment of_tokens = moment_of(run, SF_DATA_TOKENS), of_labels = moment_of(run, SF_DATA_LABELS),
                      of_mask = moment_of(run, SF_DATA_MASK);
  sf_data_ahead(mtp->token, NULL, NULL, run->c, of_tokens.step, of_tokens.microbatch, depth);
  load_ahead(run, mtp->head.label, NULL, of_labels, depth_seen(run, SF_DATA_LABELS, depth));
  load_ahead(run, NULL, run->acts.mask, of_mask, depth_seen(run, SF_DATA_MASK, depth));
  if (train->loss_norm == SF_LOSS_PER_MICROBATCH)
    weigh(run, mtp->head.weight, share, kept_tokens(run) * (double)train->microbatches);
  else
    weigh(run, mtp->head.weight, share * (double)sf_data_step_tokens(run->c, run->step),
          (double)sf_data_step_tokens_ahead(run->c, run->step, depth));
}

/* First positions of the microbatch's documents. */
static inline void documents_load(struct run *run) {
  const struct moment of = moment_of(run, SF_DATA_DOCUMENTS);
  const struct sf_supposed *supposed = run->options->supposed;
  const int64_t seq = run->c->model.seq;
  sf_data_documents(run->acts.documents, run->c, of.step, of.microbatch);
  if (supposed == NULL || !supposed->of_first_sequence) return;
  for (int64_t sequence = 1; sequence < run->c->train.microbatch_size; sequence++)
    memcpy(run->acts.documents + sequence * seq, run->acts.documents, (size_t)seq * sizeof *run->acts.documents);
}

/* Tokens, labels and loss weights of the microbatch. */
static inline void data_load(struct run *run) {
  const struct sf_train *train = &run->c->train;
  const struct moment of_tokens = moment_of(run, SF_DATA_TOKENS), of_labels = moment_of(run, SF_DATA_LABELS),
                      of_mask = moment_of(run, SF_DATA_MASK);
  sf_data_microbatch(run->acts.token, NULL, NULL, run->c, of_tokens.step, of_tokens.microbatch);
  sf_data_microbatch(NULL, run->acts.head.label, NULL, run->c, of_labels.step, of_labels.microbatch);
  sf_data_microbatch(NULL, NULL, run->acts.mask, run->c, of_mask.step, of_mask.microbatch);
  order_data(run, SF_DATA_TOKENS, run->acts.token, 4);
  order_data(run, SF_DATA_LABELS, run->acts.head.label, 4);
  order_data(run, SF_DATA_MASK, run->acts.mask, 4);
  if (run->acts.documents != NULL) documents_load(run);
  weigh(run, run->acts.head.weight, 1, train->loss_norm == SF_LOSS_PER_MICROBATCH ? kept_tokens(run) * (double)train->microbatches : 1);
  for (int64_t depth = 0; depth < run->c->model.mtp_depth; depth++) ahead_load(run, depth);
}

/* out [tokens x hidden]: the word embedding's rows of these tokens. */
static inline void look_up(struct run *run, enum sf_module_class cls, int32_t layer, real *restrict out, const int32_t *token) {
  const int64_t h = run->hidden;
  const real *table = run->params[sf_catalog_param(run->catalog, SF_MODULE_WORD_EMBEDDINGS, -1, 0)].weight;
  for (int64_t t = 0; t < run->tokens; t++)
    for (int64_t j = 0; j < h; j++) out[t * h + j] = table[token[t] * h + j];
  finish_act(run, cls, layer, out, h);
}

/* Returns the residual stream's start. */
static inline const real *embedding_forward(struct run *run) {
  const int64_t h = run->hidden;
  look_up(run, SF_MODULE_WORD_EMBEDDINGS, -1, run->acts.words, run->acts.token);
  if (run->c->model.positions != SF_POS_LEARNED) return run->acts.words;
  const real *positions = run->params[sf_catalog_param(run->catalog, SF_MODULE_EMBEDDING, -1, 0)].weight;
  for (int64_t t = 0; t < run->tokens; t++) {
    const real *restrict position = positions + position_of(run, t) * h, *restrict word = run->acts.words + t * h;
    real *restrict out = run->acts.embedded + t * h;
    for (int64_t j = 0; j < h; j++) out[j] = word[j] + position[j];
  }
  finish_act(run, SF_MODULE_EMBEDDING, -1, run->acts.embedded, h);
  return run->acts.embedded;
}

/* run->scratch.wgrad, of the table `param`: the sums of the gradients of the tokens that its rows went to. E5 changes the order, or
 * takes it in parts. */
static inline void scatter_rows(struct run *run, int32_t param, uint8_t call, const real *grad, const int32_t *row_of_token) {
  const int64_t h = run->hidden;
  if (leaves_out_wgrad(run, param, call)) return;
  zero_wgrad(run, param);
  const struct sf_split split = next_split(&run->noise, run->tokens, SF_F32);
  const int64_t count = param_count(run, param);
  for (int32_t p = 0; p < split.count; p++) {
    real *sum = p == 0 ? run->scratch.wgrad : run->noise.part;
    if (p > 0) memset(sum, 0, (size_t)count * sizeof *sum);
    for (int64_t i = split.cut[p]; i < split.cut[p + 1]; i++) {
      const int64_t t = split.order != NULL ? split.order[i] : i;
      real *restrict row = sum + (row_of_token != NULL ? row_of_token[t] : position_of(run, t)) * h;
      const real *restrict g = grad + t * h;
      for (int64_t j = 0; j < h; j++) row[j] += g[j];
    }
    for (int64_t k = 0; p > 0 && k < count; k++) run->scratch.wgrad[k] += sum[k];
  }
}

/* The tables' gradients from run->scratch.stream, the gradient of the first layer's input. */
static inline void embedding_backward(struct run *run) {
  const int32_t words = sf_catalog_param(run->catalog, SF_MODULE_WORD_EMBEDDINGS, -1, 0);
  const int32_t positions = sf_catalog_param(run->catalog, SF_MODULE_EMBEDDING, -1, 0);
  if (is_trained(run, positions)) {
    scatter_rows(run, positions, 0, run->scratch.stream, NULL);
    finish_wgrad(run, positions, 0);
  }
  if (is_trained(run, words)) {
    scatter_rows(run, words, 0, run->scratch.stream, run->acts.token);
    finish_wgrad(run, words, 0);
  }
}

/* exps = exp(row t - max), returns their sum; *top = max. */
static inline real exp_row(struct inner inner, int64_t t, real *restrict exps, const real *restrict row, int64_t count, real *top) {
  const real max = row_max(row, count);
  for (int64_t j = 0; j < count; j++) exps[j] = real_exp(row[j] - max);
  inner_perturb(inner, t * count, exps, count);
  *top = max;
  return row_sum(exps, count);
}

/* The target distribution: every column has `other`, the label has `label` more. 0 and 1 without label smoothing. */
struct label_shares {
  bool smoothed;
  real label, other;
};

/* Every word has the share `other`, the label `label` beside it: 1 - smoothing in all. */
static inline struct label_shares label_shares(const struct run *run) {
  const struct sf_model *model = &run->c->model;
  const double columns = (double)(has_slip(run, SF_SLIP_SMOOTHING_UNPADDED) ? model->vocab : model->vocab_padded),
               smoothing = (double)run->c->train.label_smoothing_milli / 1000;
  const double other = smoothing / (has_slip(run, SF_SLIP_SMOOTHING_ALL) ? columns : columns - 1);
  return (struct label_shares){.smoothed = smoothing > 0, .label = (real)(1 - other * columns), .other = (real)other};
}

/* Whether a supposed mistake hides column j from the set that the losses are computed by. */
static inline bool is_hidden(const struct run *run, enum sf_within what, int64_t j) {
  return sets_within(run, what) > 1 && run->options->supposed->set_of[j] != run->options->supposed->set;
}

/* How far the label's logit lies below the largest one. */
static inline real labels_distance(const struct run *run, real top, const real *row, int32_t label) {
  return is_hidden(run, SF_WITHIN_LABEL, label) ? 0 : top - row[label];
}

/* label (top - row[label]) + other sum(top - row), token t; terms: room for a row. */
static inline real smoothed_distance(const struct run *run, struct inner inner, int64_t t, const struct label_shares *shares,
                                     real *restrict terms, const real *restrict row, int64_t count, real top, int32_t label) {
  const int64_t first = t * (count + 2);
  for (int64_t j = 0; j < count; j++) terms[j] = top - row[j];
  for (int64_t j = 0; sets_within(run, SF_WITHIN_SMOOTHED) > 1 && j < count; j++)
    if (is_hidden(run, SF_WITHIN_SMOOTHED, j)) terms[j] = 0;
  inner_perturb(inner, first, terms, count);
  const real others = inner_number(inner, first + count, shares->other * row_sum(terms, count));
  return inner_number(inner, first + count + 1, shares->label * labels_distance(run, top, row, label)) + others;
}

/* The sum of a row's terms; where a mistake is supposed, of one set of columns. */
static inline real column_sum(const struct run *run, const real *restrict terms, int64_t count, int32_t set) {
  real sum = 0;
  if (sets_within(run, SF_WITHIN_EXPS) == 1) return row_sum(terms, count);
  for (int64_t j = 0; j < count; j++)
    if (run->options->supposed->set_of[j] == set) sum += terms[j];
  return sum;
}

/* In place: exponentials become shares of their sum; where a mistake is supposed, of that of their set of columns. */
static inline void divide_by_sum(const struct run *run, real *restrict exps, int64_t count, real sum) {
  const int32_t sets = sets_within(run, SF_WITHIN_EXPS);
  for (int32_t set = 0; set < sets; set++) {
    const real divisor = sets > 1 ? column_sum(run, exps, count, set) : sum;
    for (int64_t j = 0; j < count; j++)
      if (sets == 1 || run->options->supposed->set_of[j] == set) exps[j] /= divisor;
  }
}

/* Where a mistake is supposed, takes from each logit the largest one of its set of columns, and not that of the row. */
static inline void shift_by_own_tops(const struct run *run, real *logits, int64_t width) {
  const int32_t sets = sets_within(run, SF_WITHIN_MAX);
  for (int32_t set = 0; sets > 1 && set < sets; set++)
    for (int64_t t = 0; t < run->tokens; t++) {
      real *row = logits + t * width, top = -(real)INFINITY;
      for (int64_t j = 0; j < width; j++)
        if (run->options->supposed->set_of[j] == set && row[j] > top) top = row[j];
      for (int64_t j = 0; j < width; j++)
        if (run->options->supposed->set_of[j] == set) row[j] -= top;
    }
}

/* Per-token loss, and the main one's weighted sum added to the step's. */
static inline void loss_forward(struct run *run, const struct head *head) {
  const int64_t width = run->c->model.vocab_padded;
  const struct sf_trace_id id = act_id(run, head->loss, head->layer, SF_KIND_ACT);
  const struct inner exps = inner_of(run, id, 0), logs = inner_of(run, id, 1), distances = inner_of(run, id, 2);
  const struct label_shares shares = label_shares(run);
  shift_by_own_tops(run, head->logits, width);
  for (int64_t t = 0; t < run->tokens; t++) {
    const real *row = head->logits + t * width;
    real top;
    real sum = exp_row(exps, t, run->scratch.wide_a, row, width, &top);
    if (sets_within(run, SF_WITHIN_EXPS) > 1) sum = column_sum(run, run->scratch.wide_a, width, run->options->supposed->set);
    real distance = labels_distance(run, top, row, head->label[t]);
    if (shares.smoothed) distance = smoothed_distance(run, distances, t, &shares, run->scratch.wide_a, row, width, top, head->label[t]);
    head->losses[t] = inner_number(logs, t, real_log(sum)) + distance;
  }
  finish(run, id, head->losses, 1, run->tokens, SF_F32);
  if (head->layer >= 0) return;
  for (int64_t t = 0; t < run->tokens; t++) run->state.loss_sum += (double)head->weight[t] * (double)head->losses[t];
}

/* logits_grad [tokens x vocab_padded] = weight (softmax - target). */
static inline void loss_backward(struct run *run, const struct head *head, real *logits_grad) {
  const int64_t width = run->c->model.vocab_padded;
  const struct sf_trace_id id = act_id(run, head->loss, head->layer, SF_KIND_ACT_GRAD);
  const struct inner exps = inner_of(run, id, 0), probs = inner_of(run, id, 1);
  const struct label_shares shares = label_shares(run);
  for (int64_t t = 0; t < run->tokens; t++) {
    real *row = logits_grad + t * width;
    real top;
    const real sum = exp_row(exps, t, row, head->logits + t * width, width, &top);
    divide_by_sum(run, row, width, sum);
    inner_perturb(probs, t * width, row, width); /* rounded before 1 is taken away */
    row[head->label[t]] -= shares.label;
    for (int64_t j = 0; shares.smoothed && j < width; j++) row[j] -= shares.other;
    const real weight = head->weight[t] * (real)run->state.loss_scale;
    for (int64_t j = 0; j < width; j++) row[j] *= weight;
  }
  finish_act_grad(run, head->loss, head->layer, logits_grad, width);
}

#endif
