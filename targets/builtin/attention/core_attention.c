#include "targets/builtin/attention/core_attention.h"

#include "targets/builtin/attention/block_attention.h"
#include "targets/builtin/parallel/documents.h"
#include "targets/builtin/parallel/fault.h"
#include "targets/builtin/parallel/mappings.h"
#include "targets/builtin/parallel/matrix.h"

struct sf_dim_map sf_context_parallel_positions(int64_t seq, int64_t cp, int64_t index) {
  if (cp == 1) return sf_dim_map_whole(seq);
  const int64_t chunk = seq / (2 * cp);
  struct sf_dim_map positions = {0};
  sf_dim_map_append(&positions, index * chunk, chunk, 0);
  sf_dim_map_append(&positions, (2 * cp - 1 - index) * chunk, chunk, 0);
  return positions;
}

/* Whether each rank gets all positions of 1/cp of the heads. */
static bool trades_heads(const struct sf_rank_run *run) { return run->parallel.cp.size > 1 && run->c->layout.cp_comm == SF_CP_A2A; }

/* The first head that this rank computes, among the heads of its tp rank. */
static int64_t first_head(const struct sf_rank_run *run, const struct sf_block_attention *a) {
  return trades_heads(run) ? run->parallel.cp.index * a->groups * a->queries : 0;
}

/* The part that this rank computes: its own queries of all its heads, or with a2a all queries of 1/cp of them. */
static struct sf_block_attention shape_of(struct sf_rank_run *run, const struct sf_parallel_attention *attention) {
  const bool trades = trades_heads(run);
  struct sf_block_attention a = {.groups = trades ? attention->groups / run->parallel.cp.size : attention->groups,
                                 .queries = attention->queries_per_group,
                                 .head_dim = attention->head_dim,
                                 .batch = run->c->train.microbatch_size,
                                 .seq = run->c->model.seq,
                                 .window = attention->window,
                                 .documents = sf_documents(run),
                                 .documents_apart = run->parallel.cp.size == 1,
                                 .positions = trades ? sf_dim_map_whole(run->c->model.seq) : run->positions};
  a.rows = sf_dim_map_length(&a.positions);
  a.group_width = (a.queries + 2) * a.head_dim;
  if (attention->sinks != NULL) a.sinks = attention->sinks->model + first_head(run, &a);
  return a;
}

/* --- columns of keys and values ----------------------------------------------------------------------------------- */

/* `count` columns of each group of the fused projection, from column `first` of the group on. */
struct group_columns {
  int64_t first, count;
};
static struct group_columns key_columns(const struct sf_block_attention *a) {
  return (struct group_columns){a->queries * a->head_dim, a->head_dim};
}
static struct group_columns value_columns(const struct sf_block_attention *a) {
  return (struct group_columns){(a->queries + 1) * a->head_dim, a->head_dim};
}
static struct group_columns both_columns(const struct sf_block_attention *a) {
  return (struct group_columns){a->queries * a->head_dim, 2 * a->head_dim};
}

static int64_t packed_count(const struct sf_block_attention *a, struct group_columns columns) {
  return a->rows * a->batch * a->groups * columns.count;
}

static void pack(float *out, const struct sf_block_attention *a, const float *qkv, struct group_columns columns) {
  sf_copy_columns(out, columns.count, qkv + columns.first, a->group_width, a->rows * a->batch * a->groups, columns.count);
}

static void unpack(float *qkv, const struct sf_block_attention *a, const float *in, struct group_columns columns) {
  sf_copy_columns(qkv + columns.first, a->group_width, in, columns.count, a->rows * a->batch * a->groups, columns.count);
}

/* --- a2a: heads for sequence ------------------------------------------------------------------------------------- */

void sf_context_parallel_copy_rows(const struct sf_rank_run *run, float *whole, float *piece, int32_t owner, int64_t cols, bool to_whole) {
  const struct sf_dim_map positions = sf_context_parallel_positions(run->c->model.seq, run->parallel.cp.size, owner);
  const int64_t row = run->c->train.microbatch_size * cols;
  for (int32_t i = 0; i < positions.count; i++) {
    float *at = whole + positions.runs[i].start * row;
    const size_t size_bytes = (size_t)(positions.runs[i].len * row) * sizeof *piece;
    if (to_whole)
      memcpy(at, piece, size_bytes);
    else
      memcpy(piece, at, size_bytes);
    piece += positions.runs[i].len * row;
  }
}

/* Own rows of all columns [T/cp x cp cols] <-> all rows of own columns [T x cols]. Takes x. */
static float *trade(struct sf_rank_run *run, const struct sf_parallel_attention *attention, float *x, int64_t cols, bool for_heads,
                    const char *label) {
  const struct sf_group *cp = &run->parallel.cp;
  const int64_t piece = run->tokens * cols, width = cols * cp->size;
  float *send = sf_buffers_take(&run->acts, piece * cp->size), *recv = sf_buffers_take(&run->acts, piece * cp->size);
  int64_t *counts = attention->trade_counts;
  for (int32_t i = 0; i < cp->size; i++) {
    counts[i] = piece;
    if (for_heads)
      sf_copy_columns(send + i * piece, cols, x + i * cols, width, run->tokens, cols);
    else
      sf_context_parallel_copy_rows(run, x, send + i * piece, i, cols, false);
  }
  sf_all_to_all(run->env->comm, cp, recv, counts, send, counts, run->dtype, label);
  for (int32_t i = 0; i < cp->size; i++) {
    if (for_heads)
      sf_context_parallel_copy_rows(run, send, recv + i * piece, i, cols, true);
    else
      sf_copy_columns(send + i * cols, width, recv + i * piece, cols, run->tokens, cols);
  }
  sf_buffers_give(&run->acts, recv);
  sf_buffers_give(&run->acts, x);
  return send;
}

/* --- blocks of keys or values ------------------------------------------------------------------------------------- */

/* Either all blocks lie side by side, or one is here and travels on to the next rank. */
struct blocks {
  int32_t count;
  float *data, *grads;        /* of all blocks, or of the one that is here; grads NULL when none are wanted */
  float *spare, *grads_spare; /* travelling: the block that arrives */
  int64_t elements;           /* of a block */
  int64_t row_stride, group_stride;
  bool travels;
  struct sf_ring_message message, grad_message;
  struct sf_ring ring;
};

static struct sf_dim_map positions_of_block(const struct sf_rank_run *run, const struct blocks *blocks, int32_t step) {
  const struct sf_group *cp = &run->parallel.cp;
  if (blocks->count == 1) return sf_dim_map_whole(run->c->model.seq);
  const int32_t owner = blocks->travels ? (cp->index - step + cp->size) % cp->size : step;
  return sf_context_parallel_positions(run->c->model.seq, cp->size, owner);
}

/* The block of a step, 0 first. A travelling one is on its way to the next rank while it is used. */
static struct sf_key_block block_open(struct sf_rank_run *run, struct blocks *blocks, int32_t step) {
  const struct sf_dim_map positions = positions_of_block(run, blocks, step);
  const int64_t at = blocks->travels ? 0 : step * blocks->elements;
  if (blocks->travels && step < blocks->count - 1)
    sf_ring_start(run, &blocks->ring, &run->parallel.cp, &blocks->message, blocks->data, blocks->spare, blocks->elements);
  return sf_key_block_at(&positions, blocks->data + at, blocks->grads != NULL ? blocks->grads + at : NULL, blocks->row_stride,
                         blocks->group_stride);
}

/* The gradient's sum travels with its block; after the last step it is on the rank that owns the block. */
static void block_close(struct sf_rank_run *run, struct blocks *blocks, int32_t step) {
  if (!blocks->travels) return;
  if (step < blocks->count - 1) sf_ring_finish(run, &blocks->ring, &blocks->data, &blocks->spare);
  if (blocks->grads == NULL) return;
  sf_ring_start(run, &blocks->ring, &run->parallel.cp, &blocks->grad_message, blocks->grads, blocks->grads_spare, blocks->elements);
  sf_ring_finish(run, &blocks->ring, &blocks->grads, &blocks->grads_spare);
}

/* Gradients travel in fp32. */
static struct blocks ring_blocks(struct sf_rank_run *run, const struct sf_block_attention *a, const float *qkv, bool keys,
                                 bool with_grads) {
  const struct group_columns columns = keys ? key_columns(a) : value_columns(a);
  struct blocks blocks = {.count = run->parallel.cp.size,
                          .elements = packed_count(a, columns),
                          .row_stride = a->groups * a->head_dim,
                          .group_stride = a->head_dim,
                          .travels = true,
                          .message = {4, run->dtype, "context_parallel.ring.send_values", "context_parallel.ring.recv_values"},
                          .grad_message = {6, SF_F32, "context_parallel.ring.send_dv", "context_parallel.ring.recv_dv"}};
  if (keys) {
    blocks.message = (struct sf_ring_message){3, run->dtype, "context_parallel.ring.send_keys", "context_parallel.ring.recv_keys"};
    blocks.grad_message = (struct sf_ring_message){5, SF_F32, "context_parallel.ring.send_dk", "context_parallel.ring.recv_dk"};
  }
  blocks.data = sf_buffers_take(&run->acts, blocks.elements);
  blocks.spare = sf_buffers_take(&run->acts, blocks.elements);
  pack(blocks.data, a, qkv, columns);
  if (!with_grads) return blocks;
  blocks.grads = sf_buffers_take_zeros(&run->acts, blocks.elements);
  blocks.grads_spare = sf_buffers_take(&run->acts, blocks.elements);
  return blocks;
}

/* Keys and values of all ranks; both kinds of blocks are views of it. */
static float *gather_keys_and_values(struct sf_rank_run *run, const struct sf_block_attention *a, const float *qkv) {
  const int64_t count = packed_count(a, both_columns(a));
  float *own = sf_buffers_take(&run->acts, count);
  pack(own, a, qkv, both_columns(a));
  float *gathered = sf_mapping_gather(run, &run->parallel.cp, own, count, run->dtype, "context_parallel.all_gather");
  sf_buffers_give(&run->acts, own);
  return gathered;
}

/* The two passes over blocks, of keys and of values, and their memory. */
struct passes {
  struct blocks keys, values;
  float *gathered, *gathered_grads;
};

static struct passes passes_begin(struct sf_rank_run *run, const struct sf_block_attention *a, float *qkv, float *dqkv) {
  const bool backward = dqkv != NULL;
  struct passes passes = {0};
  switch (run->parallel.cp.size == 1 ? SF_CP_A2A : (enum sf_cp_comm)run->c->layout.cp_comm) {
  case SF_CP_RING:
    passes.keys = ring_blocks(run, a, qkv, true, backward);
    passes.values = ring_blocks(run, a, qkv, false, backward);
    return passes;
  case SF_CP_ALLGATHER:
    passes.gathered = gather_keys_and_values(run, a, qkv);
    passes.keys = (struct blocks){.count = run->parallel.cp.size,
                                  .data = passes.gathered,
                                  .elements = packed_count(a, both_columns(a)),
                                  .row_stride = a->groups * 2 * a->head_dim,
                                  .group_stride = 2 * a->head_dim};
    if (backward) passes.keys.grads = passes.gathered_grads = sf_buffers_take_zeros(&run->acts, passes.keys.elements * passes.keys.count);
    break;
  case SF_CP_A2A:
    passes.keys = (struct blocks){.count = 1,
                                  .data = qkv + key_columns(a).first,
                                  .grads = backward ? dqkv + key_columns(a).first : NULL,
                                  .row_stride = a->groups * a->group_width,
                                  .group_stride = a->group_width};
    break;
  }
  passes.values = passes.keys;
  passes.values.data += a->head_dim;
  if (backward) passes.values.grads += a->head_dim;
  return passes;
}

/* Adds the gradients of this rank's keys and values, still in fp32, to dqkv (NULL in the forward) and gives all memory back. */
static void passes_end(struct sf_rank_run *run, const struct sf_block_attention *a, struct passes *passes, float *dqkv) {
  if (passes->gathered_grads != NULL) {
    const int64_t count = passes->keys.elements;
    float *own = sf_buffers_take(&run->acts, count);
    sf_reduce_scatter(run->env->comm, &run->parallel.cp, own, passes->gathered_grads, count, SF_F32, SF_REDUCE_SUM,
                      "context_parallel.bwd.scatter");
    unpack(dqkv, a, own, both_columns(a));
    sf_buffers_give(&run->acts, own);
  }
  if (passes->keys.travels && dqkv != NULL) {
    unpack(dqkv, a, passes->keys.grads, key_columns(a));
    unpack(dqkv, a, passes->values.grads, value_columns(a));
  }
  for (int i = 0; passes->keys.travels && i < 2; i++) {
    const struct blocks *blocks = i == 0 ? &passes->keys : &passes->values;
    float *const buffers[] = {blocks->data, blocks->spare, blocks->grads, blocks->grads_spare};
    for (int k = 0; k < 4; k++) sf_buffers_give(&run->acts, buffers[k]);
  }
  sf_buffers_give(&run->acts, passes->gathered);
  sf_buffers_give(&run->acts, passes->gathered_grads);
}

/* --- forward, backward ------------------------------------------------------------------------------------------- */

void sf_core_attention_forward(struct sf_rank_run *run, const struct sf_parallel_attention *attention, struct sf_attention_acts *acts) {
  const struct sf_block_attention a = shape_of(run, attention);
  const bool trades = trades_heads(run);
  const int64_t heads = sf_block_attention_heads(&a), context_count = heads * a.rows * a.head_dim;
  if (trades) acts->qkv = trade(run, attention, acts->qkv, a.groups * a.group_width, true, "context_parallel.fwd.trade_qkv");
  acts->probs = sf_buffers_take(&run->acts, heads * a.rows * a.seq);
  acts->context = sf_buffers_take(&run->acts, context_count);
  float *max = sf_buffers_take(&run->acts, heads * a.rows), *sum = sf_buffers_take(&run->acts, heads * a.rows);
  sf_block_attention_begin(&a, max, sum);
  struct passes passes = passes_begin(run, &a, acts->qkv, NULL);
  for (int32_t step = 0; step < passes.keys.count; step++) {
    const struct sf_key_block block = block_open(run, &passes.keys, step);
    sf_block_attention_scores(run, &a, acts->probs, max, sum, acts->qkv, &block);
    block_close(run, &passes.keys, step);
  }
  if (a.sinks != NULL) {
    acts->sink_probs = sf_buffers_take(&run->acts, heads * a.rows);
    sf_block_attention_sink_probs(run, &a, acts->sink_probs, max, sum);
  }
  for (int32_t step = 0; step < passes.values.count; step++) {
    const struct sf_key_block block = block_open(run, &passes.values, step);
    sf_block_attention_context(run, &a, acts->context, acts->probs, max, sum, &block, step == 0, step == passes.values.count - 1);
    block_close(run, &passes.values, step);
  }
  passes_end(run, &a, &passes, NULL);
  sf_buffers_give(&run->acts, max);
  sf_buffers_give(&run->acts, sum);
  if (trades)
    acts->context = trade(run, attention, acts->context, a.groups * a.queries * a.head_dim, false, "context_parallel.fwd.trade_back");
}

float *sf_core_attention_backward(struct sf_rank_run *run, const struct sf_parallel_attention *attention,
                                  const struct sf_attention_acts *acts, float *g) {
  struct sf_device *dev = run->env->device;
  const struct sf_block_attention a = shape_of(run, attention);
  const bool trades = trades_heads(run);
  const int64_t count = a.rows * a.batch * a.groups * a.group_width;
  if (trades) g = trade(run, attention, g, a.groups * a.queries * a.head_dim, true, "context_parallel.bwd.trade_grad");
  float *dqkv = sf_buffers_take_zeros(&run->acts, count), *ds = sf_buffers_take(&run->acts, sf_block_attention_heads(&a) * a.rows * a.seq);
  if (sf_fault(run->env, SF_FAULT_CP_ATTN_BWD_WRONG) && run->parallel.cp.size > 1 && run->c->layout.cp_comm == SF_CP_RING)
    sf_fault_normalise_blocks(acts->probs, sf_block_attention_heads(&a) * a.rows, a.seq, run->parallel.cp.size);
  struct passes passes = passes_begin(run, &a, acts->qkv, dqkv);
  for (int32_t step = 0; step < passes.values.count; step++) {
    const struct sf_key_block block = block_open(run, &passes.values, step);
    sf_block_attention_score_grads(run, &a, ds, acts->probs, g, &block);
    block_close(run, &passes.values, step);
  }
  float *ds_of_q = ds;
  if (sf_fault(run->env, SF_FAULT_ATTN_DQ_WRONG)) {
    const int64_t scores = sf_block_attention_heads(&a) * a.rows * a.seq;
    ds_of_q = sf_buffers_take(&run->acts, scores);
    sf_fault_softmax_bwd_no_row_sum(ds_of_q, ds, acts->probs, scores, run->dtype);
  }
  if (a.sinks != NULL) memset(run->params.scratch, 0, (size_t)attention->sinks->count * sizeof(float));
  sf_block_attention_softmax_grads(run, &a, ds, acts->probs, run->params.scratch + first_head(run, &a), acts->sink_probs);
  for (int32_t step = 0; step < passes.keys.count; step++) {
    const struct sf_key_block block = block_open(run, &passes.keys, step);
    sf_block_attention_query_grads(run, &a, dqkv, ds_of_q, ds, acts->qkv, &block, step == 0);
    block_close(run, &passes.keys, step);
  }
  passes_end(run, &a, &passes, dqkv);
  if (ds_of_q != ds) sf_buffers_give(&run->acts, ds_of_q);
  sf_buffers_give(&run->acts, ds);
  sf_buffers_give(&run->acts, g);
  dev->ops->round(dev, dqkv, dqkv, count, run->dtype);
  return trades ? trade(run, attention, dqkv, a.groups * a.group_width, false, "context_parallel.bwd.trade_back") : dqkv;
}
