/* Explanations by place: every value is one of the reference's, but in the wrong place. */
#include "oracles/diagnose/diagnose_fit.h"

#include "oracles/noise/norms.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int64_t count_of(const struct sf_fit_shard *s) { return s->rows * s->cols; }

/* Zeros are nobody's piece: they lie where a piece was never written, too. */
static bool all_zero(const float *x, int64_t count) {
  for (int64_t k = 0; k < count; k++)
    if (x[k] != 0) return false;
  return true;
}

/* --- pieces of other ranks ------------------------------------------------------------------------------------- */

static bool same_size(const struct sf_fit_shard *a, const struct sf_fit_shard *b) { return a->rows == b->rows && a->cols == b->cols; }

/* The shard whose right value shard i holds; i itself if no other fits better. */
static int32_t nearest_piece(const struct sf_fit *fit, int32_t i) {
  int32_t nearest = i;
  double least = sf_diff_squares(fit->shards[i].shard->data, fit->shards[i].x, count_of(&fit->shards[i]));
  for (int32_t j = 0; j < fit->v->shard_count; j++) {
    if (j == i || !same_size(&fit->shards[i], &fit->shards[j])) continue;
    const double distance = sf_diff_squares(fit->shards[i].shard->data, fit->shards[j].x, count_of(&fit->shards[i]));
    if (distance < least) nearest = j, least = distance;
  }
  return nearest;
}

static void predict_piece(struct sf_fit *fit, int32_t i, float *local, const void *ctx) {
  const int32_t *piece = ctx;
  const struct sf_fit_shard *from = &fit->shards[piece[i]];
  memcpy(local, from->x, (size_t)count_of(from) * sizeof *local);
}

/* Whether some shard holds the piece that belongs to a. */
static bool is_held(const struct sf_fit *fit, const int32_t *piece, int32_t a) {
  for (int32_t i = 0; i < fit->v->shard_count; i++)
    if (fit->shards[piece[i]].place == fit->shards[a].place) return true;
  return false;
}

static void explain_pieces(struct sf_fit *fit) {
  const struct sf_tensor_view *v = fit->v;
  int32_t *piece = sf_fit_alloc(fit, (size_t)v->shard_count * sizeof *piece);
  if (piece == NULL) return;
  int32_t moved = -1;
  for (int32_t i = 0; i < v->shard_count; i++) {
    piece[i] = nearest_piece(fit, i);
    if (piece[i] == i) continue;
    if (all_zero(fit->shards[i].shard->data, count_of(&fit->shards[i]))) return;
    if (moved < 0) moved = i;
  }
  if (moved < 0) return;
  bool all_held = true;
  for (int32_t i = 0; i < v->shard_count; i++) all_held = all_held && is_held(fit, piece, i);
  const double left = sf_fit_left(fit, predict_piece, piece);
  const int32_t rank = v->shards[moved].rank, owner = v->shards[piece[moved]].rank;
  if (all_held)
    sf_fit_offer(fit, (struct sf_cause){SF_DIAGNOSIS_PERMUTED, "permuted pieces", NULL}, left,
                 "the ranks' pieces are permuted: rank %d holds the piece of rank %d", rank, owner);
  else
    sf_fit_offer(fit, (struct sf_cause){SF_DIAGNOSIS_NEIGHBOUR, "the piece of another rank", NULL}, left,
                 "rank %d holds the piece of rank %d, and its own is nowhere", rank, owner);
}

/* --- pieces of a gathered tensor ------------------------------------------------------------------------------- */

/* The origin of a piece of a shard's rows: rows from `first` on of `from` (NULL: the reference), as shard `shard` holds them. */
struct row_source {
  const struct sf_diagnosis_related *from;
  int32_t shard;
  int64_t first;
};
struct row_pieces {
  int64_t count, rows; /* pieces of a shard, and rows of each piece (the last may have fewer) */
  struct row_source *at;
};

static int64_t rows_of_piece(const struct row_pieces *pieces, const struct sf_fit_shard *s, int64_t piece) {
  const int64_t left = s->rows - piece * pieces->rows;
  return left < pieces->rows ? left : pieces->rows;
}

/* The rows of a source, from the tensor cut as its shard is; scratch: local_max. */
static const float *source_rows(struct sf_fit *fit, const struct row_source *source, float *scratch) {
  const struct sf_fit_shard *s = &fit->shards[source->shard];
  if (source->from == NULL) return s->x + source->first * s->cols;
  sf_fit_gather(fit, source->shard, scratch, source->from->x);
  return scratch + source->first * s->cols;
}

static void nearest_rows(struct sf_fit *fit, const struct row_pieces *pieces, int32_t i, int64_t piece, float *scratch) {
  const struct sf_tensor_view *v = fit->v;
  const struct sf_fit_shard *s = &fit->shards[i];
  const int64_t rows = rows_of_piece(pieces, s, piece);
  const float *data = s->shard->data + piece * pieces->rows * s->cols;
  struct row_source *nearest = &pieces->at[i * pieces->count + piece];
  *nearest = (struct row_source){.shard = i, .first = piece * pieces->rows};
  double least = sf_diff_squares(data, source_rows(fit, nearest, scratch), rows * s->cols);
  for (int32_t k = -1; k < v->related_count; k++) {
    const struct sf_diagnosis_related *r = k < 0 ? NULL : &v->related[k];
    if (r != NULL && (r->relation != SF_RELATED_STALE || r->cls != SF_DIAGNOSIS_STALE || r->shape.rows != v->shape.rows)) continue;
    for (int32_t j = 0; j < v->shard_count; j++)
      for (int64_t other = 0; same_size(s, &fit->shards[j]) && other < pieces->count; other++) {
        const struct row_source source = {r, j, other * pieces->rows};
        if (rows_of_piece(pieces, s, other) < rows) continue;
        const double distance = sf_diff_squares(data, source_rows(fit, &source, scratch), rows * s->cols);
        if (distance < least) *nearest = source, least = distance;
      }
  }
}

static void predict_rows(struct sf_fit *fit, int32_t i, float *local, const void *ctx) {
  const struct row_pieces *pieces = ctx;
  const struct sf_fit_shard *s = &fit->shards[i];
  for (int64_t piece = 0; piece < pieces->count; piece++)
    memcpy(local + piece * pieces->rows * s->cols, source_rows(fit, &pieces->at[i * pieces->count + piece], fit->logical),
           (size_t)(rows_of_piece(pieces, s, piece) * s->cols) * sizeof *local);
}

/* Whether a piece comes from another place; pieces of replicas are the same. */
static bool is_elsewhere(const struct sf_fit *fit, const struct row_pieces *pieces, int32_t i, int64_t piece) {
  const struct row_source *source = &pieces->at[i * pieces->count + piece];
  return source->from != NULL || source->first != piece * pieces->rows || fit->shards[source->shard].place != fit->shards[i].place;
}

static int64_t logical_row(const struct sf_fit *fit, int32_t shard, int64_t row) {
  const struct sf_fit_shard *s = &fit->shards[shard];
  return s->shard->at[row * s->cols] / fit->v->shape.cols;
}

/* Rows that were cut over tp, and gathered again from the wrong ranks. */
static void explain_gathered(struct sf_fit *fit) {
  const struct sf_tensor_view *v = fit->v;
  const struct sf_fit_shard *first = &fit->shards[0];
  static const double MOST = 4e9; /* comparisons: a few seconds */
  struct row_pieces pieces = {.count = v->row_parts};
  if ((double)(v->related_count + 1) * v->shard_count * v->shard_count * (double)pieces.count * (double)fit->local_max > MOST) return;
  if (v->shape.rows < 2 || pieces.count < 2 || first->rows < pieces.count) return;
  pieces.rows = (first->rows + pieces.count - 1) / pieces.count;
  pieces.at = sf_fit_alloc(fit, (size_t)(v->shard_count * pieces.count) * sizeof *pieces.at);
  float *scratch = sf_fit_alloc(fit, (size_t)fit->local_max * sizeof *scratch);
  if (pieces.at == NULL || scratch == NULL) return;
  const struct row_source *moved = NULL;
  int32_t rank = 0;
  int64_t at = 0;
  for (int32_t i = 0; i < v->shard_count; i++) {
    if (!same_size(first, &fit->shards[i]) || rows_of_piece(&pieces, first, pieces.count - 1) < 1) return;
    for (int64_t piece = 0; piece < pieces.count; piece++) {
      nearest_rows(fit, &pieces, i, piece, scratch);
      if (!is_elsewhere(fit, &pieces, i, piece)) continue;
      const int64_t first_row = piece * pieces.rows;
      if (all_zero(v->shards[i].data + first_row * first->cols, rows_of_piece(&pieces, first, piece) * first->cols)) return;
      if (moved != NULL) continue;
      moved = &pieces.at[i * pieces.count + piece];
      rank = v->shards[i].rank;
      at = logical_row(fit, i, first_row);
    }
  }
  if (moved == NULL) return;
  char whose[112] = "";
  if (moved->from != NULL) snprintf(whose, sizeof whose, " of %.96s", moved->from->name);
  sf_fit_offer(fit, (struct sf_cause){SF_DIAGNOSIS_NEIGHBOUR, "gathered from the wrong ranks", NULL},
               sf_fit_left(fit, predict_rows, &pieces),
               "pieces were gathered from the wrong ranks: rank %d's rows from %lld on are rows from %lld on%s", rank, (long long)at,
               (long long)logical_row(fit, moved->shard, moved->first), whose);
}

/* --- shifted rows ---------------------------------------------------------------------------------------------- */

struct shift {
  int64_t lines, by; /* local lines (rows; elements of a vector) and how far they moved; edges wrap or are as they should be */
};

/* Local lines of a shard: rows, or elements where the tensor is a vector. */
static int64_t lines_of(const struct sf_fit *fit, const struct sf_fit_shard *s) { return fit->v->shape.rows > 1 ? s->rows : s->cols; }

static void predict_shifted(struct sf_fit *fit, int32_t i, float *local, const void *ctx) {
  const struct shift *shift = ctx;
  const struct sf_fit_shard *s = &fit->shards[i];
  const int64_t width = count_of(s) / shift->lines;
  memcpy(local, s->shard->data, (size_t)count_of(s) * sizeof *local); /* any value may come in over the edge */
  for (int64_t line = 0; line < shift->lines; line++) {
    const int64_t from = line - shift->by;
    if (from < 0 || from >= shift->lines) continue;
    memcpy(local + line * width, s->x + from * width, (size_t)width * sizeof *local);
  }
}

/* The distance by which the middle line of the first shard moved; 0 = no line of the reference is nearer than its own. */
static int64_t shift_of_middle(const struct sf_fit *fit, int64_t lines) {
  const struct sf_fit_shard *s = &fit->shards[0];
  const int64_t width = count_of(s) / lines, middle = lines / 2;
  int64_t by = 0;
  if (all_zero(s->shard->data + middle * width, width)) return 0;
  double least = sf_diff_squares(s->shard->data + middle * width, s->x + middle * width, width);
  for (int64_t from = 0; from < lines; from++) {
    const double distance = sf_diff_squares(s->shard->data + middle * width, s->x + from * width, width);
    if (distance < least) least = distance, by = middle - from;
  }
  return by;
}

static void explain_shift(struct sf_fit *fit) {
  const int64_t lines = lines_of(fit, &fit->shards[0]);
  for (int32_t i = 0; i < fit->v->shard_count; i++)
    if (lines_of(fit, &fit->shards[i]) != lines || count_of(&fit->shards[i]) % lines != 0) return;
  const struct shift shift = {lines, shift_of_middle(fit, lines)};
  if (shift.by == 0 || llabs(shift.by) > lines / 2) return;
  sf_fit_offer(fit, (struct sf_cause){SF_DIAGNOSIS_SHIFTED, "shifted within each rank's part", NULL},
               sf_fit_left(fit, predict_shifted, &shift), "%s are shifted by %lld within each rank's part",
               fit->v->shape.rows > 1 ? "rows" : "elements", (long long)shift.by);
}

/* --- parts of fused projections -------------------------------------------------------------------------------- */

static bool is_fused(enum sf_cut cut) { return cut == SF_CUT_QKV || cut == SF_CUT_GATE_UP; }

/* A wrong cut or order of one dimension's logical indices. */
enum fused_mistake { CONTIGUOUS, PARTS_TOGETHER, PARTS_APART, SWAPPED, FUSED_MISTAKES };

/* The logical index at place `at` of the tensor when each part of all heads lies together: [q; k; v]. */
static int64_t together(const struct sf_view_fused *f, enum sf_cut cut, int64_t size, int64_t at) {
  if (cut == SF_CUT_GATE_UP) return at % 2 * (size / 2) + at / 2; /* gate and up in turn */
  const int64_t d = f->head_dim, queries = f->heads / f->kv_heads, group = (queries + 2) * d, q_all = f->heads * d, k_all = f->kv_heads * d;
  if (at < q_all) return at / (queries * d) * group + at % (queries * d);
  const int64_t in = (at - q_all) % k_all, part = (at - q_all) / k_all;
  return in / d * group + (queries + part) * d + in % d;
}

static int64_t swapped(const struct sf_view_fused *f, enum sf_cut cut, int64_t size, int64_t at) {
  if (cut == SF_CUT_GATE_UP) return (at + size / 2) % size;
  const int64_t d = f->head_dim, queries = f->heads / f->kv_heads, group = (queries + 2) * d, in = at % group;
  if (in < queries * d) return at;
  return in < (queries + 1) * d ? at + d : at - d; /* key and value exchanged */
}

static void order_of(int64_t *order, const struct sf_tensor_view *v, enum sf_cut cut, int64_t size, enum fused_mistake mistake) {
  for (int64_t at = 0; at < size; at++) {
    const int64_t from = mistake == SWAPPED      ? swapped(&v->fused, cut, size, at)
                         : mistake == CONTIGUOUS ? at
                                                 : together(&v->fused, cut, size, at);
    if (mistake == PARTS_APART)
      order[from] = at;
    else
      order[at] = from;
  }
}

struct fused {
  enum fused_mistake mistake;
  bool of_rows;
  const int64_t *order; /* logical index at each place */
};

/* The place of the `index`-th of `length` when a rank takes one contiguous piece of the dimension, by its tp index. */
static int64_t contiguous_place(int64_t length, int64_t size, int64_t tp_index, int64_t index) {
  const int64_t last = size - length;
  return index + (tp_index * length < last ? tp_index * length : last);
}

static void predict_fused(struct sf_fit *fit, int32_t i, float *local, const void *ctx) {
  const struct fused *f = ctx;
  const struct sf_tensor_view *v = fit->v;
  const struct sf_fit_shard *s = &fit->shards[i];
  const int32_t tp = s->shard->tp;
  for (int64_t r = 0; r < s->rows; r++)
    for (int64_t k = 0; k < s->cols; k++) {
      const int64_t at = s->shard->at[r * s->cols + k];
      int64_t row = at / v->shape.cols, col = at % v->shape.cols;
      if (f->of_rows)
        row = f->order[f->mistake == CONTIGUOUS ? contiguous_place(s->rows, v->shape.rows, tp, r) : row];
      else
        col = f->order[f->mistake == CONTIGUOUS ? contiguous_place(s->cols, v->shape.cols, tp, k) : col];
      *local++ = v->x[row * v->shape.cols + col];
    }
}

static void explain_fused(struct sf_fit *fit, bool of_rows) {
  const struct sf_tensor_view *v = fit->v;
  const enum sf_cut cut = of_rows ? v->fused.rows : v->fused.cols;
  const int64_t size = of_rows ? v->shape.rows : v->shape.cols;
  const char *parts = cut == SF_CUT_QKV ? "queries, keys and values" : "gate and up";
  int64_t *order = sf_fit_alloc(fit, (size_t)size * sizeof *order);
  if (order == NULL) return;
  const char *const what[FUSED_MISTAKES] = {
      [CONTIGUOUS] = "are cut into contiguous pieces, where each rank needs a piece of each part",
      [PARTS_TOGETHER] = cut == SF_CUT_QKV ? "lie part by part, and not head by head" : "lie in turn, and not one after the other",
      [PARTS_APART] = "are taken apart as if they lay in the other order",
      [SWAPPED] = cut == SF_CUT_QKV ? "are in the wrong order: keys and values exchanged" : "are exchanged",
  };
  for (int mistake = 0; mistake < FUSED_MISTAKES; mistake++) {
    order_of(order, v, cut, size, (enum fused_mistake)mistake);
    const struct fused fused = {(enum fused_mistake)mistake, of_rows, order};
    sf_fit_offer(fit, (struct sf_cause){SF_DIAGNOSIS_FUSED_ORDER, "parts of a fused projection", what[mistake]},
                 sf_fit_left(fit, predict_fused, &fused), "parts of a fused projection %s: %s", what[mistake], parts);
  }
}

/* --- rows and columns ------------------------------------------------------------------------------------------ */

/* The numbers lie as those of the transposed matrix do: of the whole one, or (*ctx) of what each rank holds. */
static void predict_transposed(struct sf_fit *fit, int32_t i, float *local, const void *ctx) {
  const bool *of_pieces = ctx;
  const struct sf_fit_shard *s = &fit->shards[i];
  const struct sf_shape shape = *of_pieces ? (struct sf_shape){s->rows, s->cols} : fit->v->shape;
  const float *x = *of_pieces ? s->x : fit->v->x;
  for (int64_t k = 0; k < count_of(s); k++) {
    const int64_t at = *of_pieces ? k : s->shard->at[k];
    local[k] = x[at % shape.rows * shape.cols + at / shape.rows];
  }
}

static void explain_transposed(struct sf_fit *fit) {
  if (fit->v->shape.rows < 2 || fit->v->shape.cols < 2) return;
  for (int pieces = 0; pieces < 2; pieces++) {
    const bool of_pieces = pieces != 0;
    sf_fit_offer(fit, (struct sf_cause){SF_DIAGNOSIS_TRANSPOSED, of_pieces ? "pieces transposed" : "transposed", NULL},
                 sf_fit_left(fit, predict_transposed, &of_pieces),
                 of_pieces ? "each rank's piece is transposed: its numbers lie column by column"
                           : "the matrix is transposed: its numbers lie column by column");
  }
}

void sf_explain_places(struct sf_fit *fit) {
  explain_pieces(fit);
  explain_gathered(fit);
  explain_shift(fit);
  explain_transposed(fit);
  if (is_fused(fit->v->fused.rows)) explain_fused(fit, true);
  if (is_fused(fit->v->fused.cols)) explain_fused(fit, false);
}
