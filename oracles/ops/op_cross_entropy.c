/* The pieces of cross-entropy on a shard [first, first + cols) of the vocabulary. */
#include "oracles/ops/op_internal.h"
#include "oracles/ops/softmax_row.h"

enum { ROWS, COLS }; /* dimensions */

static const float label_shares[2] = {1.0f, 0.9f}, other_shares[3] = {0.0f, 0.0015f, 0.02f};

/* Turns any integer into a label; some lie on another shard. */
static void fit_labels(const struct sf_op_view *view, int operand) {
  int32_t *labels = view->at[operand].ints;
  for (int64_t r = 0; r < view->dims[0]; r++) labels[r] = (int32_t)(view->attrs[0] + labels[r] % (view->dims[1] + 2) - 1);
}
/* Maxima of rows over all shards: at least this shard's, except in every fourth row. */
static void fit_maxima(const struct sf_op_view *view, int operand) {
  for (int64_t r = 0; r < view->dims[0]; r++)
    if (r % 4 != 3)
      view->at[operand].x[r] = (float)sf_op_row_top(view->at[0].x + r * view->dims[1], view->dims[1], (double)view->at[operand].x[r]);
}

static void row_max(struct sf_op_view *view) {
  for (int64_t r = 0; r < view->dims[0]; r++)
    view->at[1].want[r] = sf_num(sf_op_row_top(view->at[0].x + r * view->dims[1], view->dims[1], -INFINITY));
}

static void sum_exp_prepare(struct sf_op_view *view) {
  fit_maxima(view, 1);
  fit_labels(view, 2);
}
static void sum_exp(struct sf_op_view *view) {
  const int64_t cols = view->dims[1];
  for (int64_t r = 0; r < view->dims[0]; r++) {
    const int64_t local = view->at[2].ints[r] - view->attrs[0];
    struct sf_num_sum sum = {0};
    for (int64_t j = 0; j < cols; j++)
      sf_num_sum_add(&sum, sf_op_exp_distance((double)view->at[0].x[r * cols + j], (double)view->at[1].x[r]));
    view->at[3].want[r] = sf_num_sum_of(&sum);
    view->at[4].want[r] = local >= 0 && local < cols ? sf_num_sub(sf_op_in(view, 0, r * cols + local), sf_op_in(view, 1, r)) : sf_num(0);
  }
}

static void sum_shifted(struct sf_op_view *view) {
  for (int64_t r = 0; r < view->dims[0]; r++) {
    struct sf_num_sum sum = {0};
    for (int64_t j = 0; j < view->dims[1]; j++)
      sf_num_sum_add(&sum, sf_num_sub(sf_op_in(view, 0, r * view->dims[1] + j), sf_op_in(view, 1, r)));
    view->at[2].want[r] = sf_num_sum_of(&sum);
  }
}

static void grad_prepare(struct sf_op_view *view) {
  fit_maxima(view, 1);
  fit_labels(view, 3);
}
static void grad(struct sf_op_view *view) {
  const int64_t cols = view->dims[1];
  for (int64_t r = 0; r < view->dims[0]; r++) {
    const int64_t local = view->at[3].ints[r] - view->attrs[0];
    for (int64_t j = 0; j < cols; j++) {
      const struct sf_num p =
          sf_num_div(sf_op_exp_distance((double)view->at[0].x[r * cols + j], (double)view->at[1].x[r]), sf_op_in(view, 2, r));
      const struct sf_num share = sf_num_add(sf_num(sf_op_real(view, 2)), sf_num(j == local ? sf_op_real(view, 1) : 0));
      view->at[5].want[r * cols + j] = sf_num_mul(sf_num_sub(p, share), sf_op_in(view, 4, r));
    }
  }
}

const struct sf_op sf_ops_cross_entropy[] = {
    {SF_OP_ALONE("ce_row_max"),
     .stores = SF_OP_STORES_ALL,
     SF_OP_OPERANDS({"logits", SF_OP_IN, SF_OP_INPUT, SF_OP_SCORE}, {"max", SF_OP_OUT, SF_OP_FLOAT}),
     SF_OP_DIMS("rows", "cols"),
     .sizes = {SF_OP_MATRIX(ROWS, COLS), SF_OP_VECTOR(ROWS)},
     .formula = "max[i] = max_j logits[i,j]; -infinity of no columns, NaN when there is one",
     .reference = row_max},
    {SF_OP_ALONE("ce_sum_exp"),
     .stores = SF_OP_STORES_ALL,
     SF_OP_OPERANDS({"logits", SF_OP_IN, SF_OP_INPUT, SF_OP_SCORE},
                    {"max", SF_OP_IN, SF_OP_FLOAT},
                    {"labels", SF_OP_IN, SF_OP_INT32, SF_OP_ID},
                    {"sum", SF_OP_OUT, SF_OP_FLOAT},
                    {"target", SF_OP_OUT, SF_OP_FLOAT}),
     SF_OP_DIMS("rows", "cols"),
     SF_OP_ATTRS({"first", 60, .size = true}),
     .sizes = {SF_OP_MATRIX(ROWS, COLS), SF_OP_VECTOR(ROWS), SF_OP_VECTOR(ROWS), SF_OP_VECTOR(ROWS), SF_OP_VECTOR(ROWS)},
     .formula =
         "sum[i] = sum_j exp(logits[i,j] - max[i]), target[i] = logits[i,labels[i]-first] - max[i] where that column is here, else 0\n"
         "logits are the columns first .. first + cols - 1 of the vocabulary; max is of all shards. The loss is log(sum over shards) - "
         "target. No label is an ignored one by itself.",
     .prepare = sum_exp_prepare,
     .reference = sum_exp},
    {SF_OP_ALONE("ce_sum_shifted"),
     .stores = SF_OP_STORES_ALL,
     SF_OP_OPERANDS({"logits", SF_OP_IN, SF_OP_INPUT}, {"max", SF_OP_IN, SF_OP_FLOAT}, {"shifted", SF_OP_OUT, SF_OP_FLOAT}),
     SF_OP_DIMS("rows", "cols"),
     .sizes = {SF_OP_MATRIX(ROWS, COLS), SF_OP_VECTOR(ROWS), SF_OP_VECTOR(ROWS)},
     .formula = "shifted[i] = sum_j (logits[i,j] - max[i]), for label smoothing",
     .reference = sum_shifted},
    {SF_OP_ALONE("ce_grad"),
     .stores = SF_OP_STORES_ALL,
     SF_OP_OPERANDS({"logits", SF_OP_IN, SF_OP_INPUT, SF_OP_SCORE},
                    {"max", SF_OP_IN, SF_OP_FLOAT},
                    {"sum", SF_OP_IN, SF_OP_FLOAT, SF_OP_POSITIVE},
                    {"labels", SF_OP_IN, SF_OP_INT32, SF_OP_ID},
                    {"weight", SF_OP_IN, SF_OP_FLOAT},
                    {"dlogits", SF_OP_OUT, SF_OP_STORED}),
     SF_OP_DIMS("rows", "cols"),
     SF_OP_ATTRS({"first", 60, .size = true}, {"label_share", 1, label_shares}, {"other_share", 2, other_shares}),
     .sizes = {SF_OP_MATRIX(ROWS, COLS), SF_OP_VECTOR(ROWS), SF_OP_VECTOR(ROWS), SF_OP_VECTOR(ROWS), SF_OP_VECTOR(ROWS),
               SF_OP_MATRIX(ROWS, COLS)},
     .formula =
         "dlogits[i,j] = (exp(logits[i,j] - max[i]) / sum[i] - other_share - label_share [j = labels[i] - first]) weight[i]\n"
         "logits are the columns first .. first + cols - 1 of the vocabulary: a label elsewhere takes label_share from no column here. An "
         "ignored token has weight 0;\n"
         "the loss's mean is part of weight too. label_share 1 and other_share 0 are without label smoothing.",
     .prepare = grad_prepare,
     .reference = grad},
    {0},
};
