/* Softmax of whole rows: causal with a window and a sink (the device's), and plain or causal over rows of any number (plugins). */
#include "oracles/ops/op_internal.h"
#include "oracles/ops/softmax_row.h"

enum { ROWS, COLS, N = 0 }; /* dimensions */

double sf_op_row_top(const float *s, int64_t count, double top) {
  for (int64_t j = 0; j < count && !isnan(top); j++)
    if (!((double)s[j] <= top)) top = (double)s[j];
  return top;
}

struct sf_num sf_op_exp_distance(double score, double top) { return sf_num_exp(sf_num_sub(sf_num(score), sf_num(top))); }

struct sf_num sf_op_softmax_row(struct sf_num *want, const float *s, int64_t count, const float *sink) {
  const double top = sf_op_row_top(s, count, sink ? (double)*sink : -INFINITY);
  const struct sf_num sink_exp = sink ? sf_op_exp_distance((double)*sink, top) : sf_num(0);
  struct sf_num_sum sum = {0};
  if (sink) sf_num_sum_add(&sum, sink_exp);
  for (int64_t j = 0; j < count; j++) {
    want[j] = sf_op_exp_distance((double)s[j], top);
    sf_num_sum_add(&sum, want[j]);
  }
  const struct sf_num total = sf_num_sum_of(&sum);
  for (int64_t j = 0; j < count; j++) want[j] = sf_num_div(want[j], total);
  return sf_num_div(sink_exp, total);
}

struct sf_num sf_op_softmax_row_bwd(struct sf_num *want, const float *dp, const float *p, int64_t count) {
  struct sf_num_sum sum = {0};
  for (int64_t j = 0; j < count; j++) sf_num_sum_add(&sum, sf_num_mul(sf_num((double)p[j]), sf_num((double)dp[j])));
  const struct sf_num dot = sf_num_sum_of(&sum);
  for (int64_t j = 0; j < count; j++) want[j] = sf_num_mul(sf_num((double)p[j]), sf_num_sub(sf_num((double)dp[j]), dot));
  return dot;
}

void sf_op_clear(struct sf_num *want, int64_t from, int64_t end) {
  for (int64_t j = from; j < end; j++) want[j] = sf_num(0);
}

/* --- one head of causal attention: n x n, attributes `window` and `sink` -------------------------------------------------- */

static int64_t first_seen(const struct sf_op_view *view, int64_t row) {
  const int64_t window = view->attrs[0];
  return window > 0 && row >= window ? row + 1 - window : 0;
}

static void causal_fwd(struct sf_op_view *view) {
  const int64_t n = view->dims[0];
  for (int64_t i = 0; i < n; i++) {
    const int64_t first = first_seen(view, i);
    struct sf_num *want = view->at[2].want + i * n;
    const struct sf_num sink =
        sf_op_softmax_row(want + first, view->at[0].x + i * n + first, i + 1 - first, view->attrs[1] ? view->at[1].x : NULL);
    if (view->attrs[1]) view->at[3].want[i] = sink;
    sf_op_clear(want, 0, first);
    sf_op_clear(want, i + 1, n);
  }
}

static void causal_bwd(struct sf_op_view *view) {
  const int64_t n = view->dims[0];
  struct sf_num_sum sink = {0};
  if (view->attrs[1]) sf_num_sum_add(&sink, sf_op_in(view, 4, 0));
  for (int64_t i = 0; i < n; i++) {
    const int64_t first = first_seen(view, i), at = i * n + first;
    struct sf_num *want = view->at[3].want + i * n;
    const struct sf_num dot = sf_op_softmax_row_bwd(want + first, view->at[0].x + at, view->at[1].x + at, i + 1 - first);
    if (view->attrs[1]) sf_num_sum_add(&sink, sf_num_neg(sf_num_mul(sf_op_in(view, 2, i), dot)));
    sf_op_clear(want, 0, first);
    sf_op_clear(want, i + 1, n);
  }
  if (view->attrs[1]) view->at[4].want[0] = sf_num_sum_of(&sink);
}

/* --- rows of any number: attribute `causal`, row i then sees columns 0 .. cols - rows + i ---------------------------------- */

static int64_t end_seen(const struct sf_op_view *view, int64_t row) {
  return view->attrs[0] ? view->dims[1] - view->dims[0] + row + 1 : view->dims[1];
}

static void rows_fwd(struct sf_op_view *view) {
  const int64_t cols = view->dims[1];
  for (int64_t i = 0; i < view->dims[0]; i++) {
    struct sf_num *want = view->at[1].want + i * cols;
    sf_op_softmax_row(want, view->at[0].x + i * cols, end_seen(view, i), NULL);
    sf_op_clear(want, end_seen(view, i), cols);
  }
}

static void rows_bwd(struct sf_op_view *view) {
  const int64_t cols = view->dims[1];
  for (int64_t i = 0; i < view->dims[0]; i++) {
    struct sf_num *want = view->at[2].want + i * cols;
    sf_op_softmax_row_bwd(want, view->at[0].x + i * cols, view->at[1].x + i * cols, end_seen(view, i));
    sf_op_clear(want, end_seen(view, i), cols);
  }
}

const struct sf_op sf_ops_softmax[] = {
    {.name = "causal_softmax_fwd",
     .family = "causal_softmax",
     .stores = SF_OP_STORES_ALL,
     SF_OP_OPERANDS({"s", SF_OP_IN, SF_OP_FLOAT, SF_OP_SCORE},
                    {"sink_logit", SF_OP_IN, SF_OP_FLOAT},
                    {"p", SF_OP_OUT, SF_OP_STORED, .in_place = 1},
                    {"sink_probs", SF_OP_OUT, SF_OP_FLOAT}),
     SF_OP_DIMS("n"),
     SF_OP_ATTRS({"window", 300, .size = true}, {"sink", 1}),
     .sizes = {SF_OP_MATRIX(N, N), SF_OP_VECTOR_WITH(SF_OP_ONE, 1 << 1), SF_OP_MATRIX(N, N), SF_OP_VECTOR_WITH(N, 1 << 1)},
     .formula = "p[i,j] = exp(s[i,j] - m) / sum, over the columns that row i sees, m being their largest; 0 elsewhere\n"
                "Row i sees columns 0 .. i, with window > 0 the last `window` of them. s is scaled already.\n"
                "sink: sink_logit joins each row's maximum and sum as one more score; sink_probs[i] is its probability, in fp32.",
     .reference = causal_fwd},
    {.name = "causal_softmax_bwd",
     .family = "causal_softmax",
     .backward = true,
     .stores = SF_OP_STORES_ALL,
     SF_OP_OPERANDS({"dp", SF_OP_IN, SF_OP_INPUT},
                    {"p", SF_OP_IN, SF_OP_INPUT, SF_OP_UNIT},
                    {"sink_probs", SF_OP_IN, SF_OP_FLOAT, SF_OP_UNIT},
                    {"ds", SF_OP_OUT, SF_OP_STORED, .in_place = 1},
                    {"sink_grad", SF_OP_INOUT, SF_OP_FLOAT}),
     SF_OP_DIMS("n"),
     SF_OP_ATTRS({"window", 300, .size = true}, {"sink", 1}),
     .sizes = {SF_OP_MATRIX(N, N), SF_OP_MATRIX(N, N), SF_OP_VECTOR_WITH(N, 1 << 1), SF_OP_MATRIX(N, N),
               SF_OP_VECTOR_WITH(SF_OP_ONE, 1 << 1)},
     .formula =
         "ds[i,j] = p (dp - dot), dot = sum_j p dp, over the columns that row i sees (as forward); 0 elsewhere, whatever dp and p hold "
         "there\n"
         "sink_grad = sink_grad - sum_i sink_probs[i] dot[i]: it accumulates.",
     .reference = causal_bwd},
    {.name = "softmax_fwd",
     .family = "softmax",
     .stores = SF_OP_STORES_ALL,
     SF_OP_OPERANDS({"s", SF_OP_IN, SF_OP_INPUT, SF_OP_SCORE, .strided = true},
                    {"p", SF_OP_OUT, SF_OP_STORED, .strided = true, .in_place = 1}),
     SF_OP_DIMS("rows", "cols"),
     .dim_min = {0, 1},
     SF_OP_ATTRS({"causal", 1}),
     .sizes = {SF_OP_MATRIX(ROWS, COLS), SF_OP_MATRIX(ROWS, COLS)},
     .wide_with = 1 << 0,
     .formula =
         "p[i,j] = exp(s[i,j] - m) / sum, over the columns that row i sees, m being their largest; 0 elsewhere\n"
         "Row i sees all columns; with causal columns 0 .. cols - rows + i: the last row sees all, as the last query of a longer sequence "
         "of keys. rows <= cols then.\n"
         "s is scaled already. A row of -infinity alone is NaN.",
     .reference = rows_fwd},
    {.name = "softmax_bwd",
     .family = "softmax",
     .backward = true,
     .stores = SF_OP_STORES_ALL,
     SF_OP_OPERANDS({"dp", SF_OP_IN, SF_OP_INPUT}, {"p", SF_OP_IN, SF_OP_INPUT, SF_OP_UNIT},
                    {"ds", SF_OP_OUT, SF_OP_STORED, .in_place = 1}),
     SF_OP_DIMS("rows", "cols"),
     .dim_min = {0, 1},
     SF_OP_ATTRS({"causal", 1}),
     .sizes = {SF_OP_MATRIX(ROWS, COLS), SF_OP_MATRIX(ROWS, COLS), SF_OP_MATRIX(ROWS, COLS)},
     .wide_with = 1 << 0,
     .formula = "ds[i,j] = p (dp - sum_j p dp), over the columns that row i sees (as forward); 0 elsewhere, whatever dp and p hold there\n"
                "With respect to the scores as forward reads them, without a factor.",
     .reference = rows_bwd},
    {0},
};
