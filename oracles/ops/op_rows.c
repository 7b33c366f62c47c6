/* Rotary embedding and word embedding: rows that are rotated, picked and added. */
#include "oracles/ops/op_internal.h"

enum { ROWS, COLS, VOCAB, HALF = 1 }; /* dimensions */

enum { REPEAT, FIRST, INVERSE }; /* rows_per_position - 1, position_first */

static void rotate(struct sf_op_view *view) {
  const int64_t half = view->dims[1], width = 2 * half;
  for (int64_t r = 0; r < view->dims[0]; r++) {
    const int64_t table = (view->attrs[FIRST] + r / (view->attrs[REPEAT] + 1)) * width;
    struct sf_num *want = view->at[2].want + r * width;
    for (int64_t j = 0; j < half; j++) {
      const struct sf_num c = sf_op_in(view, 1, table + j), sine = sf_op_in(view, 1, table + half + j),
                          s = view->attrs[INVERSE] ? sf_num_neg(sine) : sine;
      const struct sf_num a = sf_op_in(view, 0, r * width + j), b = sf_op_in(view, 0, r * width + half + j);
      want[j] = sf_num_sub(sf_num_mul(a, c), sf_num_mul(b, s));
      want[half + j] = sf_num_add(sf_num_mul(b, c), sf_num_mul(a, s));
    }
  }
}

/* Turns any integer into a word's number; some are just outside of [first, first + vocab). */
static void fit_ids(const struct sf_op_view *view, int operand, int64_t vocab) {
  int32_t *ids = view->at[operand].ints;
  for (int64_t r = 0; r < view->at[operand].cols; r++) ids[r] = (int32_t)(view->attrs[0] + ids[r] % (vocab + 2) - 1);
}

static void embedding_fwd_prepare(struct sf_op_view *view) { fit_ids(view, 1, view->dims[2]); }

static void embedding_fwd(struct sf_op_view *view) {
  const int64_t cols = view->dims[1];
  for (int64_t r = 0; r < view->dims[0]; r++) {
    const int64_t local = view->at[1].ints[r] - view->attrs[0];
    for (int64_t j = 0; j < cols; j++)
      view->at[2].want[r * cols + j] = local >= 0 && local < view->dims[2] ? sf_op_in(view, 0, local * cols + j) : sf_num(0);
  }
}

static void embedding_bwd_prepare(struct sf_op_view *view) { fit_ids(view, 1, view->dims[2]); }

static void embedding_bwd(struct sf_op_view *view) {
  const int64_t cols = view->dims[1];
  for (int64_t word = 0; word < view->dims[2]; word++)
    for (int64_t j = 0; j < cols; j++) {
      struct sf_num_sum sum = {0};
      sf_num_sum_add(&sum, sf_op_in(view, 2, word * cols + j));
      for (int64_t r = 0; r < view->dims[0]; r++)
        if (view->at[1].ints[r] - view->attrs[0] == word) sf_num_sum_add(&sum, sf_op_in(view, 0, r * cols + j));
      view->at[2].want[word * cols + j] = sf_num_sum_of(&sum);
    }
}

const struct sf_op sf_ops_rows[] = {
    {SF_OP_ALONE("rotate"),
     .stores = SF_OP_STORES_ALL,
     SF_OP_OPERANDS({"x", SF_OP_IN, SF_OP_INPUT, .strided = true},
                    {"cos_sin", SF_OP_IN, SF_OP_FLOAT, SF_OP_UNIT},
                    {"y", SF_OP_OUT, SF_OP_STORED, .strided = true}),
     SF_OP_DIMS("rows", "half"),
     SF_OP_ATTRS({"repeat", 4}, {"first", 40, .size = true}, {"inverse", 1}),
     .sizes = {SF_OP_MATRIX(ROWS, SF_OP_TWICE + HALF), SF_OP_MATRIX(SF_OP_POSITIONS, SF_OP_TWICE + HALF),
               SF_OP_MATRIX(ROWS, SF_OP_TWICE + HALF)},
     .formula =
         "y[i,j] = x[i,j] cos - x[i,half+j] sin, y[i,half+j] = x[i,half+j] cos + x[i,j] sin; cos = cos_sin[t,j], sin = cos_sin[t,half+j]\n"
         "Column j is paired with j + half (rotate half), not with its neighbour. Row i reads row t = first + i div (repeat + 1) of the "
         "table: repeat + 1 rows share a position.\n"
         "inverse: sin with the other sign, which is the backward.",
     .reference = rotate},
    {.name = "embedding_fwd",
     .family = "embedding",
     .stores = SF_OP_STORES_ALL,
     SF_OP_OPERANDS({"w", SF_OP_IN, SF_OP_INPUT}, {"ids", SF_OP_IN, SF_OP_INT32, SF_OP_ID}, {"y", SF_OP_OUT, SF_OP_INPUT, .bits = true}),
     SF_OP_DIMS("rows", "cols", "vocab"),
     SF_OP_ATTRS({"first", 60, .size = true}),
     .sizes = {SF_OP_MATRIX(VOCAB, COLS), SF_OP_VECTOR(ROWS), SF_OP_MATRIX(ROWS, COLS)},
     .formula = "y[i] = w[ids[i] - first] where first <= ids[i] < first + vocab, else zeros: w is a shard of the vocabulary",
     .prepare = embedding_fwd_prepare,
     .reference = embedding_fwd},
    {.name = "embedding_bwd",
     .family = "embedding",
     .backward = true,
     .stores = SF_OP_STORES_ALL,
     SF_OP_OPERANDS({"dy", SF_OP_IN, SF_OP_INPUT}, {"ids", SF_OP_IN, SF_OP_INT32, SF_OP_ID}, {"dw", SF_OP_INOUT, SF_OP_FLOAT}),
     SF_OP_DIMS("rows", "cols", "vocab"),
     SF_OP_ATTRS({"first", 60, .size = true}),
     .sizes = {SF_OP_MATRIX(ROWS, COLS), SF_OP_VECTOR(ROWS), SF_OP_MATRIX(VOCAB, COLS)},
     .formula =
         "dw[ids[i] - first] = dw[ids[i] - first] + dy[i] where ids[i] lies within, as forward: it accumulates, and ids occur more than "
         "once",
     .prepare = embedding_bwd_prepare,
     .reference = embedding_bwd,
     .product = true},
    {0},
};
