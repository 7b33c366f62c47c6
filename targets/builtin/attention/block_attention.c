#include "targets/builtin/attention/block_attention.h"

#include "targets/builtin/parallel/documents.h"
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
                       .query = (sequence * a->groups + head / a->queries) * a->group_width + head % a->queries * a->head_dim,
                       .context = (sequence * heads + head) * a->head_dim,
                       .ld = a->batch * a->groups * a->group_width,
                       .context_ld = a->batch * heads * a->head_dim,
                       .sequence = sequence,
                       .group = head / a->queries};
}

/* A run of a block's keys for one head, [len x d], and the columns of the scores that they have. */
struct key_run {
  int32_t index;
  const float *data;
  float *grad;
  int64_t ld, len, column;
  int64_t row, rows;       /* queries that may see them */
  bool continues, is_last; /* whether these queries have seen runs of the block before, and see no more of them */
};

/* Goes on to the next run; begins with {0}. Returns false after the last. */
static bool next_key_run(const struct sf_block_attention *a, const struct sf_key_block *block, const struct head *head,
                         struct key_run *run) {
  const bool by_document = a->documents != NULL && a->documents_apart;
  const int64_t end = run->column + run->len;
  int64_t before = 0;
  if (by_document ? end == a->seq : run->index == block->positions.count) return false;
  if (by_document) {
    *run = (struct key_run){.column = end, .len = sf_documents_span(a->documents + head->sequence * a->seq, end, a->seq - end)};
    before = run->row = end, run->rows = run->len, run->is_last = true;
  } else {
    for (int32_t i = 0; i < run->index; i++) before += block->positions.runs[i].len;
    const struct sf_run keys = block->positions.runs[run->index];
    *run = (struct key_run){.index = run->index + 1, .len = keys.len, .column = keys.start, .rows = a->rows, .continues = run->index > 0};
    run->is_last = run->index == block->positions.count;
  }
  const int64_t offset = (before * a->batch + head->sequence) * block->row_stride + head->group * block->group_stride;
  run->data = block->data + offset;
  run->grad = block->grad != NULL ? block->grad + offset : NULL;
  run->ld = a->batch * block->row_stride;
  return true;
}

/* Matrices of the queries that may see the keys: of their part of the fused projection, of the context, of the scores of the keys. */
static struct sf_matrix queries_of(const struct sf_block_attention *a, const struct head *head, const struct key_run *keys,
                                   const float *qkv) {
  return sf_matrix(qkv + head->query + keys->row * head->ld, head->ld, keys->rows, a->head_dim);
}
static struct sf_matrix contexts_of(const struct sf_block_attention *a, const struct head *head, const struct key_run *keys,
                                    const float *g) {
  return sf_matrix(g + head->context + keys->row * head->context_ld, head->context_ld, keys->rows, a->head_dim);
}
static int64_t scores_at(const struct sf_block_attention *a, const struct head *head, const struct key_run *keys) {
  return head->scores + keys->row * a->seq + keys->column;
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
  struct sf_block block = {.rows = queries->len,
                           .cols = cols,
                           .visible = a->sees_all ? cols : queries->start + 1 - column,
                           .window = a->window,
                           .column = column};
  if (a->documents != NULL) block.begins = a->documents + sequence * a->seq + queries->start;
  return block;
}

/* A run of the queries that may see the keys, and the row of its first one. */
struct query_run {
  int32_t index;
  int64_t row;
  struct sf_run positions;
};

/* Goes on to the next run; begins with {0}. Returns false after the last. */
static bool next_query_run(const struct sf_block_attention *a, const struct key_run *keys, struct query_run *run) {
  const bool all = keys->rows == a->rows;
  if (run->index == (all ? a->positions.count : 1)) return false;
  run->row = run->index == 0 ? keys->row : run->row + run->positions.len;
  run->positions = all ? a->positions.runs[run->index] : (struct sf_run){.start = keys->row, .len = keys->rows};
  run->index++;
  return true;
}

void sf_block_attention_scores(struct sf_rank_run *run, const struct sf_block_attention *a, float *scores, float *max, float *sum,
                               const float *qkv, const struct sf_key_block *keys) {
  struct sf_device *dev = run->env->device;
  for (int64_t number = 0; number < sf_block_attention_heads(a); number++) {
    const struct head head = head_at(a, number);
    for (struct key_run k = {0}; next_key_run(a, keys, &head, &k);) {
      sf_multiply(dev, scores + scores_at(a, &head, &k), a->seq, queries_of(a, &head, &k, qkv),
                  sf_transposed(k.data, k.ld, k.len, a->head_dim), 1.0f / sqrtf((float)a->head_dim), SF_F32);
      for (struct query_run q = {0}; next_query_run(a, &k, &q);) {
        const struct sf_block block = block_of(a, head.sequence, &q.positions, k.column, k.len);
        dev->ops->block_softmax_stats(dev, max + head.stats + q.row, sum + head.stats + q.row,
                                      scores + head.scores + q.row * a->seq + k.column, a->seq, &block);
      }
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

void sf_block_attention_context(struct sf_rank_run *run, const struct sf_block_attention *a, float *context, float *probs, const float *max,
                                const float *sum, const struct sf_key_block *values, bool first, bool last) {
  struct sf_device *dev = run->env->device;
  for (int64_t number = 0; number < sf_block_attention_heads(a); number++) {
    const struct head head = head_at(a, number);
    for (struct key_run v = {0}; next_key_run(a, values, &head, &v);) {
      for (struct query_run q = {0}; next_query_run(a, &v, &q);) {
        const struct sf_block block = block_of(a, head.sequence, &q.positions, v.column, v.len);
        dev->ops->block_softmax_probs(dev, probs + head.scores + q.row * a->seq + v.column, a->seq, max + head.stats + q.row,
                                      sum + head.stats + q.row, &block, run->dtype);
      }
      sf_multiply_into(dev, context + head.context + v.row * head.context_ld, head.context_ld,
                       sf_matrix(probs + scores_at(a, &head, &v), a->seq, v.rows, v.len), sf_matrix(v.data, v.ld, v.len, a->head_dim), 1.0f,
                       !first || v.continues, last && v.is_last ? run->dtype : SF_F32);
    }
  }
}

void sf_block_attention_score_grads(struct sf_rank_run *run, const struct sf_block_attention *a, float *dp, const float *probs,
                                    const float *g, const struct sf_key_block *values) {
  struct sf_device *dev = run->env->device;
  for (int64_t number = 0; number < sf_block_attention_heads(a); number++) {
    const struct head head = head_at(a, number);
    for (struct key_run v = {0}; next_key_run(a, values, &head, &v);) {
      const struct sf_matrix context_grad = contexts_of(a, &head, &v, g);
      sf_multiply(dev, dp + scores_at(a, &head, &v), a->seq, context_grad, sf_transposed(v.data, v.ld, v.len, a->head_dim), 1.0f, SF_F32);
      sf_multiply_into(dev, v.grad, v.ld, sf_transposed(probs + scores_at(a, &head, &v), a->seq, v.rows, v.len), context_grad, 1.0f, true,
                       SF_F32);
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

void sf_block_attention_query_grads(struct sf_rank_run *run, const struct sf_block_attention *a, float *dqkv, const float *ds_of_q,
                                    const float *ds, const float *qkv, const struct sf_key_block *keys, bool first) {
  struct sf_device *dev = run->env->device;
  const float scale = 1.0f / sqrtf((float)a->head_dim);
  for (int64_t number = 0; number < sf_block_attention_heads(a); number++) {
    const struct head head = head_at(a, number);
    for (struct key_run k = {0}; next_key_run(a, keys, &head, &k);) {
      sf_multiply_into(dev, dqkv + head.query + k.row * head.ld, head.ld,
                       sf_matrix(ds_of_q + scores_at(a, &head, &k), a->seq, k.rows, k.len), sf_matrix(k.data, k.ld, k.len, a->head_dim),
                       scale, !first || k.continues, SF_F32);
      sf_multiply_into(dev, k.grad, k.ld, sf_transposed(ds + scores_at(a, &head, &k), a->seq, k.rows, k.len), queries_of(a, &head, &k, qkv),
                       scale, true, SF_F32);
    }
  }
}
