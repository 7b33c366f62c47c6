/* Multi-token prediction on the last stage (Megatron-LM: core/transformer/multi_token_prediction.py; DeepSeek-V3, arXiv 2412.19437, section
 * 2.2). Depth k takes the norm of what the depth before (or the decoder's final norm) put out and the norm of the embedding of the token k
 * + 1 further on, side by side, through eh_proj, a transformer layer and a norm to the output layer, which all predictions share. */
#ifndef SF_TARGETS_MULTI_TOKEN_PREDICTION_H
#define SF_TARGETS_MULTI_TOKEN_PREDICTION_H

#include "targets/builtin/ends/vocab_parallel_cross_entropy.h"
#include "targets/builtin/ends/vocab_parallel_embedding.h"
#include "targets/builtin/layer/transformer_layer.h"

struct sf_mtp_depth {
  struct sf_vocab_parallel_embedding embedding;
  struct sf_norm_layer enorm, hnorm, final_norm;
  struct sf_linear eh_proj; /* [h x 2h] */
  struct sf_transformer_layer layer;
  struct sf_linear output_layer;
  struct sf_vocab_parallel_cross_entropy cross_entropy;
};

struct sf_mtp {
  int32_t count; /* depths; 0: none */
  struct sf_group tp;
  struct sf_mtp_depth *depths; /* [count] */
  double ratio[2]; /* of the step: kept tokens of the main loss to those of the depth, over all ranks */
  uint16_t step;   /* of which the ratios are */
  bool counted;
};

/* What one microbatch leaves for its backward, at one depth. */
struct sf_mtp_acts {
  int32_t *tokens, *labels;    /* [T] */
  float *weight, *grad_weight; /* [T] */
  struct sf_layer_acts layer;
  struct sf_mtp_saved {                                  /* buffers alone */
    float *input, *embedded, *enorm_stats, *hnorm_stats; /* input: what the depth before put out, normed */
    float *pair;                                         /* [T x 2h], what eh_proj reads; of a plugin this rank's rows */
    float *final_input, *final_stats, *head_input;
    struct sf_cross_entropy_acts loss;
  } saved;
};

/* word, head: the word embedding's and the output layer's weight on this stage (the same when tied); cos_sin as for the decoder's layers.
 */
void sf_mtp_create(struct sf_mtp *mtp, struct sf_rank_run *run, struct sf_parameter *word, struct sf_parameter *head, const float *cos_sin);
/* Allocates what forward fills anew for every microbatch; it lives as long as the trial. */
void sf_mtp_acts_create(struct sf_mtp_acts *acts, struct sf_rank_run *run);

/* hidden [tokens_local x h]: the final norm's output, taken. */
void sf_mtp_forward(struct sf_rank_run *run, struct sf_mtp *mtp, struct sf_mtp_acts *acts, float *hidden);
/* Returns the gradient of hidden from these predictions, the caller's; in the stream's format. */
float *sf_mtp_backward(struct sf_rank_run *run, struct sf_mtp *mtp, struct sf_mtp_acts *acts);

#endif
