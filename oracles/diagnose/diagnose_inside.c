/* Explains the wrong rows or columns of a tensor by themselves, as if they were all of it: a mistake that concerns the key part alone, or
 * one head. */
#include "oracles/diagnose/diagnose_fit.h"
#include "oracles/noise/norms.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A row or column whose error is this many of its levels is wrong. */
static const double WRONG = 6;

/* Lines of the tensor that are looked at: their new numbers, -1 for those that are left out. */
struct lines {
  int64_t *to;
  int64_t kept, count;
};

static bool lines_alloc(struct lines *lines, struct sf_fit *fit, int64_t count) {
  lines->to = sf_fit_alloc(fit, (size_t)count * sizeof *lines->to);
  lines->count = count;
  lines->kept = 0;
  return lines->to != NULL;
}

static void keep_all(struct lines *lines) {
  for (int64_t i = 0; i < lines->count; i++) lines->to[i] = i;
  lines->kept = lines->count;
}

/* worst: the largest error of a line's elements. */
static void keep_wrong(struct lines *lines, const double *worst, double allowed) {
  lines->kept = 0;
  for (int64_t i = 0; i < lines->count; i++) lines->to[i] = worst[i] > allowed ? lines->kept++ : -1;
}

/* The largest error of each row's and column's elements. */
static bool find_worst(struct sf_fit *fit, double **rows, double **cols) {
  const struct sf_shape shape = fit->v->shape;
  *rows = sf_fit_alloc(fit, (size_t)shape.rows * sizeof **rows);
  *cols = sf_fit_alloc(fit, (size_t)shape.cols * sizeof **cols);
  if (*rows == NULL || *cols == NULL) return false;
  for (int64_t i = 0; i < shape.rows; i++) (*rows)[i] = 0;
  for (int64_t i = 0; i < shape.cols; i++) (*cols)[i] = 0;
  for (int32_t i = 0; i < fit->v->shard_count; i++) {
    const struct sf_fit_shard *s = &fit->shards[i];
    for (int64_t k = 0; k < s->rows * s->cols; k++) {
      double error = fabs((double)s->shard->data[k] - (double)s->x[k]);
      if (error != error) error = INFINITY;
      double *row = &(*rows)[s->shard->at[k] / shape.cols], *col = &(*cols)[s->shard->at[k] % shape.cols];
      *row = sf_larger(*row, error);
      *col = sf_larger(*col, error);
    }
  }
  return true;
}

/* The kept lines of x; a term may be one row, which stands for every row. */
static const float *narrow_tensor(struct sf_fit *fit, const float *x, int64_t x_rows, const struct lines *rows, const struct lines *cols) {
  const bool is_row = x_rows != rows->count;
  float *out = sf_fit_alloc(fit, (size_t)((is_row ? 1 : rows->kept) * cols->kept) * sizeof *out), *at = out;
  for (int64_t r = 0; r < x_rows && out != NULL; r++)
    for (int64_t c = 0; c < cols->count; c++)
      if ((is_row || rows->to[r] >= 0) && cols->to[c] >= 0) *at++ = x[r * cols->count + c];
  return out;
}

/* Shards that have no kept element are left out. */
static void narrow_shards(struct sf_tensor_view *out, struct sf_fit *fit, const struct lines *rows, const struct lines *cols) {
  const struct sf_tensor_view *v = fit->v;
  struct sf_view_shard *shards = sf_fit_alloc(fit, (size_t)(v->shard_count + 1) * sizeof *shards);
  out->shards = shards;
  out->shard_count = 0;
  for (int32_t i = 0; i < v->shard_count && fit->status == SF_OK; i++) {
    const struct sf_view_shard *from = &v->shards[i];
    int64_t *at = sf_fit_alloc(fit, (size_t)(from->count + 1) * sizeof *at), count = 0;
    float *data = sf_fit_alloc(fit, (size_t)(from->count + 1) * sizeof *data);
    if (at == NULL || data == NULL) return;
    for (int64_t k = 0; k < from->count; k++) {
      const int64_t r = rows->to[from->at[k] / cols->count], c = cols->to[from->at[k] % cols->count];
      if (r < 0 || c < 0) continue;
      at[count] = r * cols->kept + c;
      data[count++] = from->data[k];
    }
    if (count == 0) continue;
    struct sf_view_shard *to = &shards[out->shard_count++];
    *to = *from;
    to->count = count;
    to->at = at;
    to->data = data;
  }
}

static void narrow_related(struct sf_tensor_view *out, struct sf_fit *fit, const struct lines *rows, const struct lines *cols) {
  const struct sf_tensor_view *v = fit->v;
  struct sf_diagnosis_related *related = sf_fit_alloc(fit, (size_t)(v->related_count + 1) * sizeof *related);
  out->related = related;
  for (int32_t k = 0; k < v->related_count && fit->status == SF_OK; k++) {
    related[k] = v->related[k];
    related[k].x = narrow_tensor(fit, v->related[k].x, v->related[k].shape.rows, rows, cols);
    related[k].shape.cols = cols->kept;
    related[k].shape.rows = v->related[k].shape.rows != v->shape.rows ? 1 : rows->kept;
  }
}

static void narrow_levels(struct sf_tensor_view *out, struct sf_fit *fit, const struct lines *rows) {
  if (fit->v->row_noise == NULL) return;
  double *levels = sf_fit_alloc(fit, (size_t)rows->kept * sizeof *levels);
  out->row_noise = levels;
  for (int64_t r = 0; r < rows->count && levels != NULL; r++)
    if (rows->to[r] >= 0) levels[rows->to[r]] = fit->v->row_noise[r];
}

/* Whether it tells where the error is, and not why. */
static bool is_only_place(const struct sf_diagnosis *best) {
  return best->cls == SF_DIAGNOSIS_PART || (best->cls == SF_DIAGNOSIS_UNSYNCHRONISED && strcmp(best->cause, "replicas differ") == 0);
}

/* Diagnoses the kept lines; what explains them becomes the tensor's explanation, together with where they are. */
static void explain_lines(struct sf_fit *fit, const struct lines *rows, const struct lines *cols) {
  enum { ELEMENTS_MIN = 4 }; /* a value may be at fewer by chance, a sum over ranks in fp32 hardly */
  const struct sf_tensor_view *v = fit->v;
  struct sf_tensor_view view = *v;
  const bool are_few = rows->kept * cols->kept < ELEMENTS_MIN;
  if ((are_few && v->promised != SF_F32) || (rows->kept == rows->count && cols->kept == cols->count)) return;
  view.shape = (struct sf_shape){rows->kept, cols->kept};
  view.x = narrow_tensor(fit, v->x, v->shape.rows, rows, cols);
  view.fused = (struct sf_view_fused){0};
  view.part_name = NULL;
  view.row_parts = 1;
  narrow_shards(&view, fit, rows, cols);
  narrow_related(&view, fit, rows, cols);
  narrow_levels(&view, fit, rows);
  struct sf_fit inside = {.v = &view, .arena = fit->arena, .status = fit->status, .is_inside = true};
  if (view.shard_count > 0) sf_fit_explain(&inside);
  fit->status = inside.status;
  if (fit->status != SF_OK || !sf_diagnosis_says_why(&inside.best) || !sf_fit_is_exact(inside.best.left)) return;
  if (is_only_place(&inside.best) || (are_few && inside.best.cls != SF_DIAGNOSIS_MISSING_REDUCTION)) return;
  char where[sizeof fit->best.text];
  if (fit->best.cls == SF_DIAGNOSIS_PART)
    memcpy(where, fit->best.text, sizeof where);
  else
    snprintf(where, sizeof where, "only %lld of %lld elements %s wrong", (long long)(rows->kept * cols->kept),
             (long long)(rows->count * cols->count), rows->kept * cols->kept == 1 ? "is" : "are");
  fit->best = inside.best;
  snprintf(fit->best.text, sizeof fit->best.text, "%.190s; %.100s", inside.best.text, where);
}

/* Wrong columns first, since parts of fused projections, heads and experts are columns as a rule; then wrong rows, then both. */
void sf_explain_inside(struct sf_fit *fit) {
  const struct sf_tensor_view *v = fit->v;
  struct lines rows, cols;
  double *row_errors, *col_errors;
  const bool is_said = sf_diagnosis_says_why(&fit->best) && !is_only_place(&fit->best);
  if (fit->is_inside || v->is_norm || is_said || strcmp(fit->best.cause, "zeros") == 0) return;
  if (!find_worst(fit, &row_errors, &col_errors)) return;
  if (!lines_alloc(&rows, fit, v->shape.rows) || !lines_alloc(&cols, fit, v->shape.cols)) return;
  const double allowed = WRONG * v->noise / sqrt((double)(v->shape.rows * v->shape.cols));
  const struct sf_diagnosis place = fit->best;
  for (int way = 0; way < 3 && fit->status == SF_OK && strcmp(fit->best.text, place.text) == 0; way++) {
    keep_all(&rows);
    keep_all(&cols);
    if (way != 1) keep_wrong(&cols, col_errors, allowed);
    if (way != 0) keep_wrong(&rows, row_errors, allowed);
    explain_lines(fit, &rows, &cols);
  }
}
