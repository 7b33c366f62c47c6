/* A wrong tensor in numbers: its worst element, and how much of it is wrong. */
#include "oracles/diagnose/view.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NUMBERS_BLOCK_BYTES = 1 << 16 };

/* An element that is off by more than this many even shares of its row's level is wrong. */
static const double WRONG = 6;

struct counting {
  const struct sf_tensor_view *v;
  float *error;                                        /* of each element, of its worst replica; negative: no rank holds it */
  bool *wrong, *wrong_rows, *wrong_cols, *wrong_parts; /* by logical number */
  double sum_got;
};

double sf_view_allowed(const struct sf_tensor_view *v, int64_t row) {
  const double elements = (double)v->shape.rows * (double)v->shape.cols;
  return WRONG * (v->row_noise ? v->row_noise[row] / sqrt((double)v->shape.cols) : v->noise / sqrt(elements));
}

/* Columns of a shard whose rows are parts of logical rows; 1 where they are not all of one length. */
static int64_t columns_of(const struct sf_view_shard *s, int64_t logical_cols) {
  int64_t cols = 1;
  while (cols < s->count && s->at[cols] / logical_cols == s->at[0] / logical_cols) cols++;
  return s->count % cols == 0 ? cols : 1;
}

/* Processors differ in the sign of a NaN, and printf shows it. */
static double unsigned_nan(double x) { return isnan(x) ? NAN : x; }

static void note_worst(struct sf_numbers *out, const struct sf_tensor_view *v, const struct sf_view_shard *s, int64_t k) {
  const int64_t at = s->at[k], cols = columns_of(s, v->shape.cols);
  out->worst = (struct sf_element){at / v->shape.cols, at % v->shape.cols};
  out->worst_local = (struct sf_element){k / cols, k % cols};
  out->worst_rank = s->rank;
  out->wanted = (double)v->x[at];
  out->got = unsigned_nan((double)s->data[k]);
  out->allowed = sf_view_allowed(v, out->worst.row);
}

static void count_shard(struct sf_numbers *out, struct counting *counting, const struct sf_view_shard *s, double *worst) {
  const struct sf_tensor_view *v = counting->v;
  for (int64_t k = 0; k < s->count; k++) {
    const int64_t at = s->at[k], row = at / v->shape.cols, col = at % v->shape.cols;
    const double distance = fabs((double)s->data[k] - (double)v->x[at]), error = isnan(distance) ? INFINITY : distance;
    if (counting->error[at] < 0) counting->sum_got += (double)s->data[k];
    if (!(error <= (double)counting->error[at])) counting->error[at] = (float)error;
    if (error > *worst) {
      *worst = error;
      note_worst(out, v, s, k);
    }
    if (error <= sf_view_allowed(v, row)) continue;
    counting->wrong[at] = counting->wrong_rows[row] = counting->wrong_cols[col] = true;
    if (v->part_name) counting->wrong_parts[(v->parts_of_rows ? row : col) / v->part_size] = true;
  }
}

static struct sf_wrong_share share_of(const bool *wrong, int64_t all) {
  struct sf_wrong_share share = {.all = all};
  for (int64_t i = 0; i < all; i++) share.wrong += wrong[i];
  return share;
}

static void sum_up(struct sf_numbers *out, const struct counting *counting) {
  const struct sf_tensor_view *v = counting->v;
  double squares = 0, error_squares = 0, sum = 0;
  for (int64_t at = 0; at < v->shape.rows * v->shape.cols; at++) {
    const double x = (double)v->x[at], error = (double)counting->error[at];
    if (error < 0) continue;
    out->elements.all++;
    out->elements.wrong += counting->wrong[at];
    squares += x * x, error_squares += error * error, sum += x;
  }
  out->norm = sqrt(squares);
  out->error = sqrt(error_squares);
  out->mean = sum / (double)out->elements.all;
  out->mean_got = unsigned_nan(counting->sum_got / (double)out->elements.all);
  out->rows = share_of(counting->wrong_rows, v->shape.rows);
  out->cols = share_of(counting->wrong_cols, v->shape.cols);
  if (!v->part_name) return;
  out->parts = share_of(counting->wrong_parts, (v->parts_of_rows ? v->shape.rows : v->shape.cols) / v->part_size);
  snprintf(out->part_name, sizeof out->part_name, "%s", v->part_name);
}

static bool *marks(struct sf_arena *arena, int64_t count) {
  bool *at = sf_arena_alloc(arena, (size_t)(count + 1) * sizeof *at);
  if (at) memset(at, 0, (size_t)(count + 1) * sizeof *at);
  return at;
}

enum sf_status sf_numbers_of(struct sf_numbers *out, const struct sf_tensor_view *v) {
  const int64_t rows = v->shape.rows, cols = v->shape.cols;
  memset(out, 0, sizeof *out);
  out->worst_rank = -1;
  if (v->shard_count == 0) return SF_OK;
  struct sf_arena *arena = sf_arena_create(NUMBERS_BLOCK_BYTES, false);
  if (!arena) return SF_ENOMEM;
  struct counting counting = {.v = v,
                              .error = sf_arena_alloc(arena, (size_t)(rows * cols) * sizeof(float)),
                              .wrong = marks(arena, rows * cols),
                              .wrong_rows = marks(arena, rows),
                              .wrong_cols = marks(arena, cols),
                              .wrong_parts = marks(arena, rows + cols)};
  const bool has_room = counting.error && counting.wrong && counting.wrong_rows && counting.wrong_cols && counting.wrong_parts;
  if (has_room) {
    double worst = -1;
    for (int64_t i = 0; i < rows * cols; i++) counting.error[i] = -1;
    for (int32_t i = 0; i < v->shard_count; i++) count_shard(out, &counting, &v->shards[i], &worst);
    sum_up(out, &counting);
  }
  sf_arena_destroy(arena);
  return has_room ? SF_OK : SF_ENOMEM;
}
