#include "targets/builtin/attention/block_attention.h"

#include "targets/builtin/parallel/matrix.h"

#include <math.h>

int64_t sf_block_attention_heads(const struct sf_block_attention *a) { return a->batch * a->groups * a->queries; }

struct sf_key_block sf_key_block_at(const struct sf_dim_map *positions, const float *data, float *grad, int64_t row_stride,
                                    int64_t group_stride) {
  return (struct sf_key_block){.positions = *positions, .data = data, .grad = grad, .row_stride = row_stride, .group_stride = group_stride};
}

/* The offsets of one query head of one sequence. */
struct head {
  int64_t scores, stats;  /* in the scores of all heads, in max and sum */
  int64_t query, context; /* in the fused projection, in the context */
  int64_t ld, context_ld; /* from one position to the next */
  int64_t sequence, group;
};

static struct head head_at(const struct sf_block_attention *a, int64_t number) {
  const int64_t heads = a->groups * a->queries, sequence = number / heads, head = number % heads;
  return (struct head){.scores = number * a->rows * a->seq,
                       .stats = number * a->rows,
                       .query = sequence * a->width + (head / a->queries * (a->queries + 2) + head % a->queries) * a->head_dim,
                       .context = (sequence * heads + head) * a->head_dim,
                       .ld = a->batch * a->width,
                       .context_ld = a->batch * heads * a->head_dim,
                       .sequence = sequence,
                       .group = head / a->queries};
}

/* Run `index` of a block for one head: keys [len x d], and the columns of the scores that they have. */
struct key_run {
  const float *data;
  float *grad;
  int64_t ld, len, column;
};

static struct key_run key_run_at(const struct sf_block_attention *a, const struct sf_key_block *block, const struct head *head,
                                 int32_t index) {
  int64_t before = 0;
  for (int32_t i = 0; i < index; i++) before += block->positions.runs[i].len;
  const struct sf_run run = block->positions.runs[index];
  const int64_t offset = (before * a->batch + head->sequence) * block->row_stride + head->group * block->group_stride;
  return (struct key_run){.data = block->data + offset,
                          .grad = block->grad != NULL ? block->grad + offset : NULL,
                          .ld = a->batch * block->row_stride,
                          .len = run.len,
                          .column = run.start};
}

void sf_block_attention_begin(const struct sf_block_attention *a, float *max, float *sum) {
  for (int64_t number = 0; number < sf_block_attention_heads(a); number++) {
    const float logit = a->sinks != NULL ? a->sinks[number % (a->groups * a->queries)] : -INFINITY;
    for (int64_t i = 0; i < a->rows; i++) *max++ = logit, *sum++ = a->sinks != NULL ? 1.0f : 0.0f;
  }
}

/* Query i of a run of positions sees the keys of its document up to its own position. */
static struct sf_block block_of(const struct sf_block_attention *a, int64_t sequence, const struct sf_run *queries, int64_t column,
                                int64_t cols) {
  struct sf_block block = {
      .rows = queries->len, .cols = cols, .visible = queries->start + 1 - column, .window = a->window, .column = column};
  if (a->documents != NULL) block.begins = a->documents + sequence * a->seq + queries->start;
  return block;
}

static void stats_of_run(struct sf_device *dev, const struct sf_block_attention *a, int64_t sequence, const float *scores, float *max,
                         float *sum, const struct key_run *keys) {
  int64_t row = 0;
  for (int32_t i = 0; i < a->positions.count; i++) {
    const struct sf_block block = block_of(a, sequence, &a->positions.runs[i], keys->column, keys->len);
    dev->ops->block_softmax_stats(dev, max + row, sum + row, scores + row * a->seq + keys->column, a->seq, &block);
    row += block.rows;
  }
}

void sf_block_attention_scores(struct sf_rank_run *run, const struct sf_block_attention *a, float *scores, float *max, float *sum,
                               const float *qkv, const struct sf_key_block *keys) {
  struct sf_device *dev = run->env->device;
  for (int64_t number = 0; number < sf_block_attention_heads(a); number++) {
    const struct head head = head_at(a, number);
    for (int32_t i = 0; i < keys->positions.count; i++) {
      const struct key_run k = key_run_at(a, keys, &head, i);
      sf_multiply(dev, scores + head.scores + k.column, a->seq, sf_matrix(qkv + head.query, head.ld, a->rows, a->head_dim),
                  sf_transposed(k.data, k.ld, k.len, a->head_dim), 1.0f / sqrtf((float)a->head_dim), SF_F32);
      stats_of_run(dev, a, head.sequence, scores + head.scores, max + head.stats, sum + head.stats, &k);
    }
  }
}

void sf_block_attention_sink_probs(struct sf_rank_run *run, const struct sf_block_attention *a, float *sink_probs, const float *max,
                                   const float *sum) {
  struct sf_device *dev = run->env->device;
  for (int64_t number = 0; number < sf_block_attention_heads(a); number++) {
    const int64_t at = number * a->rows;
    const struct sf_sink sink = {.logit = a->sinks[number % (a->groups * a->queries)], .probs = sink_probs + at};
    dev->ops->block_softmax_sink(dev, &sink, max + at, sum + at, a->rows);
  }
}

static void probs_of_run(struct sf_rank_run *run, const struct sf_block_attention *a, int64_t sequence, float *probs, const float *max,
                         const float *sum, const struct key_run *keys) {
  struct sf_device *dev = run->env->device;
  int64_t row = 0;
  for (int32_t i = 0; i < a->positions.count; i++) {
    const struct sf_block block = block_of(a, sequence, &a->positions.runs[i], keys->column, keys->len);
    dev->ops->block_softmax_probs(dev, probs + row * a->seq + keys->column, a->seq, max + row, sum + row, &block, run->dtype);
    row += block.rows;
  }
}

void sf_block_attention_context(struct sf_rank_run *run, const struct sf_block_attention *a, float *context, float *probs, const float *max,
                                const float *sum, const struct sf_key_block *values, bool first) {
  struct sf_device *dev = run->env->device;
  for (int64_t number = 0; number < sf_block_attention_heads(a); number++) {
    const struct head head = head_at(a, number);
    for (int32_t i = 0; i < values->positions.count; i++) {
      const struct key_run v = key_run_at(a, values, &head, i);
      probs_of_run(run, a, head.sequence, probs + head.scores, max + head.stats, sum + head.stats, &v);
      sf_multiply_into(dev, context + head.context, head.context_ld, sf_matrix(probs + head.scores + v.column, a->seq, a->rows, v.len),
                       sf_matrix(v.data, v.ld, v.len, a->head_dim), 1.0f, !first || i > 0, SF_F32);
    }
  }
}

void sf_block_attention_score_grads(struct sf_rank_run *run, const struct sf_block_attention *a, float *dp, const float *probs,
                                    const float *g, const struct sf_key_block *values) {
  struct sf_device *dev = run->env->device;
  for (int64_t number = 0; number < sf_block_attention_heads(a); number++) {
    const struct head head = head_at(a, number);
    for (int32_t i = 0; i < values->positions.count; i++) {
      const struct key_run v = key_run_at(a, values, &head, i);
      sf_multiply(dev, dp + head.scores + v.column, a->seq, sf_matrix(g + head.context, head.context_ld, a->rows, a->head_dim),
                  sf_transposed(v.data, v.ld, v.len, a->head_dim), 1.0f, SF_F32);
      sf_multiply_into(dev, v.grad, v.ld, sf_transposed(probs + head.scores + v.column, a->seq, a->rows, v.len),
                       sf_matrix(g + head.context, head.context_ld, a->rows, a->head_dim), 1.0f, true, SF_F32);
    }
  }
}

void sf_block_attention_softmax_grads(struct sf_rank_run *run, const struct sf_block_attention *a, float *ds, const float *probs,
                                      float *sink_grads, float *sink_probs) {
  struct sf_device *dev = run->env->device;
  for (int64_t number = 0; number < sf_block_attention_heads(a); number++) {
    const struct head head = head_at(a, number);
    int64_t row = 0;
    for (int32_t i = 0; i < a->positions.count; i++) {
      const struct sf_run *queries = &a->positions.runs[i];
      const struct sf_block block = block_of(a, head.sequence, queries, 0, a->seq);
      struct sf_sink sink = {0};
      if (a->sinks != NULL)
        sink = (struct sf_sink){.probs = sink_probs + head.stats + row, .grad = sink_grads + number % (a->groups * a->queries)};
      const int64_t at = head.scores + row * a->seq;
      dev->ops->block_softmax_bwd(dev, ds + at, probs + at, &block, a->sinks != NULL ? &sink : NULL, run->dtype);
      row += queries->len;
    }
  }
}

void sf_block_attention_query_grads(struct sf_rank_run *run, const struct sf_block_attention *a, float *dqkv, const float *ds,
                                    const float *qkv, const struct sf_key_block *keys, bool first) {
  struct sf_device *dev = run->env->device;
  const float scale = 1.0f / sqrtf((float)a->head_dim);
  for (int64_t number = 0; number < sf_block_attention_heads(a); number++) {
    const struct head head = head_at(a, number);
    for (int32_t i = 0; i < keys->positions.count; i++) {
      const struct key_run k = key_run_at(a, keys, &head, i);
      sf_multiply_into(dev, dqkv + head.query, head.ld, sf_matrix(ds + head.scores + k.column, a->seq, a->rows, k.len),
                       sf_matrix(k.data, k.ld, k.len, a->head_dim), scale, !first || i > 0, SF_F32);
      sf_multiply_into(dev, k.grad, k.ld, sf_transposed(ds + head.scores + k.column, a->seq, a->rows, k.len),
                       sf_matrix(qkv + head.query, head.ld, a->rows, a->head_dim), scale, true, SF_F32);
    }
  }
}
