/* Word embedding cut over the vocabulary, and learned positions (Megatron-LM: core/tensor_parallel/layers.py VocabParallelEmbedding,
 * core/models/common/embeddings/language_model_embedding.py). */
#ifndef SF_TARGETS_VOCAB_PARALLEL_EMBEDDING_H
#define SF_TARGETS_VOCAB_PARALLEL_EMBEDDING_H

#include "targets/builtin/parallel/rank_run.h"

struct sf_plugged;

struct sf_vocab_parallel_embedding {
  struct sf_parameter *word;     /* [V/tp x h] */
  struct sf_parameter *position; /* [seq x h], replicated; NULL unless positions are learned */
  struct sf_group tp;
  int64_t vocab_first, vocab_count; /* rows of the vocabulary held */
  struct sf_plugged *plugged;       /* words; NULL: looked up here */
  struct sf_shard_map map_ids;      /* [T x 1] */
  int32_t module_word, module_sum;
  int call;              /* of the word embedding's gradient */
  int32_t *position_ids; /* of this rank's tokens */
};

/* The word embedding of this rank, where the tied output layer or multi-token prediction uses it too: rows [index V/tp, +V/tp). Both ends
 * of the pipeline make it this way. */
struct sf_parameter *sf_word_embedding_create(struct sf_rank_run *run, const struct sf_group *tp);

/* The rank holds rows of vocab_padded / tp words. */
void sf_vocab_parallel_embedding_create(struct sf_vocab_parallel_embedding *embedding, struct sf_rank_run *run, const struct sf_group *tp);

/* Looks up words alone, in another layer's table: module and call are those of its traces. */
void sf_vocab_parallel_embedding_share(struct sf_vocab_parallel_embedding *embedding, const struct sf_rank_run *run,
                                       struct sf_parameter *word, int32_t module, int call, const struct sf_group *tp);

/* Computes round(W[token] + P[position]) of this rank's tokens. tokens: all T of them. Each rank looks up what lies in its shard, zeros
 * elsewhere, and the shards are summed over tp (exact: one summand is not zero), with sp by a reduce-scatter along the sequence. Returns
 * [tokens_local x h], the caller's. */
float *sf_vocab_parallel_embedding_forward(struct sf_rank_run *run, const struct sf_vocab_parallel_embedding *embedding,
                                           const int32_t *tokens);

/* Gradients of both tables from the gradient of the output, [tokens_local x h], borrowed. */
void sf_vocab_parallel_embedding_backward(struct sf_rank_run *run, const struct sf_vocab_parallel_embedding *embedding, const float *grad,
                                          const int32_t *tokens);

#endif
