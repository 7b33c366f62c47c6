/* A pipeline stage of the model: embedding on the first, a run of decoder layers, final norm, head and loss on the last (Megatron-LM:
 * core/models/gpt/gpt_model.py, core/transformer/transformer_block.py). */
#ifndef SF_TARGETS_MODEL_H
#define SF_TARGETS_MODEL_H

#include "targets/builtin/ends/multi_token_prediction.h"
#include "targets/builtin/ends/vocab_parallel_cross_entropy.h"
#include "targets/builtin/ends/vocab_parallel_embedding.h"
#include "targets/builtin/layer/transformer_layer.h"
#include "targets/builtin/linear/adapter.h"

/* All that a microbatch in flight needs. */
struct sf_microbatch_slot {
  int32_t *tokens, *labels; /* [T] */
  float *mask, *weight;     /* [T]; weight of a token's loss */
  float *grad_weight;       /* [T]; weight times the loss scale; the same memory without scaling */
  struct sf_layer_acts *layers;
  struct sf_head_saved { /* buffers alone */
    float *adapter, *final_input, *final_stats, *head_input;
    struct sf_cross_entropy_acts loss;
  } saved;
  struct sf_mtp_acts *mtp; /* [mtp.count] */
};

struct sf_model_stage {
  int32_t chunk;                    /* of the rank's model chunks */
  int32_t first_layer, layer_count; /* global numbers */
  bool has_embedding, has_head;     /* first, last stage */
  struct sf_transformer_layer *layers;
  struct sf_vocab_parallel_embedding embedding;
  bool has_adapter;
  struct sf_adapter adapter;
  struct sf_norm_layer final_norm;
  struct sf_linear output_layer;
  struct sf_vocab_parallel_cross_entropy cross_entropy;
  struct sf_mtp mtp;                   /* count 0: none */
  int32_t received_act, received_grad; /* modules whose output (gradient) the neighbours send; -1 at the ends */
  int32_t slot_count;
  struct sf_microbatch_slot *slots; /* of the microbatches in flight, reused in turn */
  double loss_sum, token_sum;       /* of this rank's microbatches of the step; the head only */
};

/* Makes the layers of this rank's stage `chunk` (0 unless stages are interleaved) and their parameters known to run->params. slot_count:
 * the most microbatches in flight. */
void sf_model_stage_create(struct sf_model_stage *model, struct sf_rank_run *run, int32_t chunk, int32_t slot_count);

/* Forward of this rank's microbatch `local` (its global number is local * dp + dp index). x: received from the stage before [tokens_local x
 * h], taken; NULL on the first. Returns what the next stage needs, the caller's; NULL on the last. */
float *sf_model_stage_forward(struct sf_rank_run *run, struct sf_model_stage *model, int64_t local, float *x);

/* Backward of the same. grad: received from the next stage, taken; NULL on the last. Returns what the stage before needs, the caller's;
 * NULL on the first. */
float *sf_model_stage_backward(struct sf_rank_run *run, struct sf_model_stage *model, int64_t local, float *grad);

#endif
