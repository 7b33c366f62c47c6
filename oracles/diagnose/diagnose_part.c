/* Where the error is, when what it is has no simple explanation: some ranks, rows, columns or parts, while all else is right. */
#include "oracles/diagnose/diagnose_fit.h"

#include "oracles/noise/norms.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A row (column, shard) whose error is this many of its levels is wrong. */
static const double WRONG = 6;
/* What is wrong in more of the tensor than this is wrong in all of it. */
static const double PART_MAX = 0.75;

enum { LIST_TEXT = 96 };

static bool is_part(int64_t wrong, int64_t count) { return wrong > 0 && (double)wrong <= PART_MAX * (double)count; }

static int64_t count_marked(const bool *marked, int64_t count) {
  int64_t n = 0;
  for (int64_t i = 0; i < count; i++) n += marked[i];
  return n;
}

static bool *marks_alloc(struct sf_fit *fit, int64_t count) {
  bool *marks = sf_fit_alloc(fit, (size_t)count * sizeof *marks);
  if (marks != NULL) memset(marks, 0, (size_t)count * sizeof *marks);
  return marks;
}

/* --- zeros ----------------------------------------------------------------------------------------------------- */

static void predict_zeroed(struct sf_fit *fit, int32_t i, float *local, const void *ctx) {
  (void)ctx;
  const struct sf_fit_shard *s = &fit->shards[i];
  for (int64_t k = 0; k < s->rows * s->cols; k++) local[k] = s->shard->data[k] == 0 ? 0 : s->x[k];
}

/* Logical rows in which a zero stands where the reference has none. */
static void explain_zeros(struct sf_fit *fit) {
  const struct sf_shape shape = fit->p->spec.shape;
  bool *rows = marks_alloc(fit, shape.rows);
  int64_t zeros = 0, count = 0;
  if (rows == NULL) return;
  for (int32_t i = 0; i < fit->p->shard_count; i++) {
    const struct sf_fit_shard *s = &fit->shards[i];
    int64_t at = 0;
    for (int32_t k = 0; k < s->shard->map.rows.count; k++) {
      const struct sf_run run = s->shard->map.rows.runs[k];
      for (int64_t e = 0; e < run.len * s->cols; e++, at++) {
        if (s->x[at] == 0) continue;
        const bool zero = s->shard->data[at] == 0;
        rows[run.start + e / s->cols] |= zero;
        zeros += zero, count++;
      }
    }
  }
  if (zeros == 0 || zeros == count) return;
  char list[LIST_TEXT];
  sf_marked_text(list, sizeof list, rows, shape.rows);
  sf_fit_offer(fit, SF_DIAGNOSIS_PART, sf_fit_left(fit, predict_zeroed, NULL),
               "zeros stand in rows %s, in %lld of %lld elements that should not be zero; all else is right", list, (long long)zeros,
               (long long)count);
}

/* --- lines ----------------------------------------------------------------------------------------------------- */

struct line_errors {
  double *row, *col; /* squares, worst of the replicas */
};

static bool errors_fill(struct sf_fit *fit, struct line_errors *errors) {
  const struct sf_shape shape = fit->p->spec.shape;
  errors->row = sf_fit_alloc(fit, (size_t)shape.rows * sizeof *errors->row);
  errors->col = sf_fit_alloc(fit, (size_t)shape.cols * sizeof *errors->col);
  double *rows = sf_fit_alloc(fit, (size_t)shape.rows * sizeof *rows), *cols = sf_fit_alloc(fit, (size_t)shape.cols * sizeof *cols);
  if (errors->row == NULL || errors->col == NULL || rows == NULL || cols == NULL) return false;
  memset(errors->row, 0, (size_t)shape.rows * sizeof *rows);
  memset(errors->col, 0, (size_t)shape.cols * sizeof *cols);
  for (int32_t i = 0; i < fit->p->shard_count; i++) {
    const struct sf_fit_shard *s = &fit->shards[i];
    memset(rows, 0, (size_t)shape.rows * sizeof *rows);
    memset(cols, 0, (size_t)shape.cols * sizeof *cols);
    int64_t at = 0;
    for (int32_t a = 0; a < s->shard->map.rows.count; a++)
      for (int64_t r = s->shard->map.rows.runs[a].start; r < s->shard->map.rows.runs[a].start + s->shard->map.rows.runs[a].len; r++)
        for (int32_t b = 0; b < s->shard->map.cols.count; b++)
          for (int64_t k = s->shard->map.cols.runs[b].start; k < s->shard->map.cols.runs[b].start + s->shard->map.cols.runs[b].len;
               k++, at++) {
            const double e = (double)s->shard->data[at] - (double)s->x[at];
            rows[r] += e * e, cols[k] += e * e;
          }
    for (int64_t r = 0; r < shape.rows; r++) errors->row[r] = sf_larger(errors->row[r], rows[r]);
    for (int64_t k = 0; k < shape.cols; k++) errors->col[k] = sf_larger(errors->col[k], cols[k]);
  }
  return true;
}

/* What is left outside the marked lines, in noise levels of the tensor. */
static double left_outside(const struct sf_fit *fit, const double *squares, const bool *marked, int64_t count) {
  double left = 0;
  for (int64_t i = 0; i < count; i++)
    if (!marked[i]) left += squares[i];
  return sqrt(left) / fit->p->noise;
}

static void explain_lines(struct sf_fit *fit, const double *squares, int64_t count, const double *levels, const char *what) {
  bool *marked = marks_alloc(fit, count);
  if (marked == NULL || count < 2) return;
  for (int64_t i = 0; i < count; i++) {
    const double level = levels != NULL ? levels[i] : fit->p->noise / sqrt((double)count);
    marked[i] = !(sqrt(squares[i]) <= WRONG * level);
  }
  if (!is_part(count_marked(marked, count), count)) return;
  char list[LIST_TEXT];
  sf_marked_text(list, sizeof list, marked, count);
  sf_fit_offer(fit, SF_DIAGNOSIS_PART, left_outside(fit, squares, marked, count), "only %s %s of %lld are wrong", what, list,
               (long long)count);
}

/* --- named parts of a fused projection ------------------------------------------------------------------------- */

/* 0 query, 1 key, 2 value; 0 gate, 1 up. */
static int part_of(const struct sf_model *m, enum sf_cut cut, int64_t size, int64_t index) {
  if (cut == SF_CUT_GATE_UP) return index >= size / 2;
  const int64_t queries = m->heads / m->kv_heads, in = index / m->head_dim % (queries + 2);
  return in < queries ? 0 : (int)(in - queries) + 1;
}

static void explain_named(struct sf_fit *fit, const double *squares, int64_t count, enum sf_cut cut) {
  static const char *const qkv[] = {"query", "key", "value"}, *const gate_up[] = {"gate", "up"};
  if (cut != SF_CUT_QKV && cut != SF_CUT_GATE_UP) return;
  const int parts = cut == SF_CUT_QKV ? 3 : 2;
  const char *const *names = cut == SF_CUT_QKV ? qkv : gate_up;
  bool *marked = marks_alloc(fit, count);
  if (marked == NULL) return;
  for (unsigned set = 1; set + 1 < 1u << parts; set++) {
    char text[48] = "";
    for (int part = 0; part < parts; part++)
      if (set >> part & 1u) snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", *text ? " and " : "", names[part]);
    for (int64_t i = 0; i < count; i++) marked[i] = set >> part_of(&fit->p->c->model, cut, count, i) & 1u;
    sf_fit_offer(fit, SF_DIAGNOSIS_PART, left_outside(fit, squares, marked, count), "only the %s part is wrong", text);
  }
}

/* --- ranks ----------------------------------------------------------------------------------------------------- */

static void explain_ranks(struct sf_fit *fit) {
  const struct sf_diagnosis_problem *p = fit->p;
  int32_t last = 0; /* shards come in the order in which the ranks handed them over */
  for (int32_t i = 0; i < p->shard_count; i++) {
    if (p->shards[i].rank < 0) return; /* merged from several ranks */
    if (p->shards[i].rank > last) last = p->shards[i].rank;
  }
  bool *marked = marks_alloc(fit, last + 1);
  if (marked == NULL) return;
  double left = 0;
  for (int32_t i = 0; i < p->shard_count; i++) {
    const double own = sf_fit_left_of(fit, i, fit->shards[i].x);
    marked[p->shards[i].rank] = !(own <= WRONG);
    if (own <= WRONG) left = sf_larger(left, own);
  }
  if (!is_part(count_marked(marked, last + 1), p->shard_count)) return;
  char list[LIST_TEXT];
  sf_marked_text(list, sizeof list, marked, last + 1);
  if (fit->replicas_differ)
    sf_fit_offer(fit, SF_DIAGNOSIS_UNSYNCHRONISED, left, "replicas differ: rank %s went another way, the others hold the reference's value",
                 list);
  else
    sf_fit_offer(fit, SF_DIAGNOSIS_PART, left, "only rank %s is wrong", list);
}

void sf_explain_part(struct sf_fit *fit) {
  const struct sf_diagnosis_problem *p = fit->p;
  struct line_errors errors;
  if (fit->best.cls != SF_DIAGNOSIS_UNKNOWN) return; /* what it is says more than where */
  explain_zeros(fit);
  explain_ranks(fit);
  if (!errors_fill(fit, &errors)) return;
  explain_named(fit, errors.row, p->spec.shape.rows, p->spec.row_cut);
  explain_named(fit, errors.col, p->spec.shape.cols, p->spec.col_cut);
  explain_lines(fit, errors.row, p->spec.shape.rows, p->row_noise, p->spec.shape.rows > 1 ? "rows" : "row");
  explain_lines(fit, errors.col, p->spec.shape.cols, NULL, "columns");
}
