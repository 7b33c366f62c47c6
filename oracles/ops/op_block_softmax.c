/* Softmax of keys that come in blocks (device.h: struct sf_block). */
#include "oracles/ops/op_internal.h"
#include "oracles/ops/softmax_row.h"

enum { ROWS, COLS }; /* dimensions */

/* visible - hidden of device.h's `visible`; `begins`: whether rows have a first column of their own. */
enum { VISIBLE, HIDDEN, WINDOW, BEGINS, COLUMN, SINK };
#define BLOCK_ATTRS                                                                                                                        \
  {"visible", 300, .size = true}, {"hidden", 40, .size = true}, {"window", 300, .size = true}, {"begins", 1}, { "column", 60, .size = true }

struct seen {
  int64_t first, end;
};

static int64_t within(int64_t column, int64_t cols) { return column < 0 ? 0 : column < cols ? column : cols; }

static struct seen seen(const struct sf_op_view *view, const int32_t *begins, int64_t row) {
  const int64_t *attrs = view->attrs, cols = view->dims[1], end = attrs[VISIBLE] - attrs[HIDDEN] + row;
  int64_t first = 0;
  if (attrs[WINDOW] > 0 && end - attrs[WINDOW] > first) first = end - attrs[WINDOW];
  if (attrs[BEGINS] && begins[row] - attrs[COLUMN] > first) first = begins[row] - attrs[COLUMN];
  const int64_t last = within(end, cols);
  return (struct seen){first < last ? first : last, last};
}

/* Turns any integer into a possible first column of a row. */
static void fit_begins(const struct sf_op_view *view, int32_t *begins) {
  const int64_t span = view->attrs[COLUMN] + view->dims[1] + 1;
  for (int64_t r = 0; view->attrs[BEGINS] && r < view->dims[0]; r++) begins[r] = (int32_t)(begins[r] % span);
}

/* Sums of exponentials are above zero; every other row begins anew. A NaN maximum always belongs to a NaN sum. */
static void stats_prepare(struct sf_op_view *view) {
  fit_begins(view, view->at[1].ints);
  for (int64_t r = 0; r < view->dims[0]; r++) {
    if (r % 2 == 0) view->at[2].x[r] = -INFINITY;
    if (view->at[2].x[r] == -INFINITY) view->at[3].x[r] = 0;
    if (isnan(view->at[2].x[r])) view->at[3].x[r] = NAN;
  }
}

static void stats_row(struct sf_op_view *view, int64_t row) {
  const struct seen s = seen(view, view->at[1].ints, row);
  const float *scores = view->at[0].x + row * view->dims[1];
  const double before = (double)view->at[2].x[row], block_top = sf_op_row_top(scores + s.first, s.end - s.first, -INFINITY);
  struct sf_num *max = &view->at[2].want[row], *sum = &view->at[3].want[row];
  *max = sf_op_in(view, 2, row);
  *sum = sf_op_in(view, 3, row);
  if (s.first == s.end) return;
  /* The maximum that belongs to a NaN sum is not promised. */
  if (isnan(block_top) || isnan(before)) {
    *max = sf_num_unknown();
    *sum = sf_num(NAN);
    return;
  }
  const double top = before > block_top ? before : block_top;
  if (top == -INFINITY) return;
  struct sf_num_sum total = {0};
  for (int64_t j = s.first; j < s.end; j++) sf_num_sum_add(&total, sf_op_exp_distance((double)scores[j], top));
  if (before != -INFINITY) sf_num_sum_add(&total, sf_num_mul(*sum, sf_op_exp_distance(before, top)));
  *max = sf_num(top);
  *sum = sf_num_sum_of(&total);
}

static void stats(struct sf_op_view *view) {
  for (int64_t r = 0; r < view->dims[0]; r++) stats_row(view, r);
}

/* A row's maximum is at least that of its block, except in every fourth row. */
static void probs_prepare(struct sf_op_view *view) {
  fit_begins(view, view->at[2].ints);
  for (int64_t r = 0; r < view->dims[0]; r++) {
    if (r % 4 == 3) continue;
    const double top = sf_op_row_top(view->at[3].x + r * view->dims[1], view->dims[1], (double)view->at[0].x[r]);
    view->at[0].x[r] = (float)top;
  }
}

static void probs(struct sf_op_view *view) {
  const int64_t cols = view->dims[1];
  for (int64_t r = 0; r < view->dims[0]; r++) {
    const struct seen s = seen(view, view->at[2].ints, r);
    struct sf_num *want = view->at[3].want + r * cols;
    for (int64_t j = s.first; j < s.end; j++)
      want[j] = sf_num_div(sf_op_exp_distance((double)view->at[3].x[r * cols + j], (double)view->at[0].x[r]), sf_op_in(view, 1, r));
    sf_op_clear(want, 0, s.first);
    sf_op_clear(want, s.end, cols);
  }
}

static void sink(struct sf_op_view *view) {
  for (int64_t r = 0; r < view->dims[0]; r++)
    view->at[3].want[r] = sf_num_div(sf_op_exp_distance((double)view->at[0].x[0], (double)view->at[1].x[r]), sf_op_in(view, 2, r));
}

static void bwd_prepare(struct sf_op_view *view) { fit_begins(view, view->at[1].ints); }

static void bwd(struct sf_op_view *view) {
  const int64_t cols = view->dims[1];
  struct sf_num_sum grad = {0};
  if (view->attrs[SINK]) sf_num_sum_add(&grad, sf_op_in(view, 4, 0));
  for (int64_t r = 0; r < view->dims[0]; r++) {
    const struct seen s = seen(view, view->at[1].ints, r);
    struct sf_num *want = view->at[3].want + r * cols;
    const struct sf_num dot =
        sf_op_softmax_row_bwd(want + s.first, view->at[3].x + r * cols + s.first, view->at[0].x + r * cols + s.first, s.end - s.first);
    if (view->attrs[SINK]) sf_num_sum_add(&grad, sf_num_neg(sf_num_mul(sf_op_in(view, 2, r), dot)));
    sf_op_clear(want, 0, s.first);
    sf_op_clear(want, s.end, cols);
  }
  if (view->attrs[SINK]) view->at[4].want[0] = sf_num_sum_of(&grad);
}

const struct sf_op sf_ops_block_softmax[] = {
    {SF_OP_ALONE("block_softmax_stats"),
     .stores = SF_OP_STORES_F32,
     SF_OP_OPERANDS({"s", SF_OP_IN, SF_OP_FLOAT, SF_OP_SCORE, .strided = true},
                    {"begins", SF_OP_IN, SF_OP_INT32, SF_OP_ID},
                    {"max", SF_OP_INOUT, SF_OP_FLOAT},
                    {"sum", SF_OP_INOUT, SF_OP_FLOAT, SF_OP_POSITIVE}),
     SF_OP_DIMS("rows", "cols"),
     SF_OP_ATTRS(BLOCK_ATTRS),
     .sizes = {SF_OP_MATRIX(ROWS, COLS), SF_OP_VECTOR_WITH(ROWS, 1 << BEGINS), SF_OP_VECTOR(ROWS), SF_OP_VECTOR(ROWS)},
     .formula =
         "new max = max(max, largest s seen), new sum = sum exp(max - new max) + sum_j exp(s - new max) over what row i sees\n"
         "Before the first block max is -infinity and sum 0. A row that sees nothing in this block, or -infinity alone with max "
         "-infinity, keeps both.\n"
         "Row i sees columns end - window .. end - 1 (window 0: from 0), end = visible - hidden + i, as far as the block has them, and "
         "with begins none before begins[i] - column.",
     .prepare = stats_prepare,
     .reference = stats},
    {SF_OP_ALONE("block_softmax_probs"),
     .stores = SF_OP_STORES_ALL,
     SF_OP_OPERANDS({"max", SF_OP_IN, SF_OP_FLOAT},
                    {"sum", SF_OP_IN, SF_OP_FLOAT, SF_OP_POSITIVE},
                    {"begins", SF_OP_IN, SF_OP_INT32, SF_OP_ID},
                    {"p", SF_OP_INOUT, SF_OP_STORED, SF_OP_SCORE, .strided = true}),
     SF_OP_DIMS("rows", "cols"),
     SF_OP_ATTRS(BLOCK_ATTRS),
     .sizes = {SF_OP_VECTOR(ROWS), SF_OP_VECTOR(ROWS), SF_OP_VECTOR_WITH(ROWS, 1 << BEGINS), SF_OP_MATRIX(ROWS, COLS)},
     .formula = "p[i,j] = exp(p[i,j] - max[i]) / sum[i] in place of the scores, over what row i sees (as block_softmax_stats); 0 elsewhere",
     .prepare = probs_prepare,
     .reference = probs},
    {SF_OP_ALONE("block_softmax_sink"),
     .stores = SF_OP_STORES_F32,
     SF_OP_OPERANDS({"logit", SF_OP_IN, SF_OP_FLOAT},
                    {"max", SF_OP_IN, SF_OP_FLOAT},
                    {"sum", SF_OP_IN, SF_OP_FLOAT, SF_OP_POSITIVE},
                    {"probs", SF_OP_OUT, SF_OP_FLOAT}),
     SF_OP_DIMS("rows"),
     .sizes = {SF_OP_VECTOR(SF_OP_ONE), SF_OP_VECTOR(ROWS), SF_OP_VECTOR(ROWS), SF_OP_VECTOR(ROWS)},
     .formula = "probs[i] = exp(logit - max[i]) / sum[i]",
     .reference = sink},
    {SF_OP_ALONE("block_softmax_bwd"),
     .backward = true,
     .stores = SF_OP_STORES_ALL,
     SF_OP_OPERANDS({"p", SF_OP_IN, SF_OP_INPUT, SF_OP_UNIT},
                    {"begins", SF_OP_IN, SF_OP_INT32, SF_OP_ID},
                    {"sink_probs", SF_OP_IN, SF_OP_FLOAT, SF_OP_UNIT},
                    {"ds", SF_OP_INOUT, SF_OP_STORED},
                    {"sink_grad", SF_OP_INOUT, SF_OP_FLOAT}),
     SF_OP_DIMS("rows", "cols"),
     SF_OP_ATTRS(BLOCK_ATTRS, {"sink", 1}),
     .sizes = {SF_OP_MATRIX(ROWS, COLS), SF_OP_VECTOR_WITH(ROWS, 1 << BEGINS), SF_OP_VECTOR_WITH(ROWS, 1 << SINK), SF_OP_MATRIX(ROWS, COLS),
               SF_OP_VECTOR_WITH(SF_OP_ONE, 1 << SINK)},
     .formula =
         "ds[i,j] = p (ds - dot), dot = sum_j p ds, over what row i sees (as block_softmax_stats); 0 elsewhere. ds holds dp before the "
         "call.\n"
         "sink_grad = sink_grad - sum_i sink_probs[i] dot[i]: it accumulates.",
     .prepare = bwd_prepare,
     .reference = bwd},
    {0},
};
