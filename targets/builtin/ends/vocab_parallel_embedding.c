#include "targets/builtin/ends/vocab_parallel_embedding.h"

#include "targets/builtin/parallel/documents.h"
#include "targets/builtin/parallel/fault.h"
#include "targets/builtin/parallel/mappings.h"
#include "targets/plugin/plugged_layer.h"

struct sf_parameter *sf_word_embedding_create(struct sf_rank_run *run, const struct sf_group *tp) {
  const struct sf_model *m = &run->c->model;
  const struct sf_parameter_cut cut = {sf_dim_map_part(m->vocab_padded, tp->size, tp->index), sf_dim_map_whole(m->hidden)};
  struct sf_parameter *param = sf_parameter_create(run, SF_MODULE_WORD_EMBEDDINGS, -1, 0, &cut);
  param->shared_embedding = (m->tied || m->mtp_depth > 0) && run->parallel.pp.size > 1;
  return param;
}

/* Fills in positions within the document. documents: NULL, or as sf_documents. */
static void fill_position_ids(const struct sf_rank_run *run, int32_t *next, const int32_t *documents) {
  const struct sf_dim_map *rows = &run->map_hidden.rows;
  const int64_t batch = run->c->train.microbatch_size;
  for (int32_t i = 0; i < rows->count; i++)
    for (int64_t row = rows->runs[i].start; row < rows->runs[i].start + rows->runs[i].len; row++) {
      const int64_t position = row / batch;
      *next++ = (int32_t)position - (documents != NULL ? documents[row % batch * run->c->model.seq + position] : 0);
    }
}

static void plug(struct sf_vocab_parallel_embedding *embedding, struct sf_rank_run *run) {
  struct sf_plugged *plugged = embedding->plugged = sf_plugged_create(run, SF_MODULE_WORD_EMBEDDINGS, -1, false);
  if (plugged == NULL) return;
  embedding->map_ids = (struct sf_shard_map){.rows = run->map_gathered.rows, .cols = sf_dim_map_whole(1)};
  plugged->is_ids = true;
  plugged->in_map = &embedding->map_ids;
  plugged->out_map = &run->map_hidden;
  plugged->out_dtype = run->stream_dtype;
  sf_plugged_add_parameter(plugged, "weight", embedding->word, embedding->call);
}

void sf_vocab_parallel_embedding_share(struct sf_vocab_parallel_embedding *embedding, const struct sf_rank_run *run,
                                       struct sf_parameter *word, int32_t module, int call, const struct sf_group *tp) {
  const int64_t count = run->c->model.vocab_padded / tp->size;
  *embedding = (struct sf_vocab_parallel_embedding){
      .word = word, .tp = *tp, .vocab_first = count * tp->index, .vocab_count = count, .module_word = module, .call = call};
}

void sf_vocab_parallel_embedding_create(struct sf_vocab_parallel_embedding *embedding, struct sf_rank_run *run, const struct sf_group *tp) {
  const int32_t module = sf_rank_module(run, SF_MODULE_WORD_EMBEDDINGS, -1);
  sf_vocab_parallel_embedding_share(embedding, run, sf_word_embedding_create(run, tp), module, 0, tp);
  plug(embedding, run);
  embedding->position = sf_parameter_create_whole(run, SF_MODULE_EMBEDDING, -1, 0, run->parallel.sp);
  if (embedding->position == NULL) return;
  embedding->module_sum = sf_rank_module(run, SF_MODULE_EMBEDDING, -1);
  embedding->position_ids = sf_rank_alloc(run->env, (size_t)run->tokens_local * sizeof(int32_t));
  fill_position_ids(run, embedding->position_ids, NULL);
}

/* The positions of this rank's rows in the current microbatch. */
static const int32_t *position_ids(struct sf_rank_run *run, const struct sf_vocab_parallel_embedding *embedding) {
  const int32_t *documents = sf_documents(run);
  if (documents != NULL) fill_position_ids(run, embedding->position_ids, documents);
  return embedding->position_ids;
}

/* Rows of the shard that the mask lets through; without tensor parallelism there is no mask. */
static int64_t unmasked_rows(const struct sf_rank_run *run, const struct sf_vocab_parallel_embedding *embedding) {
  const bool off_by_one = sf_fault(run->env, SF_FAULT_TP_EMBED_MASK) && embedding->tp.size > 1;
  return off_by_one ? embedding->vocab_count - 1 : embedding->vocab_count;
}

/* full: [T x h], zeros where another shard holds the row. Taken. */
static float *sum_shards(struct sf_rank_run *run, const struct sf_vocab_parallel_embedding *embedding, float *full) {
  static const struct sf_mapping_reduction calls = {"vocab_parallel_embedding.fwd.all_reduce",
                                                    "vocab_parallel_embedding.fwd.reduce_scatter"};
  const bool sp = run->parallel.sp, is_wrong_part = sp && sf_fault(run->env, SF_FAULT_EMBED_SCATTER_WRONG_TP_GROUP);
  const int64_t local = run->tokens_local * run->hidden;
  if (!is_wrong_part) return sf_mapping_reduce(run, &embedding->tp, sp, full, local, run->stream_dtype, &calls);
  full = sf_mapping_reduce(run, &embedding->tp, false, full, run->tokens * run->hidden, run->stream_dtype, &calls);
  return sf_mapping_split(run, sf_fault_default_tp_index(run->env), full, local);
}

static float *words_forward(struct sf_rank_run *run, const struct sf_vocab_parallel_embedding *embedding, const int32_t *tokens) {
  struct sf_device *dev = run->env->device;
  const int64_t h = run->hidden, rows = unmasked_rows(run, embedding);
  if (embedding->plugged != NULL) return sf_plugged_forward(run, embedding->plugged, tokens);
  float *full = sf_buffers_take(&run->acts, run->tokens * h);
  dev->ops->embedding_fwd(dev, full, embedding->word->model, tokens, run->tokens, h, embedding->vocab_first, rows);
  float *x = sum_shards(run, embedding, full);
  sf_trace_act(run, embedding->module_word, &run->map_hidden, x);
  return x;
}

float *sf_vocab_parallel_embedding_forward(struct sf_rank_run *run, const struct sf_vocab_parallel_embedding *embedding,
                                           const int32_t *tokens) {
  struct sf_device *dev = run->env->device;
  float *x = words_forward(run, embedding, tokens);
  if (embedding->position == NULL) return x;
  const int64_t h = run->hidden, count = run->tokens_local * h;
  float *positions = sf_buffers_take(&run->acts, count);
  dev->ops->embedding_fwd(dev, positions, embedding->position->model, position_ids(run, embedding), run->tokens_local, h, 0,
                          run->c->model.seq);
  dev->ops->add(dev, x, x, positions, count, run->stream_dtype);
  sf_buffers_give(&run->acts, positions);
  sf_trace_act(run, embedding->module_sum, &run->map_hidden, x);
  return x;
}

/* Adds the gradient of the `held` rows of a table from row `first` on. */
static void add_table_grad(struct sf_rank_run *run, struct sf_parameter *table, int call, const float *grad, const int32_t *ids,
                           int64_t count, int64_t first, int64_t held) {
  struct sf_device *dev = run->env->device;
  memset(run->params.scratch, 0, (size_t)table->count * sizeof(float));
  dev->ops->embedding_bwd(dev, run->params.scratch, grad, ids, count, run->hidden, first, held);
  sf_parameter_accumulate(run, table, run->params.scratch, call);
}

void sf_vocab_parallel_embedding_backward(struct sf_rank_run *run, const struct sf_vocab_parallel_embedding *embedding, const float *grad,
                                          const int32_t *tokens) {
  const struct sf_parameter *position = embedding->position;
  if (position != NULL && position->trainable)
    add_table_grad(run, embedding->position, 0, grad, position_ids(run, embedding), run->tokens_local, 0, run->c->model.seq);
  if (embedding->plugged != NULL) {
    sf_plugged_backward(run, embedding->plugged, grad, tokens);
    return;
  }
  if (!embedding->word->trainable) return;
  float *gathered = NULL;
  if (run->parallel.sp)
    gathered = sf_mapping_gather(run, &embedding->tp, grad, run->tokens_local * run->hidden, run->stream_dtype,
                                 "vocab_parallel_embedding.bwd.all_gather");
  add_table_grad(run, embedding->word, embedding->call, gathered != NULL ? gathered : grad, tokens, run->tokens, embedding->vocab_first,
                 unmasked_rows(run, embedding));
  sf_buffers_give(&run->acts, gathered);
}
