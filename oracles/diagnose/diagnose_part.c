/* Says where an error is that has no simple explanation: in some ranks, rows, columns or parts, while all else is right. */
#include "oracles/diagnose/diagnose_fit.h"

#include "harness/base/sinks.h"
#include "oracles/noise/norms.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A row (column, shard) whose error is this many of its levels is wrong. */
static const double WRONG = 6;
/* If more of the tensor than this is wrong, all of it is wrong. */
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

/* "3, 5-7 and 2 more" of the marked indices. */
static void list_marked(char *out, size_t out_size, const bool *marked, int64_t count) {
  enum { SHOWN = 6 };
  int64_t shown = 0, more = 0;
  size_t length = 0;
  *out = '\0';
  for (int64_t i = 0; i < count; i++) {
    if (!marked[i]) continue;
    int64_t last = i;
    while (last + 1 < count && marked[last + 1]) last++;
    if (shown++ >= SHOWN || length + 48 > out_size) {
      more += last - i + 1;
    } else {
      length += (size_t)snprintf(out + length, out_size - length, "%s%lld", length > 0 ? ", " : "", (long long)i);
      if (last > i) length += (size_t)snprintf(out + length, out_size - length, "-%lld", (long long)last);
    }
    i = last;
  }
  if (more > 0) snprintf(out + length, out_size - length, " and %lld more", (long long)more);
}

/* "row 3", "rows 3, 5-7 and 2 more". */
static void name_marked(char out[LIST_TEXT], const char *what, const bool *marked, int64_t count) {
  const int length = snprintf(out, LIST_TEXT, "%s%s ", what, sf_plural(count_marked(marked, count)));
  list_marked(out + length, LIST_TEXT - (size_t)length, marked, count);
}

/* --- zeros ----------------------------------------------------------------------------------------------------- */

static void predict_zeroed(struct sf_fit *fit, int32_t i, float *local, const void *ctx) {
  (void)ctx;
  const struct sf_fit_shard *s = &fit->shards[i];
  for (int64_t k = 0; k < s->rows * s->cols; k++) local[k] = s->shard->data[k] == 0 ? 0 : s->x[k];
}

/* Finds logical rows with a zero where the reference has none. */
static void explain_zeros(struct sf_fit *fit) {
  const struct sf_shape shape = fit->v->shape;
  bool *rows = marks_alloc(fit, shape.rows);
  int64_t zeros = 0, count = 0;
  if (rows == NULL) return;
  for (int32_t i = 0; i < fit->v->shard_count; i++) {
    const struct sf_fit_shard *s = &fit->shards[i];
    for (int64_t k = 0; k < s->rows * s->cols; k++) {
      if (s->x[k] == 0) continue;
      const bool zero = s->shard->data[k] == 0;
      rows[s->shard->at[k] / shape.cols] |= zero;
      zeros += zero, count++;
    }
  }
  if (zeros == 0 || zeros == count) return;
  char list[LIST_TEXT];
  name_marked(list, "row", rows, shape.rows);
  sf_fit_offer(fit, (struct sf_cause){SF_DIAGNOSIS_PART, "zeros", NULL}, sf_fit_left(fit, predict_zeroed, NULL),
               "zeros stand in %s, in %lld of %lld elements that should not be zero; all else is right", list, (long long)zeros,
               (long long)count);
}

/* --- lines ----------------------------------------------------------------------------------------------------- */

struct line_errors {
  double *row, *col; /* squares of the worst replica */
};

static bool errors_fill(struct sf_fit *fit, struct line_errors *errors) {
  const struct sf_shape shape = fit->v->shape;
  errors->row = sf_fit_alloc(fit, (size_t)shape.rows * sizeof *errors->row);
  errors->col = sf_fit_alloc(fit, (size_t)shape.cols * sizeof *errors->col);
  double *rows = sf_fit_alloc(fit, (size_t)shape.rows * sizeof *rows), *cols = sf_fit_alloc(fit, (size_t)shape.cols * sizeof *cols);
  if (errors->row == NULL || errors->col == NULL || rows == NULL || cols == NULL) return false;
  memset(errors->row, 0, (size_t)shape.rows * sizeof *rows);
  memset(errors->col, 0, (size_t)shape.cols * sizeof *cols);
  for (int32_t i = 0; i < fit->v->shard_count; i++) {
    const struct sf_fit_shard *s = &fit->shards[i];
    memset(rows, 0, (size_t)shape.rows * sizeof *rows);
    memset(cols, 0, (size_t)shape.cols * sizeof *cols);
    for (int64_t k = 0; k < s->rows * s->cols; k++) {
      const double e = (double)s->shard->data[k] - (double)s->x[k];
      rows[s->shard->at[k] / shape.cols] += e * e, cols[s->shard->at[k] % shape.cols] += e * e;
    }
    for (int64_t r = 0; r < shape.rows; r++) errors->row[r] = sf_larger(errors->row[r], rows[r]);
    for (int64_t k = 0; k < shape.cols; k++) errors->col[k] = sf_larger(errors->col[k], cols[k]);
  }
  return true;
}

/* The error outside the marked lines, in noise levels of the tensor. */
static double left_outside(const struct sf_fit *fit, const double *squares, const bool *marked, int64_t count) {
  double left = 0;
  for (int64_t i = 0; i < count; i++)
    if (!marked[i]) left += squares[i];
  return sqrt(left) / fit->v->noise;
}

/* --- a factor on a part ------------------------------------------------------------------------------------------ */

/* Elements of marked rows, columns or ranks. */
struct marked_part {
  const bool *marked;
  enum { BY_ROW, BY_COLUMN, BY_RANK } by;
  double factor;
};

static bool has(const struct marked_part *part, const struct sf_view_shard *s, int64_t k, int64_t cols) {
  return part->marked[part->by == BY_ROW ? s->at[k] / cols : part->by == BY_COLUMN ? s->at[k] % cols : s->rank];
}

static void predict_scaled_part(struct sf_fit *fit, int32_t i, float *local, const void *ctx) {
  const struct marked_part *part = ctx;
  const struct sf_fit_shard *s = &fit->shards[i];
  for (int64_t k = 0; k < s->rows * s->cols; k++)
    local[k] = has(part, s->shard, k, fit->v->shape.cols) ? (float)(part->factor * (double)s->x[k]) : s->x[k];
}

/* Offers that a part is scaled, where one factor explains its error. name: "the query part is". */
static void explain_scaled_part(struct sf_fit *fit, struct marked_part part, const char *name) {
  enum { NONZERO_MIN = 8 }; /* a factor may fit fewer by chance */
  double dot = 0, squares = 0;
  int64_t nonzero = 0;
  for (int32_t i = 0; i < fit->v->shard_count; i++) {
    const struct sf_fit_shard *s = &fit->shards[i];
    for (int64_t k = 0; k < s->rows * s->cols; k++) {
      if (!has(&part, s->shard, k, fit->v->shape.cols)) continue;
      dot += (double)s->shard->data[k] * (double)s->x[k];
      squares += (double)s->x[k] * (double)s->x[k];
      nonzero += s->x[k] != 0;
    }
  }
  struct sf_factor by;
  part.factor = squares > 0 ? dot / squares : 0;
  if (nonzero < NONZERO_MIN || part.factor == 0) return;
  sf_factor_name(&by, fit->v, part.factor, 3 * fit->v->noise / sqrt(squares));
  if (by.cause != NULL)
    sf_fit_offer(fit, (struct sf_cause){SF_DIAGNOSIS_SCALE, "a part is scaled", by.cause}, sf_fit_left(fit, predict_scaled_part, &part),
                 "only %s scaled by %s", name, by.text);
}

/* Offers that some lines are wrong: rows, columns, or whole parts of them. */
static void offer_lines(struct sf_fit *fit, const struct marked_part *part, double left, const bool *named, int64_t count,
                        const char *what) {
  char list[LIST_TEXT], name[LIST_TEXT + 48];
  name_marked(list, what, named, count);
  snprintf(name, sizeof name, "%s of %lld %s", list, (long long)count, count_marked(named, count) == 1 ? "is" : "are");
  sf_fit_offer(fit, (struct sf_cause){SF_DIAGNOSIS_PART, "only some", what}, left, "only %s wrong", name);
  explain_scaled_part(fit, *part, name);
}

/* Marks the heads or experts that wrong lines lie in. False where lines lie in none, where all are marked, or where less than half of the
 * lines of one are wrong. */
static bool mark_parts(bool *parts, const struct sf_tensor_view *v, const bool *marked, int64_t part_count) {
  bool are_whole = part_count > 1;
  for (int64_t part = 0; part < part_count && are_whole; part++) {
    const int64_t wrong = count_marked(marked + part * v->part_size, v->part_size);
    parts[part] = wrong > 0;
    are_whole = wrong == 0 || 2 * wrong >= v->part_size;
  }
  return are_whole && count_marked(parts, part_count) < part_count;
}

static void explain_lines(struct sf_fit *fit, const double *squares, int64_t count, const double *levels, bool by_rows) {
  const struct sf_tensor_view *v = fit->v;
  bool *marked = marks_alloc(fit, count), *parts = marks_alloc(fit, count);
  if (marked == NULL || parts == NULL || count < 2) return;
  for (int64_t i = 0; i < count; i++) {
    const double level = levels != NULL ? levels[i] : v->noise / sqrt((double)count);
    marked[i] = !(sqrt(squares[i]) <= WRONG * level);
  }
  const bool has_parts = v->part_name != NULL && v->parts_of_rows == by_rows && v->part_size > 1 && count % v->part_size == 0;
  const int64_t part_count = has_parts ? count / v->part_size : 0;
  const bool are_parts = mark_parts(parts, v, marked, part_count);
  if (!are_parts && !is_part(count_marked(marked, count), count)) return;
  for (int64_t i = 0; i < count && are_parts; i++) marked[i] = parts[i / v->part_size];
  char part_name[16];
  if (are_parts) snprintf(part_name, sizeof part_name, "%.*s", (int)strlen(v->part_name) - 1, v->part_name); /* "heads" */
  offer_lines(fit, &(struct marked_part){marked, by_rows ? BY_ROW : BY_COLUMN, 1}, left_outside(fit, squares, marked, count),
              are_parts ? parts : marked, are_parts ? part_count : count,
              are_parts ? part_name
              : by_rows ? "row"
                        : "column");
}

/* --- named parts of a fused projection ------------------------------------------------------------------------- */

/* 0 query, 1 key, 2 value; 0 gate, 1 up. */
static int part_of(const struct sf_view_fused *fused, enum sf_cut cut, int64_t size, int64_t index) {
  if (cut == SF_CUT_GATE_UP) return index >= size / 2;
  const int64_t queries = fused->heads / fused->kv_heads, in = index / fused->head_dim % (queries + 2);
  return in < queries ? 0 : (int)(in - queries) + 1;
}

static void explain_named(struct sf_fit *fit, const double *squares, int64_t count, enum sf_cut cut, bool by_rows) {
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
    for (int64_t i = 0; i < count; i++) marked[i] = set >> part_of(&fit->v->fused, cut, count, i) & 1u;
    sf_fit_offer(fit, (struct sf_cause){SF_DIAGNOSIS_PART, "only some parts", text}, left_outside(fit, squares, marked, count),
                 "only the %s part is wrong", text);
    char name[64];
    snprintf(name, sizeof name, "the %s part is", text);
    explain_scaled_part(fit, (struct marked_part){marked, by_rows ? BY_ROW : BY_COLUMN, 1}, name);
  }
}

/* --- ranks ----------------------------------------------------------------------------------------------------- */

static void explain_ranks(struct sf_fit *fit) {
  const struct sf_tensor_view *v = fit->v;
  int32_t last = 0; /* shards come in the order in which the ranks handed them over */
  for (int32_t i = 0; i < v->shard_count; i++) {
    if (v->shards[i].rank < 0) return; /* merged from several ranks */
    if (v->shards[i].rank > last) last = v->shards[i].rank;
  }
  bool *marked = marks_alloc(fit, last + 1);
  if (marked == NULL) return;
  double left = 0;
  for (int32_t i = 0; i < v->shard_count; i++) {
    const double own = sf_fit_left_of(fit, i, fit->shards[i].x);
    marked[v->shards[i].rank] = !(own <= WRONG);
    if (own <= WRONG) left = sf_larger(left, own);
  }
  if (!is_part(count_marked(marked, last + 1), v->shard_count)) return;
  char list[LIST_TEXT];
  name_marked(list, "rank", marked, last + 1);
  if (fit->replicas_differ)
    sf_fit_offer(fit, (struct sf_cause){SF_DIAGNOSIS_UNSYNCHRONISED, "replicas differ", NULL}, left,
                 "replicas differ: %s went another way, the others hold the reference's value", list);
  else
    sf_fit_offer(fit, (struct sf_cause){SF_DIAGNOSIS_PART, "only some", "rank"}, left, "only %s %s wrong", list,
                 count_marked(marked, last + 1) == 1 ? "is" : "are");
}

void sf_explain_part(struct sf_fit *fit) {
  const struct sf_tensor_view *v = fit->v;
  struct line_errors errors;
  if (fit->best.cls != SF_DIAGNOSIS_UNKNOWN) return; /* a cause says more than a place */
  explain_zeros(fit);
  explain_ranks(fit);
  if (!errors_fill(fit, &errors)) return;
  explain_named(fit, errors.row, v->shape.rows, v->fused.rows, true);
  explain_named(fit, errors.col, v->shape.cols, v->fused.cols, false);
  explain_lines(fit, errors.row, v->shape.rows, v->row_noise, true);
  explain_lines(fit, errors.col, v->shape.cols, NULL, false);
}
